"""What all tests share."""

import os

from hypothesis import settings

# The same examples every time: a change is judged by what it changed. `make test-full` draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
