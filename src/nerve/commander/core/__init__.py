"""State shared by all screens, built from events: no terminal, files or network."""
