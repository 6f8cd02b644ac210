"""Commands that show runs: `nerve watch`, `status`, `events`, `logs` and `gates`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from nerve.api import ApiError
from nerve.cli.completion import RUN_PARAMETER, RunArgument
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.outcome import PARKED, choices_suffix, outcome_from_run
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, format_command
from nerve.cli.trust import is_at_terminal
from nerve.core.events import WorkflowEventType
from nerve.core.gates import gate_names
from nerve.core.tags import format_tags
from nerve.errors import NerveError
from nerve.ui.gate_names import example_answer, gate_display_name, gate_preview
from nerve.ui.gate_votes import describe_answerers, gate_vote_lines
from nerve.ui.json_forms import form_field_lines
from nerve.ui.sanitize import dump_safe_json, sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import EventResponse, GateResponse, RunResponse
    from nerve.ui.progress_tree import ProgressTree

FollowOption = Annotated[
    Flag, Parameter(help="Print new entries until the run ends; with --json, one object per line.")
]
AfterOption = Annotated[int, Parameter(help="Only entries after this event number.")]
DiffOption = Annotated[Flag, Parameter(help="Also print what each step changed in its workspace.")]
PathOption = Annotated[str | None, Parameter(help="Only entries of the step at this path and inside it.")]


def watch_command(run: RunArgument, /, *, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """Follow a run until it ends, and answer its gates.

    In a terminal, the output is a live tree; in a pipe, one line per step. Without a server, the command
    prints the current state of the run. If a gate is open and the command runs in a terminal, it prompts for
    the answer and resumes the run in this process.
    """

    async def do(context: CliContext) -> int:
        from nerve.cli.run_follower import RunFollower

        follower = RunFollower(context, (await find_run_or_newest(context, run)).run_id)
        if context.session is None:
            outcome = await follower.follow(to_end=True)
        elif (
            follower.is_interactive
            and await waits_for_person(context, follower.run_id)
            and await try_to_drive(context, follower.run_id)
        ):
            outcome = await follower.follow()
        else:
            outcome = await follower.show_history(
                [event async for event in context.client.history(follower.run_id)]
            )
        return context.print_outcome(outcome)

    return run_with_api(common, do, read_only=not is_at_terminal())


async def find_run_or_newest(context: CliContext, name: str) -> RunResponse:
    """Return the run with this id, prefix or label, or the newest run of the workflow with this name."""
    try:
        return await context.client.run(run=name)
    except ApiError as error:
        if error.code != "not_found":
            raise
        newest = (await context.client.runs(workflow=name, limit=1)).runs
        if not newest or newest[0].workflow != name:
            raise error from None
        return await context.client.run(run=newest[0].run_id)


async def waits_for_person(context: CliContext, run_id: str) -> bool:
    """Whether a gate is open in a run or in one of its child runs."""
    for gate in await context.client.all_gates():
        ancestor: str | None = gate.run_id
        while ancestor not in (None, run_id):
            ancestor = (await context.client.run(run=ancestor)).parent
        if ancestor is not None:
            return True
    return False


async def try_to_drive(context: CliContext, run_id: str) -> bool:
    """Resume a run in this process; print the reason and return False if that fails."""
    try:
        await context.ensure_driven(run_id)
    except (NerveError, ValueError) as error:
        context.info(str(error))
        return False
    return True


def status_command(
    run: Annotated[str | None, RUN_PARAMETER] = None, /, *, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Show the status of a run with its step tree. Without RUN, show the status of the project."""

    async def do(context: CliContext) -> int:
        if run is None:
            return await print_overall_status(context)
        from nerve.ui.event_lines import to_workflow_event
        from nerve.ui.failure_text import failure_text
        from nerve.ui.formatting import format_caller
        from nerve.ui.progress_tree import ProgressTree

        response = await find_run_or_newest(context, run)
        tree, answers = ProgressTree(), list[str]()
        async for event in context.client.history(response.run_id):
            tree.apply_event("", to_workflow_event(event))
            if event.event_type == WorkflowEventType.GATE_ANSWERED and (
                who := describe_answerers(event.data)
            ):
                name = gate_names(event.data.get("gate_id"), event.path, event.data.get("node_id"))[-1]
                answers.append(f"{name} answered by {who}")
        response = response.model_copy(update={"state": context.shown_state(response)})
        outcome = outcome_from_run(response, tree)
        starter = format_caller(response.started_by, response.started_via) if response.started_by else ""
        rows = [
            f"{response.workflow}  {response.run_id}  {response.state} {state_detail(response)}".rstrip(),
            *([f"started by {starter}"] if starter else []),
            *([f"continued from {response.continued_from}"] if response.continued_from else []),
            *([f"tags: {format_tags(response.tags)}"] if response.tags else []),
            *render_run_tree(tree, context.out),
            *answers,
        ]
        if outcome.error:
            reason = failure_text(outcome.error, outcome.error_type, outcome.location)
            rows += [f"error: {reason}", *outcome.tracebacks]
        rows += [f"held: {response.held['message']}"] if response.held else []
        context.print_result(response, [*rows, *(format_open_gate(context, gate) for gate in response.gates)])
        return COMPLETED

    return run_with_api(common, do, read_only=True)


def state_detail(run: RunResponse) -> str:
    """Return what a run waits for, or the next run of its chain."""
    return f"and continued as {run.continued_as}" if run.continued_as else run.waiting_for or ""


async def print_overall_status(context: CliContext) -> int:
    from nerve.ui.formatting import status_lines

    # Listing gates verifies the ends of journals; health reports damaged journals only after that.
    gates, usage = await context.client.gates(), await context.client.usage()
    health = await context.client.health()
    if context.session is not None and (parked := health.runs.pop("running", 0)):
        health.runs[PARKED] = parked
    lines = [
        f"server: {describe_server(context, health.owner)}",
        *status_lines(health, usage),
        *(format_open_gate(context, gate) for gate in gates.gates),
    ]
    payload = {**health.model_dump(mode="json"), "server": context.session is None}
    payload |= {"gates": gates.model_dump(mode="json")["gates"], "usage": usage.model_dump(mode="json")}
    context.print_result(payload, lines)
    return COMPLETED


def describe_server(context: CliContext, owner: str | None) -> str:
    if context.session is not None:
        return "not running; start it with: nerve serve"
    return f"running; {owner} executes the runs" if owner is not None else "running"


GATE_ACTIONS = {"delegate": "delegated", "claim": "claimed", "release": "released"}


def gates_command(
    action: Annotated[
        str | None, Parameter(name="ACTION", help="delegate, claim or release, for a gate with a policy.")
    ] = None,
    gate: Annotated[str | None, Parameter(name="GATE", help="The id of the gate.")] = None,
    person: Annotated[str | None, Parameter(name="PERSON", help="To whom the gate is delegated.")] = None,
    /,
    *,
    mine: Annotated[Flag, Parameter(help="Only gates that wait for your answer.")] = False,
    as_person: Annotated[
        str | None, Parameter(name="--as", help="Only gates that wait for this person.")
    ] = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List open gates, each with the command that answers it, and who has answered so far.

    `nerve gates claim GATE` lets you alone answer a gate with `claim`, until `nerve gates release GATE`;
    `nerve gates delegate GATE PERSON` lets another person answer in your place. `nerve gates --mine` lists
    the gates that wait for you: the person with your user name as the contact `unix`.
    """
    if mine and as_person is not None:
        raise UsageError("--mine and --as cannot be used together.")
    if action is not None and (mine or as_person is not None):
        raise UsageError("--mine and --as select from the list of gates.")
    filters = {"mine": True} if mine else {} if as_person is None else {"person": as_person}
    if action is not None:
        return act_at_gate(common, action, gate, person)

    async def do(context: CliContext) -> int:
        open_gates = await context.client.all_gates(**filters)
        payload = [{**gate.model_dump(mode="json"), "name": gate_display_name(gate)} for gate in open_gates]
        now = datetime.now(UTC)
        rows = [
            line
            for gate in open_gates
            for line in (
                format_open_gate(context, gate, format_gate_origin(gate, now)),
                *format_gate_fields(gate),
            )
        ]
        context.print_result(payload, rows or ("No gates wait for you." if mine else "No open gates."))
        return COMPLETED

    return run_with_api(common, do, read_only=True, only_lists=True)


def act_at_gate(common: CommonOptions, action: str, gate: str | None, person: str | None) -> int:
    """Delegate, claim or release a gate."""
    check_action(action, GATE_ACTIONS, "delegate, claim or release")
    if gate is None or (action == "delegate") != (person is not None):
        names = "GATE PERSON" if action == "delegate" else "GATE"
        raise UsageError(f"Write: nerve gates {action} {names}")

    async def do(context: CliContext) -> int:
        done = await context.client.answer(gate=gate, action=action, answer=person)
        to = f" to {person}" if person else ""
        text = f"Gate {done.gate_id}: {GATE_ACTIONS[action]}{to}."
        context.print_result(done, text)
        return COMPLETED

    return run_with_api(common, do, writes=True)


def format_gate_origin(gate: GateResponse, now: datetime) -> str:
    """Return the workflow of a gate and how long the gate has been open."""
    from nerve.ui.formatting import format_duration_between

    return f" of {gate.workflow}, open for {format_duration_between(gate.created_at, None, now)}"


def format_open_gate(context: CliContext, gate: GateResponse, origin: str = "") -> str:
    """Return a gate as one line, with the command that answers it."""
    answer, options = example_answer(gate.choices, gate.form), context.options_for(gate.run_id)
    # The people who decide a gate with a policy answer what is listed here, and nothing else.
    bound = [] if gate.policy is None else ["--hash", gate.hash]
    command_text = format_command("answer", gate.run_id, answer, "--gate", gate.gate_id, *bound, *options)
    prompt = " ".join(gate.prompt.split())
    return (
        f"⏸ {gate_display_name(gate)}{origin}: {prompt}{choices_suffix(gate.choices or [])}  {command_text}"
    )


def format_gate_fields(gate: GateResponse) -> list[str]:
    """Return the note and the input preview of a gate, and the fields of its form, one line each."""
    shown = [*(gate.note or "").splitlines(), *gate_preview(gate.input_preview).splitlines()]
    fields = form_field_lines(gate.form or {})
    return [f"    {line}" for line in (*shown, *fields, *gate_vote_lines(gate))]


def events_command(
    run: RunArgument,
    /,
    *,
    after: AfterOption = 0,
    path: PathOption = None,
    follow: FollowOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Print the events of a run."""

    def event_payload(event: EventResponse) -> dict[str, Any]:
        return event.model_dump(mode="json", include=set(type(event).model_fields))

    def line(event: EventResponse) -> str:
        data = dump_safe_json(event.data)
        return f"{event.seq} {event.timestamp:%H:%M:%S} {event.event_type} {event.path or '/'} {data}"

    async def do(context: CliContext) -> int:
        run_id = (await find_run_or_newest(context, run)).run_id
        entries = (
            (event_payload(event), line(event))
            async for event in stream_run_events(context, run_id, after, follow, path)
        )
        return await print_entries(context, entries, follow)

    return run_with_api(common, do, read_only=True)


def logs_command(
    run: RunArgument,
    /,
    *,
    after: AfterOption = 0,
    path: PathOption = None,
    diff: DiffOption = False,
    follow: FollowOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Print the log of a run: steps, agent output and tool calls."""

    def line_payload(event: EventResponse, line: str) -> dict[str, Any]:
        return {"seq": event.seq, "at": event.timestamp.isoformat(), "path": event.path, "text": line}

    async def do(context: CliContext) -> int:
        run_id = (await find_run_or_newest(context, run)).run_id
        return await print_entries(context, lines_of(context, run_id), follow)

    async def lines_of(context: CliContext, run_id: str) -> AsyncIterator[tuple[dict[str, Any], str]]:
        from nerve.ui.event_lines import LogLines, changed_files, to_workflow_event

        log, event = LogLines(), None
        async for event in stream_run_events(context, run_id, after, follow, path):
            own = to_workflow_event(event)
            for line in log.apply_event(own):
                yield line_payload(event, line), line
            if diff and changed_files(own):
                page = await context.client.changes(run=event.run_id, path=event.path)
                for text in (step.diff for step in page.steps if step.path == event.path and step.diff):
                    shown = sanitize_text(text.rstrip("\n"))
                    yield line_payload(event, shown), shown
        if event is not None:
            for line in log.flush_all():
                yield line_payload(event, line), line

    return run_with_api(common, do, read_only=True)


async def print_entries(
    context: CliContext, entries: AsyncIterator[tuple[dict[str, Any], str]], follow: bool
) -> int:
    """Print entries as they arrive. With --json and without --follow, print one list at the end."""
    collected = []
    async for payload, line in entries:
        if context.common.json and not follow:
            collected.append(payload)
        else:
            context.print_result(payload, line)
    if context.common.json and not follow:
        context.print_result(collected)
    return COMPLETED


async def stream_run_events(
    context: CliContext, run_id: str, after: int, follow: bool, path: str | None = None
) -> AsyncIterator[EventResponse]:
    """Yield the events of a run or a step; with `follow` and a server, also new ones until the run ends."""
    from nerve.journal.paths import is_within_step

    options = {} if path is None else {"path": path}
    events = (
        context.client.watch(run_id, after)
        if follow and context.session is None
        else context.client.history(run_id, after, **options)
    )
    async for event in events:
        if path is None or is_within_step(event.path, path):
            yield event


def render_run_tree(tree: ProgressTree, out: TextIO) -> list[str]:
    """Render a tree as lines of text that fit the terminal."""
    from rich.console import Console

    from nerve.ui.tree_panel import MAX_PANEL_WIDTH, render_tree_grid

    terminal = Console(file=out)
    width = min(terminal.width, MAX_PANEL_WIDTH) if terminal.is_terminal else MAX_PANEL_WIDTH
    screen = Console(width=width, color_system=None, highlight=False)
    with screen.capture() as lines:
        screen.print(render_tree_grid(tree))
    return [line.rstrip() for line in lines.get().splitlines()]
