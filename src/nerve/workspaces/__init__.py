"""Workspaces: checkouts of their own for runs and steps, and snapshots of their files."""
