"""The input line of the plain mode: prompt_toolkit with completion, history and a status bar."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.styles import Style

from nerve.commander.plain.key_bindings import PlainKeyActions, plain_key_bindings
from nerve.text import clip_text
from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.formatting import format_duration_between, format_usage
from nerve.ui.gate_names import describe_gate_answers
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from nerve.commander.controller import CommanderController
    from nerve.commander.core.paste_folding import Pastes
    from nerve.commander.core.run_cards import RunCard
    from nerve.commander.history import InputHistory

PROMPT_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse dim",
        "prompt": "bold ansicyan",
        "prompt.gate": "bold ansiyellow",
        "waits": "nodim bold ansiyellow",
        "hint": "nodim bold",
        "completion-menu": "bg:default",
        "completion-menu.completion": "bg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default dim",
        "completion-menu.meta.completion.current": "reverse",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "reverse",
    }
)
REFRESH_INTERVAL_S = 0.5
"""Seconds between refreshes of the elapsed time."""
MAX_TEXT_CHARS = 40
"""Maximum characters of the message that an agent is writing, in the status bar."""
MAX_QUEUED_CHARS = 24
"""Maximum characters of a queued text that are shown."""


class LineEditor:
    """The input line. It stays active while submitted input runs, so no typed key is lost."""

    def __init__(self, controller: CommanderController, history: InputHistory, keys: PlainKeyActions) -> None:
        self.controller, self.state, self.keys = controller, controller.state, keys
        self._never_connected = True
        self._session: PromptSession[str | None] = PromptSession(
            self._prompt,
            completer=CompleterAdapter(controller),
            complete_while_typing=Condition(self._has_completions),
            history=HistoryAdapter(history, keys.pastes),
            key_bindings=plain_key_bindings(keys),
            multiline=True,
            prompt_continuation="  ",
            bottom_toolbar=self._status_bar,
            enable_open_in_editor=True,
            enable_suspend=True,
            erase_when_done=True,
            refresh_interval=REFRESH_INTERVAL_S,
            style=PROMPT_STYLE,
            include_default_pygments_style=False,
        )
        self._session.default_buffer.on_text_changed += lambda buffer: self.state.set_typing(
            bool(buffer.text)
        )
        app = keys.output_above.app = self._session.app
        app.ttimeoutlen, app.timeoutlen = 0.05, 0.2  # a lone Esc must register quickly as a key

    async def edit(self) -> None:
        """Edit lines until the user quits."""
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            await self._session.prompt_async()

    def close(self) -> None:
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(result=None)

    def refresh(self) -> None:
        self._session.app.invalidate()

    def _has_completions(self) -> bool:
        """Return whether there are completions; otherwise the menu reserves no space."""
        buffer = self._session.default_buffer
        return bool(self.controller.complete(buffer.text, buffer.cursor_position))

    # -- prompt and status bar ---------------------------------------------------------------------------

    def _prompt(self) -> StyleAndTextTuples:
        if (open_gate_id := self.state.open_gate_id) is not None:
            gate, name = self.state.find_gate(open_gate_id), sanitize_text(self.state.gate_name(open_gate_id))
            accepted = describe_gate_answers(gate) if gate is not None else "closed"
            return [("class:prompt.gate", f"{name} ({accepted}) ▸ ")]
        target = f"{sanitize_text(str(self.state.target))} " if self.state.target is not None else ""
        return [("class:prompt", f"{target}❯ ")]

    def _status_bar(self) -> StyleAndTextTuples:
        """Return the status bar: the focused run, the number of active runs, and the waiting gates."""
        if hint := self.keys.hint.current_text:
            return [("class:hint", f" {hint}")]
        parts: StyleAndTextTuples = []
        if self.state.is_project_missing:
            parts.append(("class:waits", " no project here: nerve init "))
        elif not self.state.is_connected:
            parts.append(("class:waits", " no server yet " if self._never_connected else " not connected "))
        self._never_connected = self._never_connected and not self.state.is_connected
        if (card := self.state.focused_run) is not None and not card.has_ended:
            parts.append(("", f" {describe_focused_run(card)} "))
            block = self.state.block_of_run(card.run_id)
            if block is not None and (line := sanitize_text(block.growing_line)):
                end = line if len(line) <= MAX_TEXT_CHARS else f"…{line[1 - MAX_TEXT_CHARS :]}"
                parts.append(("", f" {end} "))
        active_count = sum(card.is_active for card in self.state.runs.values())
        parts.append(("", f" {active_count} running " if active_count else " no active runs "))
        if self.state.gates:
            parts.append(("class:waits", f" ⏸ {len(self.state.gates)} waiting: /gates "))
        if self.state.queue:
            first = " ".join(sanitize_text(self.state.queue[0]).split())
            preview = clip_text(first, MAX_QUEUED_CHARS)
            parts.append(("", f" {len(self.state.queue)} queued: {preview} (↑ takes it back) "))
        parts.append(("", " ? keys "))
        return [piece for part in parts for piece in (("", "·"), part)][1:]


def describe_focused_run(card: RunCard) -> str:
    """Describe a run with its current step."""
    symbol, _ = STATE_SYMBOLS.get(card.state, ("●", ""))
    duration = format_duration_between(card.started_at, None, datetime.now(UTC))
    step = ""
    if card.tree is not None and "" in card.tree.branches:
        running = sorted(
            path for branch in card.tree.branches.values() for path in branch.view_builder.running_calls
        )
        step = f" {running[-1].rsplit('/', 1)[-1]}" if running else ""
    return sanitize_text(f"{symbol} {card.name}{step} {duration} {format_usage(card.usage)}".rstrip())


class CompleterAdapter(Completer):
    """Adapts the completions of the core to prompt_toolkit."""

    def __init__(self, controller: CommanderController) -> None:
        self._controller = controller

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        cursor = document.cursor_position
        for completion in self._controller.complete(document.text, cursor):
            yield Completion(
                completion.text,
                completion.start - cursor,
                display=sanitize_text(completion.display or completion.text),
                display_meta=sanitize_text(completion.description),
            )


class HistoryAdapter(History):
    """Adapts the history of the core to prompt_toolkit."""

    def __init__(self, history: InputHistory, pastes: Pastes) -> None:
        super().__init__()
        self._history, self._pastes = history, pastes

    async def load(self) -> AsyncGenerator[str, None]:
        for entry in reversed(list(self._history.entries)):
            yield entry

    def get_strings(self) -> list[str]:
        return list(self._history.entries)

    def append_string(self, string: str) -> None:
        self._history.add(self._pastes.expand(string))

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._history.entries)

    def store_string(self, string: str) -> None:
        self._history.add(string)
