"""Readers that keep positions: located JSON, YAML and S-expressions, and the problems found in them."""
