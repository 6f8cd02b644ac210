"""The spec: the one intermediate form that every declarative notation is read into."""
