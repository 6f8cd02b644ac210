"""The renderer: a run as it goes on, drawn by rich; in a pipe, a line for each thing that happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from nerve.commander.core.forms import lines
from nerve.commander.core.gates import preview_of
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import SYMBOLS

FRAMES = 4
"""Frames a second."""


@dataclass(slots=True)
class Step:
    """One line of the tree."""

    name: str
    node: Tree
    status: str = "pending"
    seconds: float | None = None
    rounds: str = ""

    def label(self) -> Text:
        symbol, style = SYMBOLS.get(self.status, ("●", "yellow"))
        text = Text(f"{symbol} ", style)
        text.append(f"{self.name}{self.rounds}", style)
        if self.seconds is not None:
            text.append(f" ({self.seconds:.1f}s)", "dim")
        return text


class WorkflowRenderer:
    """Draws one run at a time. `live` is what is being drawn, if anything is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.live: Live | None = None
        self.tree: Tree | None = None
        self.step_nodes: dict[str, Tree] = {}
        self._steps: dict[str, Step] = {}

    @property
    def lively(self) -> bool:
        """Whether what was drawn can be drawn again."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    # -- a run as it goes on -----------------------------------------------------------------------------

    def show_started(self, data: Mapping[str, Any]) -> None:
        """Draw the tree of a run that begins; `data` has `workflow_id`, and `steps` if they are known."""
        name = harmless(str(data["workflow_id"]))
        self.rest()
        self.tree = Tree(Text(f"🔄 {name}", "bold blue"), guide_style="dim")
        self.step_nodes, self._steps = {}, {}
        for step in data.get("steps") or []:
            self._step(str(step))
        if self.lively:
            self._draw()
        else:
            self.say(f"[workflow] {name} started")

    def update_step(
        self, step_id: str, status: str, duration: float | None = None, note: str = "", error: str = ""
    ) -> None:
        """`duration` is in milliseconds; `note` is what the step does now."""
        step = self._step(step_id)
        step.status = status
        step.seconds = duration / 1000 if duration is not None else None
        step.node.label = step.label()
        step.node.children.clear()
        if said := harmless(note or error).split("\n")[0]:
            step.node.add(Text(said, "red" if error else "dim"))
        if self.lively:
            self._draw()
        elif status != "pending":
            self.say(Text(f"[{step_id}] ") + step.label() + Text(f" {said}".rstrip()))

    def show_iteration(self, loop_id: str, iteration: int, max_iter: int | None = None) -> None:
        """Show that a loop begins its iteration number `iteration`, of at most `max_iter`."""
        of = f"/{max_iter}" if max_iter else ""
        step = self._step(loop_id)
        step.rounds = f" [{iteration}{of}]"
        step.node.label = step.label()
        self.say(Text("  ↻ ", "dim") + Text(f"{harmless(loop_id)} iteration {iteration}{of}"))

    def show_gate_prompt(self, data: Mapping[str, Any]) -> None:
        """What is asked; the tree waits meanwhile."""
        self.rest()
        self.console.print()
        self.console.print(gate_panel(data, numbered=bool(data.get("choices"))))
        self.console.print()

    def hide_gate_prompt(self) -> None:
        """The gate is settled: go on drawing."""
        if self.lively and self.tree is not None:
            self._draw()

    def show_completed(self, data: Mapping[str, Any]) -> None:
        """Show that the run has completed; `data` has `duration_s` or `duration_ms`."""
        self.rest()
        took = data.get("duration_s")
        took = data.get("duration_ms", 0) / 1000 if took is None else took
        self._end(f"✓ Completed in {took:.1f}s", "Workflow Complete", "green")

    def show_failed(self, error: str) -> None:
        """Show that the run has failed, and why."""
        self.rest()
        self._end(f"✗ {harmless(str(error))}", "Workflow Failed", "red")

    def show_cancelled(self, reason: str = "") -> None:
        """Show that the run was stopped, and why."""
        self.rest()
        self._end(f"✗ {harmless(reason) or 'stopped'}", "Workflow Cancelled", "yellow")

    def show_result(self, result: Any) -> None:
        """What a run gave: a text as Markdown."""
        from nerve.commander.prose import prose

        self.rest()
        self.say(Text("Result:", "bold"))
        self.console.print(prose(result) if isinstance(result, str) else Text(harmless(str(result))))

    def show_error(self, error: str) -> None:
        """Show why something was not done."""
        self.say(Text(f"Error: {harmless(str(error))}", "red"))

    def rest(self) -> None:
        """Let go of the terminal; what was drawn stays."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def say(self, text: str | Text) -> None:
        """A line, above what is drawn; in a pipe, whole."""
        line = Text(text) if isinstance(text, str) else text
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    # -- inside ------------------------------------------------------------------------------------------

    def _step(self, name: str) -> Step:
        if name not in self._steps:
            if self.tree is None:
                self.tree = Tree(Text("🔄 workflow", "bold blue"), guide_style="dim")
            step = Step(harmless(name), self.tree.add(""))
            step.node.label = step.label()
            self._steps[name], self.step_nodes[name] = step, step.node
        return self._steps[name]

    def _draw(self) -> None:
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=FRAMES, get_renderable=self._panel)
            self.live.start()

    def _panel(self) -> RenderableType:
        return Panel(self.tree or "", title="Workflow Progress", border_style="blue")

    def _end(self, text: str, title: str, style: str) -> None:
        if not self.lively:
            self.say(text)
            return
        self.console.print()
        self.console.print(Panel(Text(text), title=Text(title, f"bold {style}"), border_style=style))


def gate_panel(
    gate: Mapping[str, Any], name: str = "", numbered: bool = True, hint: str = "", more: Text | None = None
) -> Panel:
    """A question with what can be answered: choices by their numbers, options as they are, fields."""
    answers = list(gate.get("choices") or gate.get("options") or [])
    prompt, line, rest = harmless(str(gate.get("prompt") or "")).partition("\n")
    text = Text(prompt, "bold").append(line + rest, "none")
    if note := gate.get("note"):
        text.append(f"\n{harmless(str(note))}", "dim")
    if preview := preview_of(gate.get("input_preview")):
        text.append(f"\n\n{harmless(preview)}", "none")
    if more is not None:
        text = text.append("\n\n").append(more)
    if fields := lines(gate.get("form") or {}):
        text.append("\n\nFields:", "none")
    for field in fields:
        text.append(f"\n  {field}", "none")
    if answers:
        text.append("\n\nOptions:", "none")
    for number, answer in enumerate(answers, start=1):
        text.append(f"\n  {number if numbered else '•'} {harmless(str(answer))}", "none")
    if hint:
        text.append(f"\n\n{hint}", "dim")
    title = "⏸ Waiting for Input" + (f": {harmless(name)}" if name else "")
    return Panel(text, title=Text(title, "bold yellow"), border_style="yellow", expand=False)
