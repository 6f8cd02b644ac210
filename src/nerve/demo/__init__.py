"""The demo: a scratch project with a failing test, and the workflow that fixes it."""
