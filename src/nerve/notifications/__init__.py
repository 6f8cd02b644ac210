"""Notifications: messages about events of runs, sent to people at least once, without delaying a run."""
