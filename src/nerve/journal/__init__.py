"""What the rows of a journal mean: events, replay, fork points and failures."""
