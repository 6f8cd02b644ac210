"""The renderer: a live tree of a run with rich; in a pipe, one line per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.gate_names import gate_preview
from nerve.ui.json_forms import form_field_lines
from nerve.ui.sanitize import sanitize_text

FRAMES_PER_SECOND = 4
"""Refresh rate of the live tree."""


@dataclass(slots=True)
class StepRow:
    """One step in the tree."""

    name: str
    node: Tree
    status: str = "pending"
    seconds: float | None = None
    rounds: str = ""

    def label(self) -> Text:
        symbol, style = STATE_SYMBOLS.get(self.status, ("●", "yellow"))
        text = Text(f"{symbol} ", style)
        text.append(f"{self.name}{self.rounds}", style)
        if self.seconds is not None:
            text.append(f" ({self.seconds:.1f}s)", "dim")
        return text


class WorkflowRenderer:
    """Draws one run at a time; `live` is the active display, if any."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.live: Live | None = None
        self.tree: Tree | None = None
        self.step_nodes: dict[str, Tree] = {}
        self._steps: dict[str, StepRow] = {}

    @property
    def is_interactive(self) -> bool:
        """Whether the terminal supports redrawing."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    # -- events ------------------------------------------------------------------------------------------

    def show_started(self, data: Mapping[str, Any]) -> None:
        """Draw the tree of a started run; `data` has `workflow_id`, and `steps` if they are known."""
        name = sanitize_text(str(data["workflow_id"]))
        self.stop()
        self.tree = Tree(Text(f"🔄 {name}", "bold blue"), guide_style="dim")
        self.step_nodes, self._steps = {}, {}
        for step in data.get("steps") or []:
            self._step_row(str(step))
        if self.is_interactive:
            self._start_live()
        else:
            self.print_line(f"[workflow] {name} started")

    def update_step(
        self, step_id: str, status: str, duration: float | None = None, note: str = "", error: str = ""
    ) -> None:
        """Update a step; `duration` is in milliseconds, `note` describes the current activity."""
        step = self._step_row(step_id)
        step.status = status
        step.seconds = duration / 1000 if duration is not None else None
        step.node.label = step.label()
        step.node.children.clear()
        if note_line := sanitize_text(note or error).split("\n")[0]:
            step.node.add(Text(note_line, "red" if error else "dim"))
        if self.is_interactive:
            self._start_live()
        elif status != "pending":
            self.print_line(Text(f"[{step_id}] ") + step.label() + Text(f" {note_line}".rstrip()))

    def show_iteration(self, loop_id: str, iteration: int, max_iter: int | None = None) -> None:
        """Show that a loop starts iteration `iteration` of at most `max_iter`."""
        limit = f"/{max_iter}" if max_iter else ""
        step = self._step_row(loop_id)
        step.rounds = f" [{iteration}{limit}]"
        step.node.label = step.label()
        self.print_line(Text("  ↻ ", "dim") + Text(f"{sanitize_text(loop_id)} iteration {iteration}{limit}"))

    def show_gate_prompt(self, data: Mapping[str, Any]) -> None:
        """Show a gate; the live tree stops until it is closed."""
        self.stop()
        self.console.print()
        self.console.print(render_gate_panel(data, numbered=bool(data.get("choices"))))
        self.console.print()

    def hide_gate_prompt(self) -> None:
        """Resume the live tree after a gate is closed."""
        if self.is_interactive and self.tree is not None:
            self._start_live()

    def show_completed(self, data: Mapping[str, Any]) -> None:
        """Show that the run completed; `data` has `duration_s` or `duration_ms`."""
        self.stop()
        duration_s = data.get("duration_s")
        duration_s = data.get("duration_ms", 0) / 1000 if duration_s is None else duration_s
        self._show_end_panel(f"✓ Completed in {duration_s:.1f}s", "Workflow Complete", "green")

    def show_failed(self, error: str) -> None:
        """Show that the run failed, and why."""
        self.stop()
        self._show_end_panel(f"✗ {sanitize_text(str(error))}", "Workflow Failed", "red")

    def show_cancelled(self, reason: str = "") -> None:
        """Show that the run was stopped, and why."""
        self.stop()
        self._show_end_panel(f"✗ {sanitize_text(reason) or 'stopped'}", "Workflow Cancelled", "yellow")

    def show_result(self, result: Any) -> None:
        """Show the result of a run; strings are rendered as Markdown."""
        from nerve.ui.markdown import render_markdown

        self.stop()
        self.print_line(Text("Result:", "bold"))
        self.console.print(
            render_markdown(result) if isinstance(result, str) else Text(sanitize_text(str(result)))
        )

    def show_error(self, error: str) -> None:
        """Show an error."""
        self.print_line(Text(f"Error: {sanitize_text(str(error))}", "red"))

    def stop(self) -> None:
        """Stop the live display; its last frame stays on the screen."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def print_line(self, text: str | Text) -> None:
        """Print a line above the live display; in a pipe, without wrapping."""
        line = Text(text) if isinstance(text, str) else text
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    # -- internals ---------------------------------------------------------------------------------------

    def _step_row(self, name: str) -> StepRow:
        if name not in self._steps:
            if self.tree is None:
                self.tree = Tree(Text("🔄 workflow", "bold blue"), guide_style="dim")
            step = StepRow(sanitize_text(name), self.tree.add(""))
            step.node.label = step.label()
            self._steps[name], self.step_nodes[name] = step, step.node
        return self._steps[name]

    def _start_live(self) -> None:
        if self.live is None:
            self.live = Live(
                console=self.console, refresh_per_second=FRAMES_PER_SECOND, get_renderable=self._render_panel
            )
            self.live.start()

    def _render_panel(self) -> RenderableType:
        return Panel(self.tree or "", title="Workflow Progress", border_style="blue")

    def _show_end_panel(self, text: str, title: str, style: str) -> None:
        if not self.is_interactive:
            self.print_line(text)
            return
        self.console.print()
        self.console.print(Panel(Text(text), title=Text(title, f"bold {style}"), border_style=style))


def render_gate_panel(
    gate: Mapping[str, Any], name: str = "", numbered: bool = True, hint: str = "", more: Text | None = None
) -> Panel:
    """Render a gate with its question, choices or options, and form fields."""
    answers = list(gate.get("choices") or gate.get("options") or [])
    prompt, line, rest = sanitize_text(str(gate.get("prompt") or "")).partition("\n")
    text = Text(prompt, "bold").append(line + rest, "none")
    if note := gate.get("note"):
        text.append(f"\n{sanitize_text(str(note))}", "dim")
    if preview := gate_preview(gate.get("input_preview")):
        text.append(f"\n\n{sanitize_text(preview)}", "none")
    if more is not None:
        text = text.append("\n\n").append(more)
    if fields := form_field_lines(gate.get("form") or {}):
        text.append("\n\nFields:", "none")
    for field in fields:
        text.append(f"\n  {field}", "none")
    if answers:
        text.append("\n\nOptions:", "none")
    for number, answer in enumerate(answers, start=1):
        text.append(f"\n  {number if numbered else '•'} {sanitize_text(str(answer))}", "none")
    if hint:
        text.append(f"\n\n{hint}", "dim")
    title = "⏸ Waiting for Input" + (f": {sanitize_text(name)}" if name else "")
    return Panel(text, title=Text(title, "bold yellow"), border_style="yellow", expand=False)
