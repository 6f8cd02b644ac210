"""The meaning of journal rows: events, replay, fork points and failures."""
