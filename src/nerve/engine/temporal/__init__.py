"""The Temporal engine: hosts the engine of runs in Temporal workflows, their leaves in activities."""
