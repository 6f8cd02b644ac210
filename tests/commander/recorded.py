"""Records the README session: input typed into the full screen with a real engine, as SVG."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable
from pathlib import Path

from commander.tui.screens import without_waiting
from nerve.api import Api
from nerve.client import Client
from nerve.commander import WorkflowController
from nerve.commander.tui.app import CommanderApp
from nerve.session import Session
from nerve.testing import ScriptedProvider

SIZE = (100, 34)
THEME = "textual-dark"
"""A fixed theme, because an image has no terminal colours."""
PATIENCE = 60.0
WORKFLOWS = {
    "notes": """name: notes
description: Writes release notes
body: {kind: prompt, id: write, text: "What is new in {{ input }}?", provider: writer}
""",
    "repair": """name: repair
description: Fixes failing tests
body:
  kind: sequence
  steps:
    - {kind: bash, id: test, command: "echo 1 failed, 127 passed"}
    - {kind: prompt, id: fix, text: "Fix {{ input }}.", provider: coder}
    - {kind: bash, id: again, command: "echo 128 passed"}
""",
    "release": """name: release
description: Builds, asks, and publishes
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo built slug-2.1.tar.gz"}
    - {kind: gate, id: sure, prompt: "Publish **slug 2.1**?", choices: [publish, not yet], reject: [not yet]}
    - {kind: bash, id: publish, command: "echo published"}
""",
}
NOTES = "# 2.1\n\n- dashes in a row become one\n- `--quiet` is quiet"
EDITS = [
    {"tool": "Read", "input": {"file_path": "slug.py"}},
    {
        "tool": "Edit",
        "input": {
            "file_path": "slug.py",
            "old_string": 'return text.replace(" ", "-")',
            "new_string": 'return re.sub(r"\\W+", "-", text)',
        },
    },
    "Every run of other characters is one dash now.",
    {"delay": 3600.0},
]


def session_in(folder: Path) -> Session:
    workflows = folder / ".nerve" / "workflows"
    workflows.mkdir(parents=True)
    for name, text in WORKFLOWS.items():
        (workflows / f"{name}.yaml").write_text(text)
    session = Session(store=folder / ".nerve" / "nerve.db", project=folder)
    session.providers |= {"writer": ScriptedProvider([NOTES]), "coder": ScriptedProvider([EDITS])}
    return session


async def recorded(folder: Path) -> str:
    """Return the recorded image as SVG."""
    async with session_in(folder) as session:
        api = Api(session)
        await api.perform("reload", {})
        app = CommanderApp(WorkflowController(Client(api)))
        app.state.project = "~/slug"
        app.theme = THEME
        async with app.run_test(size=SIZE) as pilot:

            async def until(seen: Callable[[], object]) -> None:
                async with asyncio.timeout(PATIENCE):
                    while not seen() or app.stream.stale_blocks or app.state.changes:
                        await pilot.pause(0.05)
                        app.draw_changes()

            async def enter(text: str) -> None:
                with without_waiting(app):
                    await pilot.press(*text, "enter")

            def ended(workflow: str) -> bool:
                return any(card.workflow == workflow and card.has_ended for card in app.state.runs.values())

            await until(lambda: app.state.is_connected)
            await enter("%notes 2.1")
            await until(lambda: ended("notes"))
            await enter("%repair the slugs")
            await until(lambda: any("one dash" in p.text for block in app.state.blocks for p in block.parts))
            await enter("%release ::notes")
            await until(lambda: app.state.gates)
            await pilot.press("f3")
            await until(lambda: app.gate_card.display)
            svg = app.export_screenshot(title="nerve")
            await app.controller.close()
            for run in session.list_workflow_runs():
                if run.workflow_id == "repair":
                    await session.get_workflow_run(run.run_id).stop("the image is recorded")
    return slim(svg)


def slim(svg: str) -> str:
    """Remove random ids and external fonts."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    return re.sub(r"\n\s*@font-face \{.*?\}|<!--.*?-->", "", svg, flags=re.DOTALL)


def lines_of(svg: str) -> list[str]:
    """Return the text lines of an image without ids, durations and gap widths."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text)))
    lines = ("".join(text for _, text in sorted(row)) for _, row in sorted(rows.items()))
    return [steady(line) for line in lines if line.strip()]


def steady(line: str) -> str:
    line = re.sub(r"\b[0-9a-f]{6}\b", "ID", line)
    line = re.sub(r"\d+(\.\d)?s\b", "TIME", line)
    return re.sub(r"[\s─▁▂▃▄▅▆▇█]+", " ", line).strip()
