"""Decides what is executed next; only the leaf modules touch the world."""
