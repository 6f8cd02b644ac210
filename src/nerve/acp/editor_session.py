"""A session of an editor: its prompts start runs or answer gates, and the runs are shown until they rest."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal

import acp
from nerve.acp.gate_questions import permission_options, question_call, question_text, selected_choice
from nerve.acp.run_updates import RunUpdates
from nerve.api.errors import ApiError
from nerve.api.models import GateResponse, RunResponse, WorkflowResponse
from nerve.background_tasks import cancel_tasks
from nerve.client import Client
from nerve.core.events import STEP_END_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass
from nerve.text import join_problem_and_fix
from nerve.ui.event_lines import changed_files, to_workflow_event
from nerve.ui.failure_text import failure_text
from nerve.ui.formatting import format_value
from nerve.ui.gate_names import answer_command

StopReason = Literal["end_turn", "cancelled"]

MAX_RESULT_CHARS = 20_000
MAX_LOADED_RUNS = 100
COMMANDS = {
    "follow": "Show the open runs of this session again, and ask what they wait for.",
    "answer": "Answer an open gate: /answer GATE TEXT",
    "stop": "Stop the open runs of this session.",
}
"""The commands besides those of the workflows."""
CLOSED_GATE_EVENTS = (
    WorkflowEventType.GATE_ANSWERED,
    WorkflowEventType.GATE_TIMEOUT,
    WorkflowEventType.GATE_CANCELLED,
)


@dataclass(frozen=True, slots=True)
class QuestionDismissed:
    """The user has closed a question without an answer."""

    gate: GateResponse


@dataclass(frozen=True, slots=True)
class AnswerRefused:
    """An answer was not accepted."""

    error: Exception


class EditorSession:
    """A conversation with an editor. Its id is the conversation of its runs, so a restart loses nothing."""

    def __init__(self, session_id: str, client: Client, connection: Any) -> None:
        self.session_id, self._client, self._connection = session_id, client, connection
        self._turn: asyncio.Task[StopReason] | None = None
        self._followed_run = ""
        self._is_cancelled = False

    async def handle_prompt(self, text: str) -> StopReason:
        """Return when what the prompt has started rests; errors are messages for the user."""
        self._is_cancelled, self._followed_run = False, ""
        self._turn = asyncio.create_task(self._respond(text.strip()))
        try:
            return await self._turn
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            return "cancelled"
        except NerveError as error:
            await self._say(format_error(error))
            return "end_turn"
        finally:
            self._turn.cancel()
            self._turn = None

    async def cancel(self) -> None:
        """Stop the run that is shown, or what decides which run to start."""
        self._is_cancelled = True
        if self._followed_run:
            with contextlib.suppress(ApiError):  # it has ended
                await self._client.stop(run=self._followed_run, reason="cancelled in the editor")
        elif self._turn is not None:
            self._turn.cancel()

    async def send_commands(self) -> None:
        """Tell the editor the workflows of the project, which are its commands."""
        workflows = (await self._client.workflows()).workflows
        commands = [available_command(each.id, describe_command(each)) for each in workflows]
        commands += [available_command(name, text) for name, text in COMMANDS.items()]
        await self._update({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    async def replay(self) -> None:
        """Send what has happened in the session, and what waits in it."""
        page = await self._client.runs(conversation=self.session_id, limit=MAX_LOADED_RUNS)
        roots = [run for run in reversed(page.runs) if run.parent is None]
        for run in roots:
            found = await self._client.run(run=run.run_id)
            prompt = f"/{run.workflow} {format_value(found.input)}" if found.input else f"/{run.workflow}"
            await self._send(acp.update_user_message_text(prompt))
            updates = RunUpdates(run.run_id)
            async for response in self._client.history(run.run_id):
                await self._show(updates, to_workflow_event(response))
            if found.state in FINAL_STATE_VALUES:
                await self._say(describe_outcome(found))
        for run in roots:
            if run.state not in FINAL_STATE_VALUES:
                hint = "/follow shows it, and asks what it waits for."
                await self._say(f"{run.workflow} is {run.state}. {hint}")

    # -- prompts ---------------------------------------------------------------------------------------

    async def _respond(self, text: str) -> StopReason:
        if text.startswith("/"):
            name, _, rest = text[1:].partition(" ")
            return await self._execute_command(name, rest.strip())
        if (gate := await self._find_answered_gate(text)) is not None:
            return await self._answer(gate, text)
        reply = await self._client.route(text=text, conversation=self.session_id, start=True)
        if reply.run is None:
            await self._say(reply.text or reply.reason or "No workflow fits.")
            return "end_turn"
        return await self._follow(reply.run.run_id, 0)

    async def _execute_command(self, name: str, rest: str) -> StopReason:
        match name:
            case "follow":
                for run in (runs := await self._open_runs()):
                    await self._follow(run.run_id, (await self._client.run(run=run.run_id)).last_seq)
                if not runs:
                    await self._say("No run of this session is open.")
                return "cancelled" if self._is_cancelled else "end_turn"
            case "stop":
                for run in (runs := await self._open_runs()):
                    await self._client.stop(run=run.run_id, reason="stopped in the editor")
                await self._say(f"Stopped: {', '.join(run.workflow for run in runs) or 'nothing was open'}.")
                return "end_turn"
            case "answer":
                return await self._answer_named(*rest.split(maxsplit=1))
        workflows = {each.id for each in (await self._client.workflows()).workflows}
        if name not in workflows:
            known = ", ".join(f"/{each}" for each in sorted({*workflows, *COMMANDS}))
            raise ApiError("not_found", f"Unknown command '/{name[:80]}'", f"Known: {known}")
        given = {"input": rest} if rest else {}
        run = await self._client.start(workflow=name, conversation=self.session_id, **given)
        return await self._follow(run.run_id, 0)

    async def _open_runs(self) -> list[RunResponse]:
        runs = (await self._client.runs(conversation=self.session_id, limit=MAX_LOADED_RUNS)).runs
        return [run for run in runs if run.parent is None and run.state not in FINAL_STATE_VALUES]

    async def _find_answered_gate(self, text: str) -> GateResponse | None:
        """Return the only open gate of the session, if a message can be its answer."""
        gates = [gate for run in await self._open_runs() for gate in run.gates]
        if len(gates) != 1 or (gates[0].choices and matching_choice(gates[0], text) is None):
            return None
        return gates[0]

    async def _answer_named(self, gate_name: str = "", text: str = "") -> StopReason:
        gates = [gate for run in await self._open_runs() for gate in run.gates]
        found = [gate for gate in gates if gate_name in (gate.gate_id, gate.node_id)]
        if not (text and len(found) == 1):
            known = ", ".join(gate.gate_id for gate in gates) or "none"
            raise ApiError("bad_request", "Usage: /answer GATE TEXT", f"Open gates of this session: {known}.")
        return await self._answer(found[0], text)

    async def _answer(self, gate: GateResponse, text: str) -> StopReason:
        runs = await self._open_runs()
        [run] = [run for run in runs if any(each.gate_id == gate.gate_id for each in run.gates)]
        last_seq = (await self._client.run(run=run.run_id)).last_seq
        await self._client.answer(
            run=gate.run_id, gate=gate.gate_id, answer=matching_choice(gate, text) or text, hash=gate.hash
        )
        return await self._follow(run.run_id, last_seq)

    # -- runs ------------------------------------------------------------------------------------------

    async def _follow(self, run_id: str, after: int) -> StopReason:
        """Show a run from an event on until it ends, needs an answer as text, or is paused or held."""
        self._followed_run = run_id
        happenings: asyncio.Queue[Any] = asyncio.Queue()
        questions: dict[str, asyncio.Task[None]] = {}
        watcher = asyncio.create_task(self._watch(run_id, after, happenings))
        updates = RunUpdates(run_id)
        try:
            run = await self._client.run(run=run_id, steps=False)
            if await self._ask_gates(run, questions, happenings):
                return "end_turn"
            while (happening := await happenings.get()) is not None:
                match happening:
                    case WorkflowEvent() as event:
                        is_next = event.run_id != self._followed_run  # of a chain
                        if is_next and event.event_type == WorkflowEventType.STARTED:
                            self._followed_run, updates = event.run_id, RunUpdates(event.run_id)
                        await self._show(updates, event)
                        if (gate_id := str(event.data.get("gate_id"))) in questions and (
                            event.event_type in CLOSED_GATE_EVENTS
                        ):
                            questions.pop(gate_id).cancel()
                        if await self._needs_user(event, questions, happenings):
                            return "end_turn"
                    case QuestionDismissed(gate):
                        if self._is_cancelled:
                            continue
                        await self._say(f"Not answered. Later: /follow, or {answer_command(gate)}")
                        return "end_turn"
                    case AnswerRefused(error):
                        await self._say(format_error(error))
                    case Exception() as error:
                        raise error
            await self._say(describe_outcome(await self._client.run(run=self._followed_run)))
            return "cancelled" if self._is_cancelled else "end_turn"
        finally:
            tasks = [watcher, *questions.values()]
            await cancel_tasks(*tasks)
            self._followed_run = ""

    async def _watch(self, run_id: str, after: int, happenings: asyncio.Queue[Any]) -> None:
        """Put the events of a run into a queue, and None after its end."""
        try:
            async with contextlib.aclosing(self._client.watch(run_id, after)) as events:
                async for event in events:
                    happenings.put_nowait(to_workflow_event(event))
            happenings.put_nowait(None)
        except NerveError as error:
            happenings.put_nowait(error)

    async def _needs_user(
        self, event: WorkflowEvent, questions: dict[str, asyncio.Task[None]], happenings: asyncio.Queue[Any]
    ) -> bool:
        """Ask the gates that an event opens; return whether the user has to send a message."""
        if event.event_type == WorkflowEventType.GATE_WAITING:
            run = await self._client.run(run=self._followed_run, steps=False)
            return await self._ask_gates(run, questions, happenings)
        if event.event_type in (WorkflowEventType.HELD, WorkflowEventType.PAUSED):
            run = await self._client.run(run=self._followed_run, steps=False)
            if run.state in ("held", "paused"):
                reason = f" {run.held['message']}" if run.held else ""
                await self._say(f"The run is {run.state}.{reason} Continue it: nerve resume {run.run_id}")
                return True
        return False

    async def _ask_gates(
        self, run: RunResponse, questions: dict[str, asyncio.Task[None]], happenings: asyncio.Queue[Any]
    ) -> bool:
        """Ask each open gate with choices once; return whether one needs a message of the user."""
        for gate in run.gates:
            if not gate.choices:
                await self._say(question_text(gate))
                return True
            if gate.gate_id not in questions:
                questions[gate.gate_id] = asyncio.create_task(self._ask_gate(gate, happenings))
        return False

    async def _ask_gate(self, gate: GateResponse, happenings: asyncio.Queue[Any]) -> None:
        try:
            response = await self._connection.request_permission(
                session_id=self.session_id, tool_call=question_call(gate), options=permission_options(gate)
            )
            choice = selected_choice(response)
            if choice is None:
                happenings.put_nowait(QuestionDismissed(gate))
            else:
                await self._client.answer(run=gate.run_id, gate=gate.gate_id, answer=choice, hash=gate.hash)
        except NerveError as error:
            happenings.put_nowait(AnswerRefused(error))
        except acp.RequestError:  # the editor cannot ask
            happenings.put_nowait(QuestionDismissed(gate))

    async def _show(self, updates: RunUpdates, event: WorkflowEvent) -> None:
        for update in updates.of(event):
            await self._send(update)
        if event.event_type in STEP_END_EVENTS and changed_files(event):
            page = await self._client.changes(run=event.run_id, path=event.path)
            for step in page.steps:
                if step.path == event.path and (update := updates.changes(step)) is not None:
                    await self._send(update)

    # -- updates ---------------------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        await self._send(acp.update_agent_message_text(f"{text}\n\n"))

    async def _update(self, fields: dict[str, Any]) -> None:
        await self._send(acp.schema.AvailableCommandsUpdate.model_validate(fields))

    async def _send(self, update: Any) -> None:
        await self._connection.session_update(session_id=self.session_id, update=update)


def available_command(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "input": {"hint": "input"}}


def describe_command(workflow: WorkflowResponse) -> str:
    return " ".join(workflow.description.split())[:500] or f"Run the workflow {workflow.id}."


def matching_choice(gate: GateResponse, text: str) -> str | None:
    """Return the choice that a message names, without regard to case."""
    words = text.strip().casefold()
    return next((choice for choice in gate.choices or () if choice.casefold() == words), None)


def describe_outcome(run: RunResponse) -> str:
    """Return the outcome of a run as a message."""
    if run.state == "completed":
        text = format_value(run.result) if run.result is not None else ""
        return f"✓ {run.workflow} has completed.\n\n{text[:MAX_RESULT_CHARS]}".rstrip()
    reason = failure_text(run.error, run.error_type, run.location) if run.error else run.state
    return f"✗ {run.workflow}: {reason}"


def format_error(error: Exception) -> str:
    fix = getattr(error, "fix", "")
    return join_problem_and_fix(str(error), fix) if fix else str(error)
