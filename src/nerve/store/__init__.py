"""Keeps journals, definitions and blobs; knows nothing of what an event means."""
