"""The checks of a spec, grouped by what they inspect."""
