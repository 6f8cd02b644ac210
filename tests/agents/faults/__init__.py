"""Engines and agents that are killed at random moments, and what must be true all the same."""
