"""Engines and agents that are killed at random moments, and the invariants that must hold."""
