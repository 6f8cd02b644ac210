"""The palette: every command and every key, found by a few letters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.command import DiscoveryHit, Hit, Hits, Provider

from nerve.commander.core.command_table import COMMANDS
from nerve.commander.tui.keymap import KEYS, key_for_action

if TYPE_CHECKING:
    from nerve.commander.tui.app import CommanderApp


class Palette(Provider):
    """What the tables of commands and of keys have."""

    @property
    def entries(self) -> Iterator[tuple[str, str, Any]]:
        app: CommanderApp = self.app  # type: ignore[assignment]
        for command in COMMANDS:
            needs = any(not argument.optional for argument in command.arguments)
            do = app.prefill_prompt if needs else app.submit_line
            yield f"/{command.name}", command.summary, partial(do, f"/{command.name}")
        for flow in app.state.workflows:
            yield f"%{flow.id}", flow.description or "Start it.", partial(app.prefill_prompt, f"%{flow.id}")
        for key in KEYS:
            if key.scope == "app" and key.action not in ("command_palette", "cancel", "interrupt"):
                title = f"{key.description[0].upper()}{key.description[1:]}"
                yield title, key_for_action(key.id, app.keymap), partial(app.run_action, key.action)

    async def discover(self) -> Hits:
        for text, about, do in self.entries:
            yield DiscoveryHit(text, do, help=about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, about, do in self.entries:
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), do, help=about)
