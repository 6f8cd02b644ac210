"""A project on disk: its paths, configuration, workflow files and agent files."""
