"""What every screen shows, read from events: no terminal, no files, no network."""
