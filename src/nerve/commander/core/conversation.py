"""The conversation: blocks in their order, and what has changed since a screen looked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.commander.core.blocks import BLOCK_KINDS, Block, BlockKind
from nerve.commander.core.references import is_answer


@dataclass(slots=True)
class Changes:
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

    def take(self) -> Changes:
        """What has changed; from now on, nothing has."""
        taken = Changes(self.blocks, self.runs, self.flags)
        self.blocks, self.runs, self.flags = set(), set(), set()
        return taken


@dataclass(slots=True)
class Conversation:
    """What was said, by whomever."""

    blocks: list[Block] = field(default_factory=list)
    changed: Changes = field(default_factory=Changes)
    on_change: Callable[[], None] | None = None
    """Called when something changes after nothing had."""
    _ended: int = 0
    _results: int = 0
    """Blocks that have a number."""
    _shown: dict[str, Block] = field(default_factory=dict)
    """The blocks of the runs that are followed."""

    def block(self, place: int) -> Block | None:
        return self.blocks[place - 1] if 0 < place <= len(self.blocks) else None

    def block_of(self, run_id: str | None) -> Block | None:
        """The block in which a run is shown."""
        return self._shown.get(run_id or "")

    def say(
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
        if is_answer(block):
            self._results += 1
            block.number = self._results
        self.blocks.append(block)
        if done:
            self.end(block)
        self.touch(block=block)
        return block

    def end(self, block: Block) -> None:
        """Nothing more comes in a block."""
        self._ended += 1
        block.done, block.ended = True, self._ended

    def bring(self, told: Iterable[Mapping[str, Any]]) -> int:
        """Put blocks of another conversation at the end; the number of their first result."""
        first = self._results + 1
        for each in told:
            kind = each.get("kind")
            block = self.say(
                kind if kind in BLOCK_KINDS else "note",
                str(each.get("text") or ""),
                name=str(each.get("name") or ""),
                run_id=str(each["run_id"]) if each.get("run_id") else None,
                value=each.get("value"),
            )
            for part in each.get("parts") or ():
                block.tell(str(part.get("text") or ""), str(part.get("name") or ""))
        return first

    def flag(self, *names: str) -> None:
        self._changing()
        self.changed.flags.update(names)

    def touch(self, block: Block | None = None, run: str | None = None) -> None:
        self._changing()
        if block is not None:
            self.changed.blocks.add(block.place)
        if run is not None:
            self.changed.runs.add(run)

    def _changing(self) -> None:
        if self.on_change is not None and not self.changed:
            self.on_change()
