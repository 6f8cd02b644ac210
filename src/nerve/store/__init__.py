"""Stores journals, definitions and blobs, without knowledge of what an event means."""
