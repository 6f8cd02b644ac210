"""The renderer of the design documents: a live tree of a run; in a pipe, one line per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text
from rich.tree import Tree

from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.progress_tree import TreeRow
from nerve.ui.sanitize import sanitize_text
from nerve.ui.tree_panel import render_gate_panel, render_progress_panel, render_root

FRAMES_PER_SECOND = 4
"""Refresh rate of the live tree."""


class WorkflowRenderer:
    """Draws one run at a time; `live` is the active display, if any."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.live: Live | None = None
        self.tree: Tree | None = None
        self.step_nodes: dict[str, Tree] = {}
        self._rows: dict[str, TreeRow] = {}

    @property
    def is_interactive(self) -> bool:
        """Whether the terminal supports redrawing."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    # -- events ------------------------------------------------------------------------------------------

    def show_started(self, data: Mapping[str, Any]) -> None:
        """Draw the tree of a started run; `data` has `workflow_id`, and `steps` if they are known."""
        name = sanitize_text(str(data["workflow_id"]))
        self.stop()
        self.tree = create_tree(name)
        self.step_nodes, self._rows = {}, {}
        for step in data.get("steps") or []:
            self._change_row(str(step))
        if self.is_interactive:
            self._start_live()
        else:
            self.print_line(f"[workflow] {name} started")

    def update_step(
        self, step_id: str, status: str, duration: float | None = None, note: str = "", error: str = ""
    ) -> None:
        """Update a step; `duration` is in milliseconds, `note` describes the current activity."""
        symbol, style = STATE_SYMBOLS.get(status, ("●", "yellow"))
        time = f"({duration / 1000:.1f}s)" if duration is not None else ""
        label = self._change_row(step_id, symbol=symbol, style=style, time=time)
        self.step_nodes[step_id].children.clear()
        if note_line := sanitize_text(note or error).split("\n")[0]:
            self.step_nodes[step_id].add(Text(note_line, "red" if error else "dim"))
        if self.is_interactive:
            self._start_live()
        elif status != "pending":
            self.print_line(Text(f"[{step_id}] ") + label + Text(f" {note_line}".rstrip()))

    def show_iteration(self, loop_id: str, iteration: int, max_iter: int | None = None) -> None:
        """Show that a loop starts iteration `iteration` of at most `max_iter`."""
        limit = f"/{max_iter}" if max_iter else ""
        self._change_row(loop_id, note=f" [{iteration}{limit}]")
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

    def _change_row(self, name: str, **changes: Any) -> Text:
        """Change the row of a step, add it if it is new, and return its label."""
        self.tree = self.tree or create_tree("workflow")
        if name not in self._rows:
            symbol, style = STATE_SYMBOLS["pending"]
            self._rows[name] = TreeRow("", symbol, style, sanitize_text(name))
            self.step_nodes[name] = self.tree.add("")
        row = self._rows[name] = replace(self._rows[name], **changes)
        label = Text(row.label + row.note, row.style)
        if row.time:
            label.append(f" {row.time}", "dim")
        self.step_nodes[name].label = label
        return label

    def _start_live(self) -> None:
        if self.live is None:
            self.live = Live(
                console=self.console, refresh_per_second=FRAMES_PER_SECOND, get_renderable=self._render_panel
            )
            self.live.start()

    def _render_panel(self) -> RenderableType:
        return render_progress_panel(self.tree or "")

    def _show_end_panel(self, text: str, title: str, style: str) -> None:
        if not self.is_interactive:
            self.print_line(text)
            return
        self.console.print()
        self.console.print(Panel(Text(text), title=Text(title, f"bold {style}"), border_style=style))


def create_tree(workflow: str) -> Tree:
    return Tree(render_root(workflow, "running"), guide_style="dim")
