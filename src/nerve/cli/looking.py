"""Looking at runs: `nerve watch`, `status`, `events`, `logs` and `gates`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, TextIO

from cyclopts import Parameter
from rich.console import Console

from nerve.api import ApiError
from nerve.api.models import EventTold, GateTold, RunTold
from nerve.cli.answers import name_of
from nerve.cli.common import DEFAULT, Common, Door, Flag, Run, again, answering, command
from nerve.cli.completion import RUN
from nerve.cli.exits import COMPLETED
from nerve.cli.outcome import PARKED
from nerve.cli.story import Story, outcome_of, undriven
from nerve.cli.telling import alternatives, tell
from nerve.cli.trust import at_terminal
from nerve.commander.core.forms import example, lines
from nerve.commander.core.gates import preview_of
from nerve.commander.core.harmless import in_json
from nerve.commander.core.lines import LogLines
from nerve.commander.core.tree import Tree, event_of
from nerve.commander.drawing import WIDEST, grid
from nerve.commander.listing import today
from nerve.commander.tui.figures import length
from nerve.errors import NerveError

Follow = Annotated[
    Flag, Parameter(help="Go on with what comes, until the run ends; with --json one object a line.")
]
After = Annotated[int, Parameter(help="Only what is behind the event of this number.")]


def watch(run: Run, /, *, common: Common = DEFAULT) -> int:
    """Show a run as it goes on, to its end, and ask its gates here.

    RUN is its id, the beginning of it, or its label. In a terminal it is a tree that is
    drawn again and again, in a pipe a line for every step. Where no server runs, nothing goes on either:
    the run is shown as it stands. A gate is asked in a terminal all the same, and the run goes on here then.
    """

    async def do(door: Door) -> int:
        story = Story(door, (await find_run(door, run)).run_id)
        if door.session is None:
            outcome = await story.told(to_end=True)
        elif story.asks and await asks_somebody(door, story.run_id) and await can_go_on(door, story.run_id):
            outcome = await story.told()
        else:
            outcome = await story.as_it_stands([event async for event in past(door, story.run_id)])
        return tell(outcome, again(common, outcome.run_id), common.json, door.out, common.quiet)

    return answering(common, do, looks=not at_terminal())


async def find_run(door: Door, name: str) -> RunTold:
    """Return the run of a name, or the newest run of the workflow of that name."""
    try:
        return await door.client.run(run=name)
    except ApiError as error:
        if error.code != "not_found":
            raise
        newest = (await door.client.runs(workflow=name, limit=1)).runs
        if not newest or newest[0].workflow != name:
            raise error from None
        return await door.client.run(run=newest[0].run_id)


async def asks_somebody(door: Door, run_id: str) -> bool:
    """Whether a gate is open in a run, or in one that it has called."""
    for gate in (await door.client.gates()).gates:
        above: str | None = gate.run_id
        while above not in (None, run_id):
            above = (await door.client.run(run=above)).parent
        if above is not None:
            return True
    return False


async def can_go_on(door: Door, run_id: str) -> bool:
    """Drive a run in this process; where what it needs is not here, say so."""
    try:
        await door.taken_up(run_id)
    except (NerveError, ValueError) as error:
        door.say(str(error))
        return False
    return True


def status(run: Annotated[str | None, RUN] = None, /, *, common: Common = DEFAULT) -> int:
    """Say how a run stands, with its tree; without RUN, how everything stands."""

    async def do(door: Door) -> int:
        if run is None:
            return await overall(door)
        told = await find_run(door, run)
        tree = Tree()
        async for event in past(door, told.run_id):
            tree.take("", event_of(event))
        if door.session is not None:
            told = told.model_copy(update={"state": undriven(told)})
        outcome = outcome_of(told, tree)
        rows = [f"{told.workflow}  {told.run_id}  {told.state}", *drawn(tree, door.out)]
        rows += [f"error: {outcome.error}"] if outcome.error else []
        rows += [f"held: {told.held['message']}"] if told.held else []
        door.tell(told, [*rows, *(asked(door, gate) for gate in told.gates)])
        return COMPLETED

    return answering(common, do, looks=True)


async def overall(door: Door) -> int:
    # The journals are read for the gates, and what is wrong with them is known to the health after that.
    gates, usage, health = await door.client.gates(), await door.client.usage(), await door.client.health()
    if door.session is not None and (parked := health.runs.pop("running", 0)):
        health.runs[PARKED] = parked
    counted = ", ".join(f"{number} {state}" for state, number in sorted(health.runs.items()))
    lines = [
        f"server: {'none; start it with nerve serve' if door.session is not None else 'running'}",
        *([f"store: {health.loss}"] if health.loss else ()),
        f"runs: {counted or 'none'}",
        f"today: {today(usage)}",
        *(f"held: {run}: {why}" for run, why in health.held.items()),
        *(asked(door, gate) for gate in gates.gates),
    ]
    everything = {**health.model_dump(mode="json"), "server": door.session is None}
    everything |= {"gates": gates.model_dump(mode="json")["gates"], "usage": usage.model_dump(mode="json")}
    door.tell(everything, lines)
    return COMPLETED


def gates(*, common: Common = DEFAULT) -> int:
    """List every open gate, with the command that answers it."""

    async def do(door: Door) -> int:
        found = (await door.client.gates()).gates
        told = [{**gate.model_dump(mode="json"), "name": name_of(gate)} for gate in found]
        now = datetime.now(UTC)
        rows = [line for gate in found for line in (asked(door, gate, whose(gate, now)), *fields_of(gate))]
        door.tell(told, rows or "No open gates.")
        return COMPLETED

    return answering(common, do, looks=True)


def whose(gate: GateTold, now: datetime) -> str:
    """Which workflow asks, and for how long it has."""
    return f" of {gate.workflow}, open for {length(gate.created_at, None, now)}"


def asked(door: Door, gate: GateTold, whose: str = "") -> str:
    """A gate in one line, and the command that answers it."""
    answer = gate.choices[0] if gate.choices else example(gate.form) if gate.form is not None else "TEXT"
    how = command("answer", gate.run_id, answer, "--gate", gate.gate_id, *door.options_for(gate.run_id))
    prompt = " ".join(gate.prompt.split())
    return f"⏸ {name_of(gate)}{whose}: {prompt}{alternatives(gate.choices or [])}  {how}"


def fields_of(gate: GateTold) -> list[str]:
    """What the question is about, and the fields of its form, a line each."""
    about = preview_of(gate.input_preview).splitlines()
    return [f"    {line}" for line in (*about, *lines(gate.form or {}))]


def events(run: Run, /, *, after: After = 0, follow: Follow = False, common: Common = DEFAULT) -> int:
    """Print the events of a run."""

    def told(event: EventTold) -> dict[str, Any]:
        return event.model_dump(mode="json", include=set(EventTold.model_fields))

    def line(event: EventTold) -> str:
        data = in_json(event.data)
        return f"{event.seq} {event.timestamp:%H:%M:%S} {event.event_type} {event.path or '/'} {data}"

    async def do(door: Door) -> int:
        run_id = (await find_run(door, run)).run_id
        found = ((told(event), line(event)) async for event in happened(door, run_id, after, follow))
        return await listed(door, found, follow)

    return answering(common, do, looks=True)


def logs(run: Run, /, *, after: After = 0, follow: Follow = False, common: Common = DEFAULT) -> int:
    """Print what a run did and said: its steps, what its agents wrote and the tools they used."""

    def told(event: EventTold, line: str) -> dict[str, Any]:
        return {"seq": event.seq, "at": event.timestamp.isoformat(), "path": event.path, "text": line}

    async def do(door: Door) -> int:
        run_id = (await find_run(door, run)).run_id
        return await listed(door, lines_of(door, run_id), follow)

    async def lines_of(door: Door, run_id: str) -> AsyncIterator[tuple[dict[str, Any], str]]:
        log, event = LogLines(), None
        async for event in happened(door, run_id, after, follow):
            for line in log.take(event_of(event)):
                yield told(event, line), line
        if event is not None:
            for line in log.rest():
                yield told(event, line), line

    return answering(common, do, looks=True)


async def listed(door: Door, found: AsyncIterator[tuple[dict[str, Any], str]], follow: bool) -> int:
    """Tell each as it comes; as JSON they are one list, unless they are followed."""
    whole = []
    async for told, line in found:
        if door.common.json and not follow:
            whole.append(told)
        else:
            door.tell(told, line)
    if door.common.json and not follow:
        door.tell(whole)
    return COMPLETED


def happened(door: Door, run_id: str, after: int, follow: bool) -> AsyncIterator[EventTold]:
    """What has happened in a run, and what comes, if that is asked for and a server drives it."""
    return door.client.watch(run_id, after) if follow and door.session is None else past(door, run_id, after)


async def past(door: Door, run_id: str, after: int = 0) -> AsyncIterator[EventTold]:
    """What has happened in a run, page by page."""
    more = True
    while more:
        page = await door.client.events(run=run_id, after=after)
        for event in page.events:
            after = event.seq
            yield event
        more = page.more


def drawn(tree: Tree, out: TextIO) -> list[str]:
    """The lines of a tree as text, which fit a terminal."""
    there = Console(file=out)
    width = min(there.width, WIDEST) if there.is_terminal else WIDEST
    screen = Console(width=width, color_system=None, highlight=False)
    with screen.capture() as lines:
        screen.print(grid(tree))
    return [line.rstrip() for line in lines.get().splitlines()]
