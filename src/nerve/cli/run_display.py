"""Displays of a run: a live panel in a terminal, or lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import IO, cast

from rich.console import Console, Group
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.panel import Panel

from nerve.core.events import STEP_END_EVENTS, WorkflowEventType
from nerve.core.step_output import StepStream
from nerve.core.workflow import WorkflowEvent
from nerve.ui.event_lines import (
    LogLines,
    format_event,
    format_event_log_line,
    log_step_name,
    shorten_to_line,
)
from nerve.ui.sanitize import sanitize_text

PanelFactory = Callable[[int], Panel]
"""Renders a panel with the given width."""


class LiveDisplay:
    """A panel that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._streams = [each for each in (sys.stdout, sys.stderr) if isinstance(each, StepStream)]
        self._output_lines = LogLines()

    def show(self, panel: PanelFactory, events: list[WorkflowEvent]) -> None:
        if self._live is None:
            self._start()
        for line in (line for event in events for line in self._output_lines.apply_output(event)):
            print_sentence(self._console, line)
        assert self._live is not None
        # The terminal echoes typed characters and ^C on the empty line, not in the panel.
        self._live.update(Group(panel(self._console.width), ""), refresh=True)

    def _start(self) -> None:
        # Live would replace the streams that capture what steps print. It gets only the other text, which it
        # prints above the panel.
        for stream in self._streams:
            stream.target = cast("IO[str]", FileProxy(self._console, stream.target))
        has_streams = bool(self._streams)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=not has_streams,
            redirect_stderr=not has_streams,
        )
        self._live.start()

    def stop(self) -> None:
        """Release the terminal, before a prompt or at the end."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            for stream in self._streams:
                stream.target = cast("FileProxy", stream.target).rich_proxied_file


class LineDisplay:
    """One line per relevant event, including output of functions, agent messages and tool calls."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._output_lines = LogLines()
        self._messages: dict[str, str] = {}
        """The last message of each agent by path. It is held back, because the result line may repeat it."""

    def show(self, panel: PanelFactory, events: list[WorkflowEvent]) -> None:
        for event in events:
            for line in self._format_event(event):
                print_sentence(self._console, line)

    def _format_event(self, event: WorkflowEvent) -> Iterator[str]:
        is_message = (
            event.event_type == WorkflowEventType.OUTPUT_CHUNK and event.data.get("stream") == "assistant"
        )
        if (is_message or event.event_type == WorkflowEventType.TOOL_CALL) and (
            text := self._messages.pop(event.path, "")
        ):
            yield f"[{log_step_name(event.path)}] {text}"
        if is_message:
            self._messages[event.path] = shorten_to_line(str(event.data.get("text", "")))
        elif event.event_type in STEP_END_EVENTS:
            self._messages.pop(event.path, None)
        yield from self._output_lines.apply_output(event)
        is_tool_call = event.event_type == WorkflowEventType.TOOL_CALL
        if (line := format_event_log_line(event) if is_tool_call else format_event(event)) is not None:
            yield line

    def stop(self) -> None:
        pass


def create_run_display(console: Console) -> LiveDisplay | LineDisplay:
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console) if is_live else LineDisplay(console)


def print_sentence(console: Console, text: str) -> None:
    """Print a sentence, wrapped in a terminal and on one line in a pipe."""
    console.print(sanitize_text(text), markup=False, soft_wrap=not console.is_terminal)
