"""Drives runs."""
