"""The Commander in plain lines."""
