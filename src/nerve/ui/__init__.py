"""Code shared by all screens: sanitizing, event lines, the progress tree, gate forms, formatting."""
