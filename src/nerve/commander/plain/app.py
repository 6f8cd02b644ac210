"""The plain mode: output is printed line by line above the input line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from rich.console import Console
from rich.text import Text

from nerve.background_tasks import END_SIGNALS, cancel_tasks, handle_signals
from nerve.commander.core.command_table import find_command
from nerve.commander.core.input_parser import InputType, parse_input
from nerve.commander.history import open_history
from nerve.commander.plain.output_above_prompt import OutputAbovePrompt
from nerve.commander.plain.printer import ConversationPrinter
from nerve.ui.formatting import count_noun
from nerve.ui.input_lines import read_input_lines
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.commander.controller import CommanderController
    from nerve.commander.plain.line_editor import LineEditor

NextMode = Literal["quit", "full"]
"""What follows this mode: exit, or the full screen."""
PRINT_INTERVAL_S = 0.1
"""Minimum seconds between two prints."""
EXIT_GRACE_S = 5.0
"""Seconds that the last input may take to finish on exit."""
REPEATED_BLOCKS = 20
"""Number of blocks that are repeated after a switch from the full screen."""
IMMEDIATE_COMMANDS = ("pause", "resume", "stop", "quit")
"""Commands that piped input runs without waiting for earlier runs."""
WELCOME_TEXT = "Describe a task, or type %workflow text, @node text, /help."


async def run_plain_mode(controller: CommanderController) -> NextMode:
    """Process terminal or piped input until it ends; the caller prints the exit message."""
    if not can_edit_line():
        return await PlainApp(controller, Console(highlight=False)).run()
    from prompt_toolkit.patch_stdout import patch_stdout

    output_above = OutputAbovePrompt()
    with patch_stdout(raw=True):  # captures output of other code
        console = Console(file=cast("IO[str]", output_above), highlight=False)
        return await PlainApp(controller, console, output_above).run()


def can_edit_line() -> bool:
    """Return whether the terminal supports line editing."""
    is_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    return is_terminal and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")


class PlainApp:
    """One conversation in plain mode."""

    def __init__(
        self, controller: CommanderController, console: Console, output_above: OutputAbovePrompt | None = None
    ) -> None:
        """`output_above` is the stream of the console when an input line is edited below it."""
        self.controller, self.state, self.output_above = controller, controller.state, output_above
        self.printer = ConversationPrinter(self.state, console)
        self.line_editor: LineEditor | None = None
        self._change_event = asyncio.Event()
        self._printed_event = asyncio.Event()
        self._exit_event = asyncio.Event()
        self._entered_lines: asyncio.Queue[tuple[str, str | None] | None] = asyncio.Queue()
        self._next_mode: NextMode = "quit"

    async def run(self) -> NextMode:
        title = Text("nerve", "bold cyan").append(f" · {self._folder_text()}", "none")
        self.printer.print_notice(title, Text(WELCOME_TEXT, "dim"))
        self.state.on_change = self._change_event.set
        for block in self.state.blocks[-REPEATED_BLOCKS:]:
            self.state.mark_changed(block=block)
        self._change_event.set()
        is_interactive = self.output_above is not None
        # The line editor handles Ctrl-C as a key.
        signals = (signal.SIGTERM,) if is_interactive else END_SIGNALS
        try:
            with handle_signals(signals, self._request_exit):
                await run_until_first_done(
                    self._print_loop(), self._run_interactive() if is_interactive else self._run_piped()
                )
        finally:
            self.state.on_change = None
            self._print_changes()
            if self.output_above is not None:
                self.output_above.print_remaining()
        return self._next_mode

    async def _open_and_summarize(self) -> None:
        """Connect, and print the number of workflows, runs and gates."""
        await self.controller.open()
        state, summaries = self.state, []
        open_count = sum(not card.has_ended for card in state.runs.values())
        if state.is_connected:
            summaries.append(f"{count_noun(len(state.workflows), 'workflow')}: /workflows")
        if open_count:
            summaries.append(f"{count_noun(open_count, 'run')} not ended: /runs")
        if state.gates:
            summaries.append(f"{len(state.gates)} waiting for you: /gates")
        if summaries:
            self.printer.print_notice(Text(" · ".join(summaries), "dim"))
            self._change_event.set()

    def _folder_text(self) -> str:
        return sanitize_text(str(Path(self.state.project or ".").resolve()))

    # -- printing ----------------------------------------------------------------------------------------

    async def _print_loop(self) -> None:
        """Print changes, at most ten times a second, until a command ends this mode."""
        while not self._exit_event.is_set():
            await self._change_event.wait()
            self._change_event.clear()
            self._print_changes()
            if self.output_above is not None:
                await self.output_above.print_above_prompt()
            await asyncio.sleep(PRINT_INTERVAL_S)
        if self.line_editor is not None:  # restore the terminal before other tasks end
            self.line_editor.close()
            await asyncio.Event().wait()

    def _print_changes(self) -> None:
        self.printer.print_changes()
        for request in [*self.controller.screen_requests]:
            self._handle_screen_request(request, self.controller.screen_requests.pop(request))
        if self.line_editor is not None:
            self.line_editor.refresh()
        self._printed_event.set()

    def _handle_screen_request(self, request: str, value: str) -> None:
        """Handle the request of a command to the screen."""
        if request == "quit":
            self._request_exit()
        elif request == "tui" and value == "full" and can_edit_line():
            self._next_mode = "full"
            self._request_exit()
        elif request == "tui":
            message = (
                "The full screen needs a terminal." if value == "full" else "Plain mode is already active."
            )
            self.printer.print_notice(Text(message, "dim"))
        elif request == "theme":
            self.printer.print_notice(
                Text("Plain mode uses the colours of the terminal. /tui full has themes.", "dim")
            )

    def _request_exit(self) -> None:
        self._exit_event.set()
        self._change_event.set()

    # -- interactive input -------------------------------------------------------------------------------

    async def _run_interactive(self) -> None:
        from nerve.commander.plain.key_bindings import PlainKeyActions
        from nerve.commander.plain.line_editor import LineEditor

        history = open_history(Path(self.state.project or "."))
        assert self.output_above is not None
        keys = PlainKeyActions(
            self.controller,
            self.printer,
            self.output_above,
            self._entered_lines.put_nowait,
            self._change_event.set,
        )
        self.line_editor = LineEditor(self.controller, history, keys)
        submit_task = asyncio.create_task(self._submit_entered_lines())
        try:
            await self.line_editor.edit()
            self._entered_lines.put_nowait(None)
            await asyncio.wait([submit_task], timeout=EXIT_GRACE_S)
        finally:
            await cancel_tasks(submit_task)

    async def _submit_entered_lines(self) -> None:
        """Submit entered lines in order while the user types the next one."""
        await self._open_and_summarize()
        while (entry := await self._entered_lines.get()) is not None:
            await self.controller.submit(*entry)

    # -- piped input -------------------------------------------------------------------------------------

    async def _run_piped(self) -> None:
        """Submit line by line; each line, and the end, waits until earlier runs are idle."""
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        await self._open_and_summarize()
        async for text in read_input_lines():
            line = text.rstrip("\r")
            if not (is_terminal or is_immediate_command(line)):
                await self._wait_until_idle()
            self._print_changes()  # print earlier output before the line
            await self.controller.submit(line)
            self._print_changes()
            if self._exit_event.is_set():
                return
        if not is_terminal:
            await self._wait_until_idle()

    async def _wait_until_idle(self) -> None:
        """Return when no run that was started here is active."""
        while self._is_busy():
            self._printed_event.clear()
            await self._printed_event.wait()

    def _is_busy(self) -> bool:
        cards = (
            self.state.runs.get(block.run_id or "") for block in self.state.blocks if block.kind == "run"
        )
        return bool(self.state.changes) or any(card is not None and card.is_active for card in cards)


def is_immediate_command(line: str) -> bool:
    parsed = parse_input(line)
    command = find_command(parsed.target) if parsed.type is InputType.COMMAND else None
    return command is not None and command.name in IMMEDIATE_COMMANDS


async def run_until_first_done(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Return when one coroutine ends; cancel the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_tasks(*tasks)
