"""The input line of the plain mode: edited by prompt_toolkit, with completion, history and a bar below it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History as Entries
from prompt_toolkit.styles import Style

from nerve.commander.core.gates import answers_of
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import SYMBOLS
from nerve.commander.core.tree import spent
from nerve.commander.plain.keys import Keys, bindings

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples

    from nerve.commander.core.cards import RunCard
    from nerve.commander.core.history import History
    from nerve.commander.core.pasted import Pastes
    from nerve.commander.workflow_controller import WorkflowController

STYLE = Style.from_dict(
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
REFRESH = 0.5
"""Seconds between two looks at the clock."""
QUEUED = 24
"""Letters of a queued text that are shown."""


class Line:
    """The one line that is edited. It stays while what was entered is done: nothing typed is lost."""

    def __init__(self, controller: WorkflowController, history: History, keys: Keys) -> None:
        self.controller, self.desk, self.keys = controller, controller.desk, keys
        self._never = True
        self._session: PromptSession[str | None] = PromptSession(
            self._prompt,
            completer=Completing(controller),
            complete_while_typing=Condition(self._offers),
            history=Remembered(history, keys.pastes),
            key_bindings=bindings(keys),
            multiline=True,
            prompt_continuation="  ",
            bottom_toolbar=self._bar,
            enable_open_in_editor=True,
            enable_suspend=True,
            erase_when_done=True,
            refresh_interval=REFRESH,
            style=STYLE,
            include_default_pygments_style=False,
        )
        self._session.default_buffer.on_text_changed += lambda buffer: self.desk.set_typing(bool(buffer.text))
        app = keys.above.app = self._session.app
        app.ttimeoutlen, app.timeoutlen = 0.05, 0.2  # Esc alone is a key, too

    async def edit(self) -> None:
        """Return when somebody leaves."""
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            await self._session.prompt_async()

    def leave(self) -> None:
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(result=None)

    def refresh(self) -> None:
        self._session.app.invalidate()

    def _offers(self) -> bool:
        """Whether there is something to offer: only then is there a menu, and room for it."""
        buffer = self._session.default_buffer
        return bool(self.controller.complete(buffer.text, buffer.cursor_position))

    # -- what is said beside it --------------------------------------------------------------------------

    def _prompt(self) -> StyleAndTextTuples:
        if (opened := self.desk.opened) is not None:
            gate, name = self.desk.gate(opened), harmless(self.desk.gate_name(opened))
            takes = answers_of(gate) if gate is not None else "not open any more"
            return [("class:prompt.gate", f"{name} ({takes}) ▸ ")]
        target = f"{harmless(str(self.desk.target))} " if self.desk.target is not None else ""
        return [("class:prompt", f"{target}❯ ")]

    def _bar(self) -> StyleAndTextTuples:
        """The run that is looked at, how many go on, and what waits."""
        if hint := self.keys.hint.now:
            return [("class:hint", f" {hint}")]
        parts: StyleAndTextTuples = []
        if self.desk.empty:
            parts.append(("class:waits", " no project here: nerve init "))
        elif not self.desk.connected:
            parts.append(("class:waits", " no server yet " if self._never else " not connected "))
        self._never = self._never and not self.desk.connected
        if (card := self.desk.focused) is not None and not card.ended:
            parts.append(("", f" {described(card)} "))
        going = sum(card.moves for card in self.desk.runs.values())
        parts.append(("", f" {going} running " if going else " nothing runs "))
        if self.desk.gates:
            parts.append(("class:waits", f" ⏸ {len(self.desk.gates)} waiting: /gates "))
        if self.desk.queue:
            first = " ".join(harmless(self.desk.queue[0]).split())
            told = first if len(first) <= QUEUED else f"{first[:QUEUED]}…"
            parts.append(("", f" {len(self.desk.queue)} queued: {told} (↑ takes it back) "))
        parts.append(("", " ? keys "))
        return [piece for part in parts for piece in (("", "·"), part)][1:]


def described(card: RunCard) -> str:
    """A run with what it does now."""
    symbol, _ = SYMBOLS.get(card.state, ("●", ""))
    seconds = (datetime.now(UTC) - card.started_at).total_seconds() if card.started_at else 0
    step = ""
    if card.tree is not None and "" in card.tree.branches:
        running = sorted(path for each in card.tree.branches.values() for path in each.running)
        step = f" {running[-1].rsplit('/', 1)[-1]}" if running else ""
    used = f" {spent(card.usage)}" if spent(card.usage) else ""
    return harmless(f"{symbol} {card.name}{step} {seconds:.0f}s{used}")


class Completing(Completer):
    """What the core offers, as a popup."""

    def __init__(self, controller: WorkflowController) -> None:
        self._controller = controller

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        cursor = document.cursor_position
        for each in self._controller.complete(document.text, cursor):
            yield Completion(
                each.text,
                each.start - cursor,
                display=harmless(each.display or each.text),
                display_meta=harmless(each.description),
            )


class Remembered(Entries):
    """The history of the core, for the line and its search."""

    def __init__(self, history: History, pastes: Pastes) -> None:
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
