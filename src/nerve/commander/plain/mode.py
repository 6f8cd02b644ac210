"""The plain mode: what happens is printed line by line, above the one line that is typed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from rich.console import Console
from rich.text import Text

from nerve.commander.core.commands import find
from nerve.commander.core.harmless import harmless
from nerve.commander.core.history import History
from nerve.commander.core.input import InputType, parse_input
from nerve.commander.history_file import FILE, HistoryFile
from nerve.commander.plain.above import Above
from nerve.commander.plain.pipe import Pipe
from nerve.commander.plain.printer import Printer

if TYPE_CHECKING:
    from nerve.commander.plain.line import Line
    from nerve.commander.workflow_controller import WorkflowController

Next = Literal["quit", "full"]
"""What comes after this mode: the end, or the full screen."""
FRAME = 0.1
"""Seconds between two prints, at least."""
GRACE = 5.0
"""Seconds in which what was entered last is still done when somebody leaves."""
AGAIN = 20
"""Blocks that are shown again to who comes from the full screen."""
AT_ONCE = ("pause", "resume", "stop", "quit")
"""Commands before which a pipe does not wait for what was started before them."""
WELCOME = "Say what you want, or %workflow text, @node text, /help."


async def run(controller: WorkflowController) -> Next:
    """Talk with a person, or do what is piped in, until that ends. The farewell is for the caller to say."""
    if not can_edit():
        return await Plain(controller, Console(highlight=False)).go()
    from prompt_toolkit.patch_stdout import patch_stdout

    above = Above()
    with patch_stdout(raw=True):  # for what others print
        console = Console(file=cast("IO[str]", above), highlight=False)
        return await Plain(controller, console, above).go()


def can_edit() -> bool:
    """Whether there is a terminal in which a line can be edited."""
    return is_terminal() and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")


def is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


class Plain:
    """One conversation in plain lines."""

    def __init__(self, controller: WorkflowController, console: Console, above: Above | None = None) -> None:
        """`above` is what the console writes to, where a line is edited below it."""
        self.controller, self.desk, self.above = controller, controller.desk, above
        self.printer = Printer(self.desk, console)
        self.line: Line | None = None
        self._changed = asyncio.Event()
        self._printed = asyncio.Event()
        self._left = asyncio.Event()
        self._entered: asyncio.Queue[tuple[str, str | None] | None] = asyncio.Queue()
        self._next: Next = "quit"

    async def go(self) -> Next:
        self.printer.say(
            Text("nerve", "bold cyan").append(f" · {self._folder()}", "none"), Text(WELCOME, "dim")
        )
        self.desk.on_change = self._changed.set
        for block in self.desk.blocks[-AGAIN:]:
            self.desk.touch(block=block)
        self._changed.set()
        edits = self.above is not None
        signals = [signal.SIGTERM] if edits else [signal.SIGTERM, signal.SIGINT]  # in a line, Ctrl-C is a key
        try:
            with ended_by(signals, self._leave):
                await first_of(self._print(), self._talk() if edits else self._pipe())
        finally:
            self.desk.on_change = None
            self._look()
            if self.above is not None:
                self.above.rest()
        return self._next

    async def _open(self) -> None:
        """Find out what there is, and tell it."""
        await self.controller.open()
        desk, told = self.desk, []
        going = sum(not card.ended for card in desk.runs.values())
        if desk.connected:
            told.append(
                f"{len(desk.workflows)} workflow{'' if len(desk.workflows) == 1 else 's'}: /workflows"
            )
        if going:
            told.append(f"{going} run{'' if going == 1 else 's'} not ended: /runs")
        if desk.gates:
            told.append(f"{len(desk.gates)} waiting for you: /gates")
        if told:
            self.printer.say(Text(" · ".join(told), "dim"))
            self._changed.set()

    def _folder(self) -> str:
        return harmless(str(Path(self.desk.project or ".").resolve()))

    # -- printing ----------------------------------------------------------------------------------------

    async def _print(self) -> None:
        """Print what is new, at most ten times a second, until a command ends this mode."""
        while not self._left.is_set():
            await self._changed.wait()
            self._changed.clear()
            self._look()
            if self.above is not None:
                await self.above.show()
            await asyncio.sleep(FRAME)
        if self.line is not None:  # it gives the terminal back before anything else ends
            self.line.leave()
            await asyncio.Event().wait()

    def _look(self) -> None:
        self.printer.flush()
        for want in [*self.controller.wants]:
            self._want(want, self.controller.wants.pop(want))
        if self.line is not None:
            self.line.refresh()
        self._printed.set()

    def _want(self, what: str, how: str) -> None:
        """What a command asks of this screen."""
        if what == "quit":
            self._leave()
        elif what == "tui" and how == "full" and can_edit():
            self._next = "full"
            self._leave()
        elif what == "tui":
            told = "The full screen needs a terminal." if how == "full" else "These are plain lines already."
            self.printer.say(Text(told, "dim"))
        elif what == "theme":
            self.printer.say(
                Text("Plain lines have the colours of the terminal. /tui full has themes.", "dim")
            )

    def _leave(self) -> None:
        self._left.set()
        self._changed.set()

    # -- a person ----------------------------------------------------------------------------------------

    async def _talk(self) -> None:
        from nerve.commander.plain.keys import Keys
        from nerve.commander.plain.line import Line

        history = History(HistoryFile(Path(self.desk.project or ".") / FILE))
        assert self.above is not None
        keys = Keys(self.controller, self.printer, self.above, self._entered.put_nowait, self._changed.set)
        self.line = Line(self.controller, history, keys)
        entering = asyncio.create_task(self._enter())
        try:
            await self.line.edit()
            self._entered.put_nowait(None)
            await asyncio.wait([entering], timeout=GRACE)
        finally:
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)

    async def _enter(self) -> None:
        """Do what was entered, in its order, while the next line is typed."""
        await self._open()
        while (entered := await self._entered.get()) is not None:
            await self.controller.enter(*entered)

    # -- a pipe ------------------------------------------------------------------------------------------

    async def _pipe(self) -> None:
        """Enter line by line; each, and the end, waits until what was started before it rests."""
        pipe, person = Pipe(), sys.stdin is not None and sys.stdin.isatty()
        await self._open()
        while (line := await pipe.read()) is not None:
            if not (person or at_once(line)):
                await self._rest()
            self._look()  # what came before the line is told before it
            await self.controller.enter(line)
            self._look()
            if self._left.is_set():
                return
        if not person:
            await self._rest()

    async def _rest(self) -> None:
        """Return when nothing that was started here goes on by itself."""
        while self._moves():
            self._printed.clear()
            await self._printed.wait()

    def _moves(self) -> bool:
        here = (self.desk.runs.get(block.run_id or "") for block in self.desk.blocks if block.kind == "run")
        return bool(self.desk.changed) or any(card is not None and card.moves for card in here)


def at_once(line: str) -> bool:
    parsed = parse_input(line)
    command = find(parsed.target) if parsed.type is InputType.COMMAND else None
    return command is not None and command.name in AT_ONCE


@contextlib.contextmanager
def ended_by(signals: list[signal.Signals], leave: Callable[[], None]) -> Iterator[None]:
    """Leave in good order when one of these comes, so that the terminal is as it was."""
    loop = asyncio.get_running_loop()
    for each in signals:
        loop.add_signal_handler(each, leave)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


async def first_of(*doing: Coroutine[Any, Any, None]) -> None:
    """Return when one of them has ended; the others are given up."""
    tasks = [asyncio.ensure_future(each) for each in doing]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
