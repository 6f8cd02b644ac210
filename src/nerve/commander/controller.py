"""The controller: calls the API, updates the state, and runs the user's input."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nerve.api import OPERATIONS, ApiError
from nerve.api.models import GateResponse, RouteResponse, RunResponse, WorkflowResponse
from nerve.background_tasks import cancel_tasks
from nerve.commander.core.input_parser import InputType, ParsedInput, format_input, parse_input
from nerve.commander.core.name_resolution import CommanderInputError, find_run_by_name, resolve_startable_name
from nerve.commander.core.references import resolve_input, resolve_references
from nerve.commander.core.run_cards import TARGET_PREFIXES, InputTarget
from nerve.commander.core.state import CommanderState
from nerve.commander.event_sync import EventSync
from nerve.errors import NerveError
from nerve.ui.failure_text import api_error_sentence, format_any_error
from nerve.ui.formatting import format_result
from nerve.ui.gate_names import gate_display_name, resolve_typed_choice
from nerve.ui.typed_options import parse_workflow_options

if TYPE_CHECKING:
    from nerve.client import Client
    from nerve.commander.core.completion import Completion

RETRY_TIMEOUT_S = 30.0
"""Seconds to retry an operation while the server is unavailable."""
RETRY_INTERVAL_S = 0.1
MAX_REPEATED_CHARS = 60
"""Maximum characters of the user's text that a suggestion repeats."""
ROUTER_TARGET = InputTarget()
OFFLINE_COMMANDS = ("help", "quit", "theme", "tui", "export")
"""Commands that work without a server; the others wait for it."""
START_INPUT_TYPES = (InputType.NODE, InputType.GRAPH, InputType.WORKFLOW)
STOP_REASON = "stopped in the Commander"
CURRENT_GATE = "\0now"
"""Sentinel for the gate that is open when the input is processed."""


class CommanderController:
    """The shared logic of both screens. It never waits for a run, and reports errors as blocks."""

    def __init__(
        self,
        client: Client,
        *,
        state: CommanderState | None = None,
        restart_server: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`restart_server` restarts the server of the client; without it, the controller waits for it."""
        self.client = client
        self.state = state or CommanderState()
        self.screen_requests: dict[str, str] = {}
        """Requests of commands to the screen: `quit`, `theme`, `tui`; announced by the flag `wants`."""
        self.file_completer: Callable[[str], Iterable[str]] | None = None
        self.themes: Sequence[str] = ()
        """Completions for files and themes; a screen may set them."""
        self.conversation_id = f"commander-{secrets.token_hex(4)}"
        self._restart_server = restart_server
        self.event_sync = EventSync(client, self.state, self._on_update, restart_server)
        self._last_turn: tuple[InputTarget, str | None] | None = None
        """Target of the last plain text, and the run that it started."""
        self._queued_values: list[tuple[str, Any]] = []
        """Resolved queued texts: references are resolved when the user submits, not when the text is sent."""
        self._send_task: asyncio.Task[None] | None = None
        self._is_open = False
        self._change_event = asyncio.Event()

    async def start_server(self) -> None:
        """Start the server before a screen opens; `open` reports why a server cannot start."""
        if self._restart_server is not None:
            with contextlib.suppress(NerveError):
                await self._restart_server()

    async def open(self) -> None:
        """Load workflows, runs and gates, and subscribe to events."""
        if not self._is_open:
            self._is_open = True
            await self.event_sync.open()

    async def close(self) -> None:
        """Stop synchronization; runs continue."""
        if self._send_task is not None:
            await cancel_tasks(self._send_task)
        await self.event_sync.close()
        self._is_open = False

    # -- input -------------------------------------------------------------------------------------------

    async def submit(self, text: str, open_gate_id: str | None = CURRENT_GATE) -> None:
        """Run the user's input; errors become blocks.

        `open_gate_id` is the id of the gate that was open when the line was entered, or None for no gate;
        the default is the gate that is open now. `/`, `%`, `@` and `#` take precedence over a gate.
        """
        if not text.strip():
            return
        parsed = parse_input(text)
        gate_id = self.state.open_gate_id if open_gate_id is CURRENT_GATE else open_gate_id
        try:
            if parsed.type is InputType.COMMAND:
                self.state.add_block("input", text)
                await self._run_command(parsed)
            elif parsed.type in START_INPUT_TYPES:
                self.state.add_block("input", text)
                await self._start_named(parsed, self.state.find_gate(gate_id))
            elif gate_id is not None:
                await self._answer_open_gate(gate_id, parsed, text)
            elif parsed.type is InputType.DIRECT:
                await self._submit_plain_text(text)
            else:
                self.state.add_block("input", text)
                await self._run_prefixed(parsed)
        except Exception as error:
            self.state.add_block("error", format_any_error(error))

    async def _run_command(self, parsed: ParsedInput) -> None:
        from nerve.commander.command_handlers import COMMAND_HANDLERS
        from nerve.commander.core.command_table import find_command, unknown_command_message

        if parsed.problem:
            raise CommanderInputError(parsed.problem)
        command = find_command(parsed.target)
        if command is None or command.name not in COMMAND_HANDLERS:
            raise CommanderInputError(unknown_command_message(parsed.target))
        if command.name not in OFFLINE_COMMANDS:
            await self.event_sync.wait_loaded()
        await COMMAND_HANDLERS[command.name](self, parsed.text.strip())

    async def _run_prefixed(self, parsed: ParsedInput) -> None:
        if parsed.problem:
            raise CommanderInputError(parsed.problem)
        parsed, value = resolve_input(parsed, self.state.blocks)
        if parsed.type is InputType.REFERENCE:
            self.state.add_block("text", parsed.text, value=value)
            return
        await self.event_sync.wait_loaded()
        kind = parsed.type.value
        name, workflow = await self.resolve_target(kind, parsed.target)
        has_input = workflow is None or value != ""
        params = {}
        if workflow is not None:
            params = parse_workflow_options(parsed.options, workflow, has_input=has_input)
        await self.start_run(name, value if has_input else None, params)

    async def _start_named(self, parsed: ParsedInput, gate: GateResponse | None) -> None:
        """Start the named workflow; with an open gate, an unknown name explains how to answer."""
        try:
            await self._run_prefixed(parsed)
        except CommanderInputError as error:
            if gate is None:
                raise
            line = format_input(parsed)
            raise CommanderInputError(
                f"{error} To answer '{gate_display_name(gate)}' with this line, write \\{line}"
            ) from None

    async def _answer_open_gate(self, gate_id: str, parsed: ParsedInput, text: str) -> None:
        self.state.add_block("input", text)
        gate = self.state.find_gate(gate_id)
        if gate is None:
            self.state.select_prompt_gate()
            name = self.state.gate_name(gate_id)
            raise CommanderInputError(f"Gate '{name}' is closed: the line was not sent.")
        answer_text = parsed.text if parsed.type is InputType.DIRECT else text.strip()
        if problem := await self.answer_gate(gate, resolve_references(answer_text, self.state.blocks)):
            self.state.add_block("error", problem)

    # -- plain text --------------------------------------------------------------------------------------

    async def _submit_plain_text(self, text: str) -> None:
        """Send plain text to the target, or queue it while a turn runs."""
        try:
            resolved, value = resolve_input(parse_input(text), self.state.blocks)
        except ValueError:
            self.state.add_block("input", text)
            raise
        if self._has_active_turn():
            self.state.queue.append(text)
            self._queued_values.append((resolved.text, value))
            self.state.raise_flags("queue")
        else:
            await self._send_text(text, resolved.text, value)

    def _has_active_turn(self) -> bool:
        if self._last_turn is None or self._last_turn[0] != (self.state.target or ROUTER_TARGET):
            return False
        if self.state.queue or self._last_turn[1] is None:
            return True
        card = self.state.runs.get(self._last_turn[1])
        return card is not None and card.is_active and card.run_id == self.state.focused_run_id

    async def _send_text(self, text: str, resolved_text: str, value: Any) -> None:
        """Send a text with its resolved references to the target."""
        self.state.add_block("input", text)
        target = self.state.target or ROUTER_TARGET
        self._last_turn = (target, None)
        run_id = None
        try:
            await self.event_sync.wait_loaded()
            if target.kind == "router":
                run_id = await self._route_text(resolved_text)
            else:
                name, workflow = await self.resolve_target(target.kind, target.name)
                params = parse_workflow_options({}, workflow, has_input=True) if workflow is not None else {}
                run_id = await self.start_run(name, value, params)
        finally:
            self._last_turn = (target, run_id) if run_id is not None else None
            asyncio.get_running_loop().call_soon(self._on_update)

    async def _route_text(self, text: str) -> str | None:
        arguments = {
            "text": text,
            "conversation": self.conversation_id,
            "watching": self.state.focused_run_id,
        }
        route: RouteResponse = await self.perform_operation("route", **arguments, start=True)
        extra = route.model_extra or {}
        for warning in extra.get("warnings") or ():
            self.state.add_block("note", f"Router: {warning}", name="router")
        if route.run is not None:
            if route.by == "words":
                self.state.add_block("note", f"Router: {route.reason}", name="router")
            await self.show_started_run(route.run, routed=True)
            return route.run.run_id
        reply = str(extra.get("reply") or extra.get("question") or route.reason)
        known = {workflow.id for workflow in self.state.workflows}
        candidates = [name for name in extra.get("candidates") or () if name in known]
        if route.kind == "question" and candidates:
            repeated_text = text if len(text) <= MAX_REPEATED_CHARS and "\n" not in text else "…"
            reply += f"\n\nStart it with `%{candidates[0]} {repeated_text}`"
        self.state.add_block("text", reply, name="router")
        return None

    def unqueue(self) -> str:
        """Remove and return the last queued text; "" if there is none."""
        if not self.state.queue:
            return ""
        self.state.raise_flags("queue")
        self._queued_values.pop()
        return self.state.queue.pop()

    def _on_update(self) -> None:
        """Handle a state change: send the next queued text when the previous turn has ended."""
        self._change_event.set()
        if not self.state.queue or (self._send_task is not None and not self._send_task.done()):
            return
        run_id = self._last_turn[1] if self._last_turn is not None else None
        card = self.state.runs.get(run_id or "")
        if self._last_turn is None or (card is not None and card.has_ended):
            self._send_task = asyncio.create_task(self._send_next_queued())

    async def _send_next_queued(self) -> None:
        text, resolved = self.state.queue.pop(0), self._queued_values.pop(0)
        self.state.raise_flags("queue")
        try:
            await self._send_text(text, *resolved)
        except Exception as error:
            self.state.add_block("error", format_any_error(error))

    # -- runs --------------------------------------------------------------------------------------------

    async def perform_operation(self, operation: str, **arguments: Any) -> Any:
        """Perform an API operation with an idempotency key, with retries while the server is unavailable."""
        arguments[OPERATIONS[operation].request_model.key_field] = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_TIMEOUT_S
        while True:
            try:
                return await self.client.perform(operation, arguments)
            except ApiError as error:
                if error.code != "busy" or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_INTERVAL_S)

    async def start_run(self, name: str, value: Any, params: dict[str, Any] | None = None) -> str:
        """Start and follow a run; return its id."""
        arguments = {
            "workflow": name,
            "input": value,
            "params": params or {},
            "conversation": self.conversation_id,
        }
        run: RunResponse = await self.perform_operation("start", **arguments)
        await self.show_started_run(run)
        return run.run_id

    async def show_started_run(self, run: RunResponse, routed: bool = False) -> None:
        """Add a started run to the state, focus and follow it."""
        self.state.merge_runs([run])
        self.state.focus_run(run.run_id)
        try:
            await self.event_sync.follow(run.run_id, routed)
        except ApiError as error:
            if error.code != "busy":  # the events are loaded when the server is back
                raise

    async def follow(self, run: str) -> None:
        """Show a run in the conversation and focus it."""
        run_id = await self.event_sync.load_run(run)
        self.state.focus_run(run_id)
        await self.event_sync.follow(run_id)

    async def resolve_target(self, kind: str, name: str) -> tuple[str, WorkflowResponse | None]:
        """Resolve a name after a reload, because files may have changed."""
        with contextlib.suppress(ApiError):  # while the server is unavailable, use the known names
            await self.event_sync.reload_workflows()
        return resolve_startable_name(self.state, kind, name)

    async def resolve_run(self, run: str) -> str:
        """Return the id of the named run; without a name, of the focused run."""
        if run:
            loaded_run = await self.client.run(run=find_run_by_name(self.state, run) or run)
            return str(loaded_run.run_id)
        if (card := self.state.focused_run) is None:
            raise CommanderInputError("No run is focused. Name a run; /runs lists them.")
        return card.run_id

    async def stop_run(self, run_id: str | None = None) -> None:
        """Stop a run, by default the focused one."""
        card = self.state.runs.get(run_id) if run_id else self.state.focused_run
        if card is None or card.has_ended:
            return
        try:
            await self.perform_operation("stop", run=card.run_id, reason=STOP_REASON)
        except ApiError as error:
            self.state.add_block("error", api_error_sentence(error))

    async def answer_gate(self, gate: GateResponse, text: Any, reason: str = "") -> str:
        """Answer a gate by text or choice number; return "" or the error, which leaves the gate open."""
        known = gate.choices or gate.options or []
        answer = resolve_typed_choice(text, known) if isinstance(text, str) else text
        state, was_opened = self.state, self.state.open_gate_id == gate.gate_id
        state.answering_gate_ids.add(gate.gate_id)  # the event may arrive before the reply
        if was_opened and not state.is_typing:
            state.open_gate(None)  # the next line is not for this gate
        try:
            await self.perform_operation(
                "answer", run=gate.run_id, gate=gate.gate_id, answer=answer, reason=reason, hash=gate.hash
            )
            if gate.policy is None:  # other people may have to answer, too
                state.close_answered_gate(gate, answer)
        except ApiError as error:
            if was_opened and not state.is_typing and state.find_gate(gate.gate_id) is not None:
                state.open_gate(gate.gate_id)
            return api_error_sentence(error)
        finally:
            state.answering_gate_ids.discard(gate.gate_id)
            state.select_prompt_gate()
        root = state.root_of(gate.run_id)
        if state.block_of_run(root) is None and (card := state.runs.get(root)) is not None:
            gate_text = f"'{gate_display_name(gate)}' of {card.name} ({card.short_id})"
            state.add_block("note", f"{gate_text}: {format_result(answer)}")
        return ""

    async def wait_for_change(self) -> None:
        """Return after the next state change."""
        self._change_event.clear()
        await self._change_event.wait()

    # -- screens -----------------------------------------------------------------------------------------

    def complete(self, text: str, cursor: int) -> list[Completion]:
        """Return the completions at the cursor."""
        from nerve.commander.core.completion import find_completions
        from nerve.commander.core.name_resolution import collect_completion_names

        if text in TARGET_PREFIXES:
            self.event_sync.reload_in_background()
        return find_completions(
            text, cursor, collect_completion_names(self.state, self.themes, self.file_completer)
        )

    def exit_message(self) -> list[str]:
        """Return the lines printed on exit: open runs, their cost, and how to reopen the Commander."""
        from nerve.commander.reports import exit_message_lines

        return exit_message_lines(self.state)

    def request_screen(self, request: str, value: str = "") -> None:
        """Request an action of the screen."""
        self.screen_requests[request] = value
        self.state.raise_flags("wants")
