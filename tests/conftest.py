"""What all tests share."""

import os
import tempfile

import pytest
from hypothesis import settings

# The same examples every time: a change is judged by what it changed. `make test-full` draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

MEMORY = "/dev/shm"
ROOM = 2**30
"""Bytes that must be free in memory for the files of the quick tests to be there."""


def pytest_configure(config: pytest.Config) -> None:
    """Have the quick tests wait for no disk: who is killed loses nothing that was written to memory."""
    # Not in the home of the user who runs the tests. Workers have what the first process has set.
    if "NERVE_TEST_STATE" not in os.environ:
        state = tempfile.TemporaryDirectory(prefix="nerve-state-")
        os.environ["NERVE_TEST_STATE"] = os.environ["XDG_STATE_HOME"] = state.name
        config.add_cleanup(state.cleanup)
    if config.option.markexpr == "not full" and "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None


def has_room(folder: str) -> bool:
    """Whether there is such a folder with room for files, and programs in it can be run."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return free > ROOM and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)
