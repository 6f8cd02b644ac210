"""An engine stores the definition of a workflow with its first run, and not again with the next ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nerve import Session, Workflow, WorkflowContext
from nerve.errors import StoreError, StoreFailed
from nerve.store.memory import MemoryStore
from nerve.store.port import Append

pytestmark = pytest.mark.local("looks at what the engine of this process writes")


class RecordingStore(MemoryStore):
    """Records the definitions that are written, and fails as often as asked."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes: list[str] = []
        self.failures = 0

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        self.hashes += [part.definition.hash for part in batch if part.definition is not None]
        if self.failures:
            self.failures -= 1
            return [StoreFailed("the disk is full") for _ in batch]
        return super().append(batch, patience)


async def greet(ctx: WorkflowContext) -> str:
    return "hello"


async def part(ctx: WorkflowContext) -> str:
    return "goodbye"


async def test_a_definition_is_stored_with_the_first_run_only() -> None:
    store = RecordingStore()
    async with Session("test", store) as session:
        definitions = [Workflow(fn.__name__, session, fn).definition()[0] for fn in (greet, part)]
        for name in ("greet", "greet", "part", "greet", "part"):
            await (await session.start(name)).wait()
        assert store.hashes == definitions
        assert all(store.definition(hash) is not None for hash in definitions)


async def test_a_definition_that_was_not_written_is_stored_with_the_next_run() -> None:
    store = RecordingStore()
    async with Session("test", store) as session:
        definition = Workflow("greet", session, greet).definition()[0]
        store.failures = 1
        with pytest.raises(StoreFailed):
            await session.start("greet")
        assert store.definition(definition) is None
        run = await session.start("greet")
        assert await run.wait() == "hello"
        assert store.hashes == [definition, definition]
        assert store.definition(definition) is not None


async def test_a_changed_source_text_of_the_same_definition_is_stored() -> None:
    store = RecordingStore()
    async with Session("test", store) as session:
        text = "name: one\nbody: {kind: transform, expression: '1'}\n"
        for source in (text, text, f"# changed\n{text}"):
            hash = session.load(source).definition()[0]
            await (await session.start("one")).wait()
        assert store.hashes == [hash, hash]
        stored = store.definition(hash)
        assert stored is not None
        assert stored.source.startswith("# changed")
