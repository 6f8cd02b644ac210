"""The Commander: the terminal where people live with their agents."""
