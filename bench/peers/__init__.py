"""Nerve beside other durable workflow libraries, each in an environment of its own."""
