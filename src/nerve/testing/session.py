"""test_session: a session for tests, with a virtual clock and fakes of steps."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

from nerve.agents.provider import Provider
from nerve.agents.registry import EXTRA_PROVIDERS
from nerve.core.workflow.workflow import Workflow
from nerve.session.session import Session
from nerve.store.port import Store
from nerve.testing.fakes import Fake, Fakes
from nerve.testing.scripted import RecordedQuery, ScriptedProvider
from nerve.testing.virtual_clock import VirtualClock


class TestSession(Session):
    """A session whose clock skips time, and in which fakes replace steps; `test_session` opens one."""

    __test__ = False  # pytest does not collect it

    clock: VirtualClock
    _fakes: Fakes

    @property
    def fakes(self) -> Mapping[str, Fake]:
        """The fakes by name, with their calls."""
        return self._fakes.by_name

    def fake(self, name: str, outcome: Any) -> Fake:
        """Replace a step by its name until the session ends, and return the fake with its calls.

        `outcome` is the output, an exception to raise, a function of the input (for a typed step, of its
        arguments) that returns one of these, or a list with the outcome of each call.
        """
        self._fakes.check_name(self, name)
        return self._fakes.add(name, outcome)

    def find_startable(self, name: str) -> Workflow | None:
        # Checked when a run starts: fakes may be given before the steps are registered.
        for fake in self.fakes:
            self._fakes.check_name(self, fake)
        return super().find_startable(name)


@asynccontextmanager
async def test_session(
    session: Session | None = None,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    fakes: Mapping[str, Any] | None = None,
    start: datetime | None = None,
    skip: bool = True,
    clock: VirtualClock | None = None,
    **options: Any,
) -> AsyncIterator[TestSession]:
    """Open a session for a test: in memory, or in the file `store`, with a virtual clock.

    With `session`, it has the nodes, graphs, workflows and providers of that session, which must not be open
    and is as before afterwards; else `options` are those of `Session`. `fakes` replace steps by name, see
    `TestSession.fake`. `start` is the time at which the clock starts, by default now. With `skip=False` it
    stands still until `s.clock.advance(…)`. `clock` continues the clock of an earlier test session.
    """
    tested = TestSession.__new__(TestSession)
    with borrow_names(tested, session, options):
        tested.clock = clock if clock is not None else VirtualClock(start, skip=skip)
        tested._fakes = Fakes(fakes)
        providers: dict[str, Provider] = {name: refuse_prompts(name) for name in EXTRA_PROVIDERS}
        tested.providers = providers | tested.providers
        tested._store, tested._clock = store, tested.clock
        async with tested:
            engine = tested.engine
            engine.replace_leaf = tested._fakes.replace
            with tested.clock.observe(engine.is_at_rest):
                yield tested


test_session.__test__ = False  # type: ignore[attr-defined]  # pytest does not collect it


@contextmanager
def borrow_names(tested: TestSession, session: Session | None, options: dict[str, Any]) -> Iterator[None]:
    """Give a test session the names of a session, or none; remove afterwards what the test has added."""
    if session is None:
        Session.__init__(tested, **options)
        yield
        return
    if options:
        raise TypeError(f"'{next(iter(options))}' is an option of the tested session itself")
    if session._engine is not None:
        raise RuntimeError(f"Session '{session.name}' is open. Close it before a test uses its names.")
    # Both have the same attributes: nodes and workflows refer to the session that they were registered with.
    attributes = vars(session)
    tested.__dict__ = attributes
    original = dict(attributes)
    registries = (session.nodes, session.graphs, session.workflows, session.queues)
    names: list[tuple[dict[str, Any], dict[str, Any]]] = [(each, dict(each)) for each in registries]
    attributes.update(_engine=None, _provider_slots=None, _agents={}, _dataspace=None)
    try:
        yield
    finally:
        for registry, names_before in names:
            registry.clear()
            dict.update(registry, names_before)
        attributes.clear()
        attributes.update(original)


def refuse_prompts(name: str) -> ScriptedProvider:
    """Return a provider that fails every prompt: a test starts no real agent unless it is given one."""

    def refuse(call: RecordedQuery) -> str:
        raise LookupError(
            f"Provider '{name}' is not replaced in this test. Fake the step or the agent, or pass"
            f" providers={{'{name}': …}}. The prompt was: {call.prompt}"
        )

    return ScriptedProvider(refuse, name)
