"""Follow a run, local or on a server: show its tree and answer its gates."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.api import ApiError
from nerve.api.models import EventResponse, GateResponse
from nerve.background_tasks import cancel_tasks
from nerve.cli.context import CliContext, CommandServerGone, format_api_error, stderr_console
from nerve.cli.exit_codes import EXIT_CODE_BY_STATE
from nerve.cli.gate_answers import PresetAnswers
from nerve.cli.outcome import (
    RunOutcome,
    iter_wait_conditions,
    outcome_from_run,
    outcome_from_tree,
    state_when_idle,
)
from nerve.cli.run_display import create_run_display, print_sentence
from nerve.core.events import STEP_START_EVENTS
from nerve.core.gates import gate_names
from nerve.core.workflow import WorkflowEvent
from nerve.ui.async_input import flush_typeahead, read_line_while
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.gate_names import gate_display_name, resolve_typed_choice
from nerve.ui.json_forms import format_form_hint
from nerve.ui.progress_tree import ProgressTree
from nerve.ui.tree_panel import render_gate_panel, render_tree_panel

if TYPE_CHECKING:
    from rich.console import Console

EVENT_POLL_S = 0.08
"""Seconds between two polls for new events."""
SERVER_CHECK_S = 0.5
"""Seconds between two checks whether the command that drives the run has ended."""
CLOSED_GATE_CODES = ("conflict", "gone", "not_found")
MAX_IDLE_POLLS = 3
"""Polls without new events after which following a waiting run stops."""


class TerminalClosed(Exception):
    """The terminal was closed, so the user cannot answer."""


class RunFollower:
    """Follows one run on one display. Events up to `known_seq` are not printed again."""

    def __init__(
        self,
        context: CliContext,
        run_id: str,
        answers: PresetAnswers | None = None,
        known_seq: int = 0,
        console: Console | None = None,
    ) -> None:
        self.context, self.run_id, self.known_seq = context, run_id, known_seq
        self.answers = answers or PresetAnswers()
        context.shown_run_id, context.read_outcome = run_id, lambda: self.interrupted_outcome().to_dict()
        self.console = console or stderr_console(context.common)
        self.display = create_run_display(self.console)
        self.tree = ProgressTree(shows_progress=True)
        self.is_interactive = (
            self.console.is_terminal
            and sys.stdin is not None
            and sys.stdin.isatty()
            and not (context.common.quiet or context.common.json)
        )
        self._new_events: list[WorkflowEvent] = []
        self._bell = None
        if self.console.is_terminal and not context.common.quiet and Path(".nerve/config.json").is_file():
            from nerve.ui.terminal_bell import open_bell  # few projects have rules for it

            self._bell = open_bell(Path())
        self._watch_tasks: list[asyncio.Task[None]] = []
        self._rejected_gates: set[str] = set()
        self._last_seq = known_seq
        self._next_server_check = 0.0

    async def follow(self, to_end: bool = False) -> RunOutcome:
        """Show the run until it ends or is idle. With `to_end`, waiting for an answer is not idle."""
        self._watch_run(self.run_id, "")
        idle_polls, main = 0, self._watch_tasks[0]
        try:
            while not main.done() and idle_polls < MAX_IDLE_POLLS:
                await asyncio.wait([main], timeout=EVENT_POLL_S)
                self._raise_task_error()
                self._check_server(SERVER_CHECK_S)
                has_news, answered = self.show_new_events(), await self._answer_next()
                idle_polls = idle_polls + 1 if self._is_idle(to_end) and not has_news and not answered else 0
            self._raise_task_error()
            self.show_new_events()
            return await self.fetch_outcome()
        except ApiError:
            self._check_server()
            raise
        finally:
            self.display.stop()
            await cancel_tasks(*self._watch_tasks)

    def _check_server(self, interval: float = 0.0) -> None:
        """Raise CommandServerGone if another command drove the run, and has ended."""
        server, now = self.context.command_server, asyncio.get_running_loop().time()
        if server is None or now < self._next_server_check:
            return
        self._next_server_check = now + interval
        if server.has_ended:
            raise CommandServerGone(server, self.run_id, self.answers, self._last_seq)

    async def show_history(self, events: Iterable[EventResponse]) -> RunOutcome:
        """Show recorded events without following the run."""
        for event in events:
            self.tree.apply_event("", to_workflow_event(event))
            self._new_events.append(to_workflow_event(event))
        self.show_new_events()
        self.display.stop()
        outcome = await self.fetch_outcome()
        return replace(outcome, state=state_when_idle(outcome))

    def _is_idle(self, to_end: bool) -> bool:
        """Whether the run cannot continue by itself."""
        is_held = any(branch.view.state in ("held", "paused") for branch in self.tree.branches.values())
        can_answer = self.is_interactive and self.tree.gates
        return is_held or (self.tree.is_idle and not to_end and not can_answer)

    async def fetch_outcome(self) -> RunOutcome:
        """Return the outcome of the run, or the last seen one if the run ended and the server is gone."""
        try:
            return outcome_from_run(await self.context.client.run(run=self.run_id), self.tree)
        except ApiError as error:
            last_outcome = outcome_from_tree(self.run_id, self.tree)
            if error.code != "busy" or last_outcome.state not in EXIT_CODE_BY_STATE:
                raise
            return last_outcome

    def interrupted_outcome(self) -> RunOutcome:
        """Return the outcome after Ctrl-C. Without a server, a running run becomes parked."""
        last_outcome = outcome_from_tree(self.run_id, self.tree)
        return (
            last_outcome
            if self.context.session is None
            else replace(last_outcome, state=state_when_idle(last_outcome))
        )

    def _raise_task_error(self) -> None:
        """Raise the error of a failed event stream."""
        for task in self._watch_tasks:
            if task.done():
                task.result()

    def _watch_run(self, run_id: str, prefix: str) -> None:
        self._watch_tasks.append(asyncio.create_task(self._read_events(run_id, prefix)))

    async def _read_events(self, run_id: str, prefix: str) -> None:
        if prefix:
            await self._wait_for_child(run_id)
        async with contextlib.aclosing(self.context.client.watch(run_id)) as events:
            async for response in events:
                if response.is_of_child:
                    continue  # the child run has its own watch task
                event = to_workflow_event(response)
                if not prefix and event.run_id != self.run_id:
                    self._follow_next_run(event.run_id)
                if not prefix:
                    self._last_seq = event.seq
                self.tree.apply_event(prefix, event)
                if prefix or event.seq > self.known_seq:
                    self._new_events.append(event)
                if event.event_type in STEP_START_EVENTS and (child := event.data.get("child")) is not None:
                    self._watch_run(child, prefix + event.path)

    def _follow_next_run(self, run_id: str) -> None:
        """Follow the next run of a chain; its events have their own numbers."""
        self.run_id = self.context.shown_run_id = run_id
        self.known_seq = 0

    async def _wait_for_child(self, child: str) -> None:
        """Wait until a child run exists. The parent journals the call before it creates the child."""
        while True:
            try:
                await self.context.client.run(run=child)
            except ApiError as error:
                if error.code != "not_found":
                    raise
                await asyncio.sleep(EVENT_POLL_S)
            else:
                return

    def show_new_events(self) -> bool:
        """Show new events; return whether there were any."""
        new_events, self._new_events = self._new_events, []
        if self._bell is not None:
            ringing = [event for event in new_events if self._bell.rings_for(event)]
            if ringing:
                self.console.bell()
        if self.tree.branches and not self.context.common.quiet:
            self.display.show(partial(render_tree_panel, self.tree), new_events)
        return bool(new_events)

    # -- gates ---------------------------------------------------------------------------------

    async def _answer_next(self) -> bool:
        """Answer the next gate or signal wait; return whether one was answered."""
        for gate in self.tree.gates:
            if gate.gate_id in self._rejected_gates:
                continue
            if (text := self.answers.pop(gate_names(gate.gate_id, gate.path, gate.node_id))) is not None:
                await self._submit_answer(gate, text)
                return True
            if self.is_interactive:
                await self._prompt_gate(gate)
                return True
        return await self._send_signal()

    async def _send_signal(self) -> bool:
        for data in self.tree.waits:
            for wait in iter_wait_conditions(data):
                text = self.answers.pop([wait["signal"]]) if "signal" in wait else None
                if text is not None:
                    await self.context.client.signal(label=wait["signal"], key=wait.get("key"), value=text)
                    return True
        return False

    async def _submit_answer(self, gate: GateResponse, text: str) -> None:
        """Answer a gate, or print why the answer is rejected. A closed gate does not use up the answer."""
        try:
            await self.context.client.answer(run=gate.run_id, gate=gate.gate_id, answer=text, hash=gate.hash)
        except ApiError as error:
            self._rejected_gates.add(gate.gate_id)
            if error.code in CLOSED_GATE_CODES:  # an agent that starts again asks again
                self.answers.remaining.insert(0, (gate_display_name(gate), text))
                return
            self.display.stop()
            print_sentence(self.console, f"{gate_display_name(gate)}={text}: {format_api_error(error)}")
        else:
            await self._wait_until_answered(gate)

    async def _wait_until_answered(self, gate: GateResponse) -> None:
        """Wait until the answer appears in the events, so that the gate is not asked again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while self._is_open(gate):  # noqa: ASYNC110 - events arrive on several streams
                    await asyncio.sleep(0.01)

    async def _prompt_gate(self, gate: GateResponse) -> None:
        self.display.stop()
        flush_typeahead()
        name, numbered = gate_display_name(gate), bool(gate.choices)
        self.console.print(render_gate_panel(gate.model_dump(), name, numbered))
        rejection = ""
        while self._is_open(gate):
            try:
                answer = await prompt_gate_answer(self.console, gate, rejection, lambda: self._is_open(gate))
            except TerminalClosed:
                self.is_interactive = False
                return
            if answer is None:
                print_sentence(self.console, "\nThe gate is closed: it was answered elsewhere or timed out.")
                return
            try:
                await self.context.client.answer(
                    run=gate.run_id, gate=gate.gate_id, answer=answer, hash=gate.hash
                )
            except ApiError as error:
                rejection = format_api_error(error)
            else:
                await self._wait_until_answered(gate)
                rejection = "Your answer is recorded; other people have to answer, too."

    def _is_open(self, gate: GateResponse) -> bool:
        return any(gate.gate_id == other.gate_id for other in self.tree.gates)


async def prompt_gate_answer(
    console: Console, gate: GateResponse, rejection: str, is_open: Callable[[], bool]
) -> str | None:
    """Return the answer of the user, or None if the gate closes while waiting."""
    if rejection:
        print_sentence(console, rejection)
    choices = gate.choices or []
    prompt = f"1 to {len(choices)}, or the answer: " if choices else f"Answer{format_form_hint(gate.form)}: "
    while True:
        console.print(prompt, end="", markup=False)
        line = await read_line_while(is_open)
        if line is None:
            return None
        if not line:
            print_sentence(console, "")  # end the prompt line
            raise TerminalClosed
        if answer := resolve_typed_choice(line.strip(), choices):
            return answer
