"""The controller of the design documents: start a run, show it on a console, and ask its gates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nerve.api.models import GateResponse
from nerve.commander.controller import CommanderController
from nerve.core.events import STEP_END_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.step_names import step_name
from nerve.errors import NerveError
from nerve.ui.async_input import read_line_while, read_terminal_line
from nerve.ui.event_lines import (
    format_event_log_line,
    format_user_event,
    is_internal_call,
    is_user_event,
    summarize_result,
)
from nerve.ui.failure_text import format_any_error
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.client import Client

END_MESSAGES = {
    "completed": "[green]Workflow completed[/green]",
    "cancelled": "[yellow]Workflow cancelled[/yellow]",
}


class WorkflowController(CommanderController):
    """A controller that shows the focused run on a console instead of a screen."""

    read_line: Callable[[], Awaitable[str]] = staticmethod(read_terminal_line)
    """Reads a line from the terminal; "" at end of input."""

    def __init__(self, client: Client, renderer: Any = None, *, console: Any = None, **options: Any) -> None:
        """`renderer` or `console`: a WorkflowRenderer or a rich Console; None to show nothing.

        `options` are those of `CommanderController`.
        """
        super().__init__(client, **options)
        self._start_unannounced = False
        """Whether the start of the executed run still has to be printed."""
        self.renderer: Any = console if renderer is None else renderer
        if self.renderer is None:
            return
        if not hasattr(self.renderer, "show_started"):
            from nerve.commander.workflow_renderer import WorkflowRenderer

            self.renderer = WorkflowRenderer(self.renderer)
        self.state.on_event = self._handle_event

    @property
    def active_run_id(self) -> str | None:
        """Id of the focused run, until it ends."""
        card = self.state.focused_run
        return card.run_id if card is not None and not card.has_ended else None

    @property
    def waiting_for_gate(self) -> str | None:
        """Id of the oldest open gate of the focused run."""
        card = self.state.focused_run
        return card.gates[0].gate_id if card is not None and card.gates else None

    async def start(self, workflow_id: str, input: Any = None, params: dict[str, Any] | None = None) -> None:
        """Start a run and follow it in the background."""
        await self.open()
        try:
            await self.start_run(workflow_id, input, params)
        except (ValueError, NerveError) as error:
            self._show_refusal(format_any_error(error))

    async def send_gate_input(self, input: Any) -> None:
        """Answer the waiting gate; an invalid answer leaves it open."""
        gate = self.state.find_gate(self.waiting_for_gate)
        if gate is not None and (problem := await self.answer_gate(gate, input)):
            self._show_refusal(problem)

    async def pause(self) -> None:
        """Pause the focused run."""
        if (run_id := self.active_run_id) is not None:
            try:
                await self.perform_operation("pause", run=run_id)
            except NerveError as error:
                self._show_refusal(format_any_error(error))

    async def stop(self) -> None:
        """Stop the focused run."""
        await self.stop_run()

    async def execute(self, session_id: str, workflow_id: str, input: Any) -> None:
        """Start a run and ask its gates on the console until it ends."""
        await self.open()
        self._start_unannounced = True
        try:
            run_id = await self.start_run(workflow_id, input)
        except (ValueError, NerveError) as error:
            self._start_unannounced = False
            self._show_refusal(format_any_error(error))
            return
        self._announce_start(run_id)  # if no event announced it
        card = self.state.runs[run_id]
        while not card.has_ended:
            if (card.gates and not await self._ask_gate(card.gates[0])) or (
                not card.gates and not card.has_ended
            ):
                await self.wait_for_change()
        self._print(
            END_MESSAGES.get(card.state) or "[red]Workflow failed: [/red]" + escape_markup(str(card.error))
        )
        if card.state == "completed":
            self._print(f"Result: {escape_markup(str(card.result))}")

    def _announce_start(self, run_id: str) -> None:
        """Print the id of the executed run once, before its output."""
        if self._start_unannounced:
            self._start_unannounced = False
            self._print(f"[dim]Started workflow run: {run_id}[/dim]")

    async def _ask_gate(self, gate: GateResponse) -> bool:
        """Prompt for an answer until the gate is closed; return False at end of input."""
        while self.state.find_gate(gate.gate_id) is not None:
            self._print("> ", end="")
            line = await read_line_while(
                lambda: self.state.find_gate(gate.gate_id) is not None, self.read_line
            )
            if line is None:
                self._print("\nThe gate is closed: it was answered elsewhere or timed out.")
            elif not line:
                return False
            elif problem := await self.answer_gate(gate, line.strip()):
                self._show_refusal(problem)
        return True

    # -- rendering ---------------------------------------------------------------------------------------

    def _print(self, text: str, **options: Any) -> None:
        if self.renderer is not None:
            self.renderer.console.print(text, highlight=False, **options)

    def _show_refusal(self, text: str) -> None:
        if self.renderer is not None:
            self.renderer.show_error(text)
        else:
            self.state.add_block("error", text)

    def _handle_event(self, event: WorkflowEvent) -> None:
        """Pass an event of the focused run to the renderer."""
        if self.state.root_of(event.run_id) != self.state.focused_run_id:
            return
        data, renderer, is_focused = event.data, self.renderer, event.run_id == self.state.focused_run_id
        match event.event_type:
            case WorkflowEventType.STARTED if is_focused:
                self._announce_start(event.run_id)
                renderer.show_started({"workflow_id": event.workflow_id, **data})
            case type if type in STEP_START_EVENTS and is_visible_call(data):
                renderer.update_step(step_name(event.path), "running")
            case type if type in STEP_END_EVENTS and is_visible_call(data):
                status, detail = ("completed", "note") if data.get("success") else ("failed", "error")
                details = {"duration": data.get("duration_ms"), detail: summarize_result(event)}
                renderer.update_step(step_name(event.path), status, **details)
            case WorkflowEventType.LOOP_ITERATION:
                renderer.show_iteration(data.get("loop_id"), data.get("iteration", 0) + 1, data.get("max"))
            case WorkflowEventType.GATE_WAITING:
                renderer.show_gate_prompt(data)
            case (
                WorkflowEventType.GATE_ANSWERED
                | WorkflowEventType.GATE_TIMEOUT
                | WorkflowEventType.GATE_CANCELLED
            ):
                renderer.hide_gate_prompt()
            case WorkflowEventType.LOG if "thread" not in data:
                self._show_line(format_event_log_line(event))
            case _ if is_user_event(event):
                self._show_line(format_user_event(event))
            case WorkflowEventType.COMPLETED if is_focused:
                renderer.show_completed({**data, "duration_s": self._run_duration_s()})
            case WorkflowEventType.FAILED if is_focused:
                renderer.show_failed(str(data.get("error") or "failed"))
            case WorkflowEventType.CANCELLED if is_focused:
                renderer.show_cancelled(str(data.get("reason") or ""))

    def _show_line(self, line: str | None) -> None:
        """Show a line of a workflow or agent, if the renderer supports lines."""
        if line is not None and hasattr(self.renderer, "print_line"):
            self.renderer.print_line(sanitize_text(line))

    def _run_duration_s(self) -> float:
        card = self.state.focused_run
        if card is None or card.started_at is None or card.ended_at is None:
            return 0.0
        return (card.ended_at - card.started_at).total_seconds()


def is_visible_call(data: dict[str, Any]) -> bool:
    """Return whether a call is a step of the user, not one of the notation."""
    return not (data.get("control") or is_internal_call(data))


def escape_markup(text: str) -> str:
    """Sanitize and escape a text for rich markup."""
    from rich.markup import escape

    return escape(sanitize_text(text))
