"""The plain (line-by-line) mode of the Commander."""
