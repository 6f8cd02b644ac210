"""The controller at a plain console, as the seeds use it: a run started, shown, and its gates asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from nerve.api.models import GateTold
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import gist, internal, is_own, logged, own
from nerve.commander.core.waits import ENDS, STARTS
from nerve.commander.reading import typed_line
from nerve.commander.sentences import why
from nerve.core.event import WorkflowEvent
from nerve.core.steps import step_name
from nerve.errors import NerveError

if TYPE_CHECKING:
    from nerve.client import Client
    from nerve.commander.core.desk import Desk

ENDED = {"completed": "[green]Workflow completed[/green]", "cancelled": "[yellow]Workflow cancelled[/yellow]"}


class AtConsole:
    """`start`, `execute` and the rest of the seeds' names, over what the controller has."""

    client: Client
    desk: Desk
    renderer: Any
    read_line: Callable[[], Awaitable[str]] = staticmethod(typed_line)
    """Reads a line that is typed; "" at the end."""
    _says_start = False
    """Whether the start of the run that is executed has yet to be printed."""

    async def open(self) -> None:
        raise NotImplementedError

    async def begin(self, name: str, value: Any, params: dict[str, Any] | None = None) -> str:
        raise NotImplementedError

    async def answer(self, gate: GateTold, text: Any, reason: str = "") -> str:
        raise NotImplementedError

    async def interrupt(self, run_id: str | None = None) -> None:
        raise NotImplementedError

    async def do(self, operation: str, **given: Any) -> Any:
        raise NotImplementedError

    async def news(self) -> None:
        raise NotImplementedError

    # -- what the seeds call it --------------------------------------------------------------------------

    @property
    def active_run_id(self) -> str | None:
        """The run in focus, as long as it has not ended."""
        card = self.desk.focused
        return card.run_id if card is not None and not card.ended else None

    @property
    def waiting_for_gate(self) -> str | None:
        """The id of the oldest open gate of the run in focus."""
        card = self.desk.focused
        return card.gates[0].gate_id if card is not None and card.gates else None

    async def start(self, workflow_id: str, input: Any = None, params: dict[str, Any] | None = None) -> None:
        """Start a run and follow it in the background."""
        await self.open()
        try:
            await self.begin(workflow_id, input, params)
        except (ValueError, NerveError) as error:
            self._refuse(why(error))

    async def send_gate_input(self, input: Any) -> None:
        """Answer the gate that is waited for; a wrong answer leaves it open."""
        gate = self.desk.gate(self.waiting_for_gate)
        if gate is not None and (refused := await self.answer(gate, input)):
            self._refuse(refused)

    async def pause(self) -> None:
        """Let nothing new begin in the run in focus."""
        if (run_id := self.active_run_id) is not None:
            try:
                await self.do("pause", run=run_id)
            except NerveError as error:
                self._refuse(why(error))

    async def stop(self) -> None:
        """End the run in focus."""
        await self.interrupt()

    async def execute(self, session_id: str, workflow_id: str, input: Any) -> None:
        """Start a run, and ask its gates at the console until it has ended."""
        await self.open()
        self._says_start = True
        try:
            run_id = await self.begin(workflow_id, input)
        except (ValueError, NerveError) as error:
            self._says_start = False
            self._refuse(why(error))
            return
        self._say_start(run_id)  # where no event has said it
        card = self.desk.runs[run_id]
        while not card.ended:
            if (card.gates and not await self._ask(card.gates[0])) or (not card.gates and not card.ended):
                await self.news()
        self._print(ENDED.get(card.state) or "[red]Workflow failed: [/red]" + escaped(str(card.error)))
        if card.state == "completed":
            self._print(f"Result: {escaped(str(card.result))}")

    def _say_start(self, run_id: str) -> None:
        """Print the id of the run that is executed, once and before anything else of it."""
        if self._says_start:
            self._says_start = False
            self._print(f"[dim]Started workflow run: {run_id}[/dim]")

    async def _ask(self, gate: GateTold) -> bool:
        """Ask a gate, which is shown, until it is settled here or elsewhere; False if nobody can be asked."""
        while self.desk.gate(gate.gate_id) is not None:
            self._print("> ", end="")
            line = await self._line(gate)
            if line is None:
                self._print("\nThe gate is settled: somebody answered it, or its time is up.")
            elif not line:
                return False
            elif refused := await self.answer(gate, line.strip()):
                self._refuse(refused)
        return True

    async def _line(self, gate: GateTold) -> str | None:
        """What is typed; None if the gate is settled before."""
        typing = asyncio.ensure_future(self.read_line())
        try:
            while not typing.done():
                news = asyncio.ensure_future(self.news())
                await asyncio.wait([typing, news], return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if not typing.done() and self.desk.gate(gate.gate_id) is None:
                    return None
            return typing.result()
        finally:
            typing.cancel()

    # -- where it is shown -------------------------------------------------------------------------------

    def show_with(self, renderer: Any) -> None:
        """Show the run in focus with a renderer, or at a console."""
        from nerve.commander.renderer import WorkflowRenderer

        self.renderer = renderer if hasattr(renderer, "show_started") else WorkflowRenderer(renderer)
        self.desk.on_event = self._handle_event

    def _print(self, text: str, **options: Any) -> None:
        if self.renderer is not None:
            self.renderer.console.print(text, highlight=False, **options)

    def _refuse(self, text: str) -> None:
        if self.renderer is not None:
            self.renderer.show_error(text)
        else:
            self.desk.say("error", text)

    def _handle_event(self, event: WorkflowEvent) -> None:
        """Tell the renderer of an event of the run in focus."""
        if self.desk.root_of(event.run_id) != self.desk.focus:
            return
        data, shows, mine = event.data, self.renderer, event.run_id == self.desk.focus
        match event.event_type:
            case "workflow_started" if mine:
                self._say_start(event.run_id)
                shows.show_started({"workflow_id": event.workflow_id, **data})
            case type if type in (*STARTS, *ENDS) and not (data.get("control") or internal(data)):
                status = "running" if type in STARTS else "completed" if data.get("success") else "failed"
                said = {} if type in STARTS else {"error" if status == "failed" else "note": gist(event)}
                shows.update_step(step_name(event), status, duration=data.get("duration_ms"), **said)
            case "loop_iteration":
                shows.show_iteration(data.get("loop_id"), data.get("iteration", 0) + 1, data.get("max"))
            case "gate_waiting":
                shows.show_gate_prompt(data)
            case "gate_answered" | "gate_timeout" | "gate_cancelled":
                shows.hide_gate_prompt()
            case "log" if "thread" not in data:
                self._show_line(logged(event))
            case _ if is_own(event):
                self._show_line(own(event))
            case "workflow_completed" if mine:
                shows.show_completed({**data, "duration_s": self._took()})
            case "workflow_failed" if mine:
                shows.show_failed(str(data.get("error") or "failed"))
            case "workflow_cancelled" if mine:
                shows.show_cancelled(str(data.get("reason") or ""))

    def _show_line(self, line: str | None) -> None:
        """Show what a workflow or an agent says, with a renderer that shows lines."""
        if line is not None and hasattr(self.renderer, "say"):
            self.renderer.say(harmless(line))

    def _took(self) -> float:
        card = self.desk.focused
        if card is None or card.started_at is None or card.ended_at is None:
            return 0.0
        return (card.ended_at - card.started_at).total_seconds()


def escaped(text: str) -> str:
    """A text that rich takes as it is."""
    from rich.markup import escape

    return escape(harmless(text))
