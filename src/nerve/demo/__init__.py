"""The demonstration: a scratch project with a failing test, and the loop that mends it."""
