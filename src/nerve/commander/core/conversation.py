"""The conversation: blocks in their order, and what has changed since a screen looked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.commander.core.blocks import BLOCK_KINDS, Block, BlockKind
from nerve.commander.core.references import is_result_block


@dataclass(slots=True)
class ConversationChanges:
    """What has changed since a screen looked; taking it once a frame is what makes many events one."""

    blocks: set[int] = field(default_factory=set)
    """Places of blocks that are new or different."""
    runs: set[str] = field(default_factory=set)
    """Ids of runs whose cards or trees are different."""
    flags: set[str] = field(default_factory=set)
    """`gates`, `opened`, `focus`, `target`, `queue`, `connected`, `workflows`, and what a command asks of the
    screen: `wants`."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.runs or self.flags)

    def drain(self) -> ConversationChanges:
        """What has changed; from now on, nothing has."""
        changes = ConversationChanges(self.blocks, self.runs, self.flags)
        self.blocks, self.runs, self.flags = set(), set(), set()
        return changes


@dataclass(slots=True)
class BlockConversation:
    """What was said, by whomever."""

    blocks: list[Block] = field(default_factory=list)
    changes: ConversationChanges = field(default_factory=ConversationChanges)
    on_change: Callable[[], None] | None = None
    """Called when something changes after nothing had."""
    _end_count: int = 0
    _result_count: int = 0
    """Blocks that have a number."""
    _run_blocks: dict[str, Block] = field(default_factory=dict)
    """The blocks of the runs that are followed."""

    def block_at(self, position: int) -> Block | None:
        return self.blocks[position - 1] if 0 < position <= len(self.blocks) else None

    def block_of_run(self, run_id: str | None) -> Block | None:
        """The block in which a run is shown."""
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
        """Put a new block at the end."""
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
        """Nothing more comes in a block."""
        self._end_count += 1
        block.done, block.end_order = True, self._end_count

    def import_blocks(self, block_data: Iterable[Mapping[str, Any]]) -> int:
        """Put blocks of another conversation at the end; the number of their first result."""
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
