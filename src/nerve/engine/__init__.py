"""Execute, stop, resume, fork and recover runs."""
