"""The conversation: ordered blocks, and the changes since a screen last read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from nerve.commander.core.blocks import BLOCK_KINDS, Block, BlockKind
from nerve.commander.core.references import is_result_block
from nerve.lazy_dataclass import dataclass


@dataclass(slots=True)
class ConversationChanges:
    """Changes since the last `drain`; draining once per frame batches many events into one redraw."""

    blocks: set[int] = field(default_factory=set)
    """Positions of new or changed blocks."""
    runs: set[str] = field(default_factory=set)
    """Ids of runs whose cards or trees changed."""
    flags: set[str] = field(default_factory=set)
    """`gates`, `opened`, `focus`, `target`, `queue`, `connected`, `workflows`, and `wants` for a request of a
    command to the screen."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.runs or self.flags)

    def drain(self) -> ConversationChanges:
        """Return the changes and reset them."""
        changes = ConversationChanges(self.blocks, self.runs, self.flags)
        self.blocks, self.runs, self.flags = set(), set(), set()
        return changes


@dataclass(slots=True)
class BlockConversation:
    """The blocks of a conversation and their changes."""

    blocks: list[Block] = field(default_factory=list)
    changes: ConversationChanges = field(default_factory=ConversationChanges)
    on_change: Callable[[], None] | None = None
    """Called on the first change after a `drain`."""
    _end_count: int = 0
    _result_count: int = 0
    """Number of blocks that have a number."""
    _run_blocks: dict[str, Block] = field(default_factory=dict)
    """Blocks of followed runs by run id."""

    def block_at(self, position: int) -> Block | None:
        return self.blocks[position - 1] if 0 < position <= len(self.blocks) else None

    def block_of_run(self, run_id: str | None) -> Block | None:
        """Return the block that shows a run."""
        return self._run_blocks.get(run_id or "")

    def add_block(
        self,
        kind: BlockKind,
        text: str,
        *,
        name: str = "",
        run_id: str | None = None,
        value: Any = None,
        done: bool = True,
    ) -> Block:
        """Append a new block."""
        value = text if value is None and kind not in ("run", "gate") else value
        block = Block(len(self.blocks) + 1, kind, text, name, run_id, value, done=done)
        if is_result_block(block):
            self._result_count += 1
            block.number = self._result_count
        self.blocks.append(block)
        if done:
            self.end_block(block)
        self.mark_changed(block=block)
        return block

    def end_block(self, block: Block) -> None:
        """Mark a block as finished."""
        self._end_count += 1
        block.done, block.end_order = True, self._end_count

    def import_blocks(self, block_data: Iterable[Mapping[str, Any]]) -> int:
        """Append blocks of another conversation; return the number of their first result."""
        first = self._result_count + 1
        for entry in block_data:
            kind = entry.get("kind")
            block = self.add_block(
                kind if kind in BLOCK_KINDS else "note",
                str(entry.get("text") or ""),
                name=str(entry.get("name") or ""),
                run_id=str(entry["run_id"]) if entry.get("run_id") else None,
                value=entry.get("value"),
            )
            for part in entry.get("parts") or ():
                block.append_message(str(part.get("text") or ""), str(part.get("name") or ""))
        return first

    def raise_flags(self, *names: str) -> None:
        self._notify_change()
        self.changes.flags.update(names)

    def mark_changed(self, block: Block | None = None, run: str | None = None) -> None:
        self._notify_change()
        if block is not None:
            self.changes.blocks.add(block.position)
        if run is not None:
            self.changes.runs.add(run)

    def _notify_change(self) -> None:
        if self.on_change is not None and not self.changes:
            self.on_change()
