"""The command palette: fuzzy search over commands, workflows and keys."""

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
    """Provides the commands, the workflows and the key actions."""

    @property
    def entries(self) -> Iterator[tuple[str, str, Any]]:
        app: CommanderApp = self.app  # type: ignore[assignment]
        for command in COMMANDS:
            has_required = any(not argument.optional for argument in command.arguments)
            run = app.prefill_prompt if has_required else app.submit_line
            yield f"/{command.name}", command.summary, partial(run, f"/{command.name}")
        for workflow in app.state.workflows:
            name = f"%{workflow.id}"
            yield name, workflow.description or "Start the workflow.", partial(app.prefill_prompt, name)
        for key in KEYS:
            if key.scope == "app" and key.action not in ("command_palette", "cancel", "interrupt"):
                title = f"{key.description[0].upper()}{key.description[1:]}"
                yield title, key_for_action(key.id, app.keymap), partial(app.run_action, key.action)

    async def discover(self) -> Hits:
        for text, description, run in self.entries:
            yield DiscoveryHit(text, run, help=description)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, description, run in self.entries:
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), run, help=description)
