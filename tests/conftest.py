"""Configuration of all tests."""

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from postgresql_server import PostgresqlServer, ServerMissing

# Use the same examples every time, so that a failure points to the change. `make test-full` draws new ones.
# A loaded machine is not a failure: without these checks, a slow example only takes longer.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

MEMORY = "/dev/shm"
ROOM = 2**30
"""Free bytes required to keep the files of the quick tests in memory."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of the quick tests in memory, where they also survive a killed process."""
    # A shell starts background jobs with SIGINT ignored, which children inherit. Tests of Ctrl-C would hang.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Do not use the home directory of the user. Workers inherit the setting of the first process.
    if "NERVE_TEST_STATE" not in os.environ:
        state = tempfile.TemporaryDirectory(prefix="nerve-state-")
        os.environ["NERVE_TEST_STATE"] = os.environ["XDG_STATE_HOME"] = state.name
        config.add_cleanup(state.cleanup)
    if config.option.markexpr == "not full" and "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None


def has_room(folder: str) -> bool:
    """Return whether a directory exists, has free space, and allows execution."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return False
    free = stats.f_bavail * stats.f_frsize
    return free > ROOM and not stats.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, for `make test-cluster`."""
    for item in items:
        if "postgresql_server" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server for all tests of this process; a test that stops one starts its own."""
    try:
        server = PostgresqlServer()
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def postgresql_url(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URL of an empty database."""
    url = postgresql_server.create_database()
    yield url
    postgresql_server.drop_database(url)
