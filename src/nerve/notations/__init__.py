"""Notations: ways to write a workflow down, each read into one spec."""
