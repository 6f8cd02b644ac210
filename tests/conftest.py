"""Configuration of all tests."""

import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from nerve_processes import origin
from postgresql_server import PostgresqlServer, ServerMissing
from temporal_cluster import FOLDER_VARIABLE, TemporalCluster
from temporal_server import TemporalServer
from time_limit import copy_stderr, limit_time

# Use the same examples every time, so that a failure points to the change. `make test-full` draws new ones.
# A loaded machine is not a failure: without these checks, a slow example only takes longer.
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

MEMORY = "/dev/shm"
ROOM = 2**30
"""Free bytes required to keep the files of the quick tests in memory."""

MAX_SECONDS, MAX_SECONDS_OF_FULL = 180, 7200
"""The time limits of a test, and of its fixtures, for a loaded machine: they end what hangs."""
SERVERS = {
    "postgresql_server",
    "temporal_server",
    "temporal_cluster",
    "unreliable_postgresql",
    "unreliable_temporal",
}
"""The fixtures that start a server."""
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of the quick tests in memory, where they also survive a killed process."""
    # A shell starts background jobs with SIGINT ignored, which children inherit. Tests of Ctrl-C would hang.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[STDERR] = copy_stderr()  # before pytest captures the output of tests
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Neither now nor in a test search for garbage in what the collection creates, 650,000 objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server, for `make test-cluster`."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if {"temporal_server", "unreliable_temporal"}.intersection(fixtures):
            item.add_marker("temporal")
        if SERVERS.intersection(fixtures):
            item.add_marker("cluster")


@pytest.hookimpl(wrapper=True)
def limit_phase(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that hangs."""
    seconds = MAX_SECONDS_OF_FULL if item.get_closest_marker("full") else MAX_SECONDS
    with limit_time(seconds, item.config.stash[STDERR]):
        return (yield)


# Not around all of them: a failure counts for a test only inside of one.
pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = limit_phase


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report how long the tests with a server took, for which `.ci/run` has three minutes."""
    stats = terminalreporter.stats.values()
    reports = [each for group in stats for each in group if isinstance(each, pytest.TestReport)]
    durations = [each.duration for each in reports if "cluster" in each.keywords]
    if durations:
        processes = config.getoption("numprocesses", None) or 1
        terminalreporter.write_line(
            f"Tests with a server of PostgreSQL or Temporal: {sum(durations):.0f} s"
            f" in {processes} processes, about {sum(durations) / processes:.0f} s."
        )


@pytest.fixture(scope="session", autouse=True)
def last() -> Iterator[None]:
    """Nothing is left of what the processes of `nerve …` were forked from."""
    yield
    if origin.cache_info().currsize:
        origin().end()


S = TypeVar("S", PostgresqlServer, TemporalServer)


def run_server(create: Callable[[], S]) -> Iterator[S]:
    """Yield a running server, or skip the test where none can be started."""
    try:
        server = create()
    except ServerMissing as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server for all tests of this process; a test that stops one starts its own."""
    yield from run_server(PostgresqlServer)


@pytest.fixture
def postgresql_url(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URL of an empty database."""
    url = postgresql_server.create_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    """A Temporal server for all tests of this process; a test that stops one starts its own."""
    yield from run_server(choose_temporal())


@pytest.fixture(scope="session")
def unreliable_postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL server for the tests of this process that stop one, and start it again before they end."""
    yield from run_server(PostgresqlServer)


@pytest.fixture(scope="session")
def unreliable_temporal() -> Iterator[TemporalServer]:
    """A Temporal server for the tests of this process that stop one, and start it again before they end."""
    yield from run_server(choose_temporal())


def choose_temporal() -> type[TemporalServer]:
    return TemporalCluster if FOLDER_VARIABLE in os.environ else TemporalServer


@pytest.fixture
def temporal_url(temporal_server: TemporalServer) -> str:
    """The URL of an empty namespace."""
    return temporal_server.url(temporal_server.create_namespace())


@pytest.fixture
async def temporal_sessions(
    temporal_server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Let Temporal execute the runs of all sessions of a test."""
    from temporal_sessions import TemporalSessions  # it takes long, and few tests need it

    sessions = TemporalSessions(temporal_server)
    sessions.replace_engines(monkeypatch)
    async with sessions.open():
        yield


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine that executes the runs of all sessions of a test."""
    name: str = getattr(request, "param", "local")
    if name == "temporal":
        request.getfixturevalue("temporal_sessions")
    return name


@pytest.fixture
def temporal_cluster() -> Iterator[TemporalCluster]:
    """Temporal as in production, with its history in PostgreSQL, for one test that may stop both."""
    yield from run_server(TemporalCluster)
