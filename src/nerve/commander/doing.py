"""What each /command does. The table in `core.commands` says what there is; this says how it is done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nerve.commander import listing
from nerve.commander.core.cards import PREFIXES, Target, short_id
from nerve.commander.core.choosing import gate_named, meant, split_answer, split_reason
from nerve.commander.core.commands import find, help_text, unknown
from nerve.commander.core.gates import NO, YES, name_of
from nerve.commander.core.naming import Unknown
from nerve.commander.core.options import anything
from nerve.commander.core.references import resolve, resolve_value

if TYPE_CHECKING:
    from nerve.api.models import EventTold, RunTold
    from nerve.commander.workflow_controller import WorkflowController

Does = Callable[["WorkflowController", str], Awaitable[None]]
DOES: dict[str, Does] = {}
"""By the name of the command: takes what stands behind it."""
PAGE = 1000
WORD = r"""(?P<key>"[^"]*"|'[^']*'|\S*)"""
KEY = re.compile(rf"^--key(?:=|\s+|$){WORD}(?=\s|$)|(?<=\s)--key(?:=|\s+|$){WORD.replace('key', 'last')}$")
"""The key of a signal, before or after its value."""
OTHERWISE = "/ @ # % work as ever, \\ makes them text."


def does(name: str) -> Callable[[Does], Does]:
    def add(function: Does) -> Does:
        DOES[name] = function
        return function

    return add


def tell(commander: WorkflowController, command: str, text: str) -> None:
    """What a command found; it is no result that `::last` would mean."""
    commander.desk.say("text", text, name=f"/{command}")


def note(commander: WorkflowController, text: str) -> None:
    commander.desk.say("note", text)


# -- workflows -------------------------------------------------------------------------------------------


@does("workflows")
async def workflows(commander: WorkflowController, text: str) -> None:
    await commander.reload()
    tell(commander, "workflows", listing.workflows(commander.desk))


@does("workflow")
async def workflow(commander: WorkflowController, text: str) -> None:
    """As the router answers it, from the files as they are now."""
    from nerve.router.commands import answer_command
    from nerve.router.decision import Offered

    problems = []
    if text.split() == ["reload"]:
        problems = (await commander.client.reload()).problems
    await commander.reload()
    offered = [
        Offered(each.id, each.description, steps=tuple(each.steps)) for each in commander.desk.workflows
    ]
    answer = answer_command(f"/workflow {text}", lambda: offered)
    assert answer is not None
    if answer.success:
        tell(commander, "workflow", answer.text)
    else:
        commander.desk.say("error", answer.text)
    for problem in problems:
        commander.desk.say("error", listing.problem(problem))


@does("target")
async def target(commander: WorkflowController, text: str) -> None:
    desk = commander.desk
    if not text:
        note(commander, f"Plain text goes to {desk.target or 'the router'}.")
        return
    if text.lower() == "router":
        desk.target = None
    else:
        kind = PREFIXES.get(text[:1], "workflow")
        name, _ = await commander.meant(kind, text[1:] if text[:1] in PREFIXES else text)
        desk.target = Target(kind, name)
    desk.flag("target")
    note(commander, f"Plain text goes to {desk.target or 'the router'} from now on.")


# -- runs ------------------------------------------------------------------------------------------------


@does("runs")
async def runs(commander: WorkflowController, text: str) -> None:
    tell(commander, "runs", listing.runs(commander.desk, text))


@does("status")
async def status(commander: WorkflowController, text: str) -> None:
    if not text and commander.desk.focused is None:
        health, usage = await commander.client.health(), await commander.client.usage()
        tell(commander, "status", listing.overall(commander.desk, health, usage))
        return
    told = await commander.client.run(run=await commander.named(text))
    tell(commander, "status", listing.status(told))


@does("watch")
async def watch(commander: WorkflowController, text: str) -> None:
    await commander.follow(await commander.named(text))


@does("logs")
async def logs(commander: WorkflowController, text: str) -> None:
    run_id = await commander.named(text)
    events: list[EventTold] = []
    more = True
    while more:
        page = await commander.client.events(run=run_id, after=events[-1].seq if events else 0, limit=PAGE)
        events += page.events
        more = page.more
    tell(commander, "logs", listing.logs(events))


SAYS = {
    "pausing": "pauses when this step is done; /resume continues it.",
    "paused": "is paused; /resume continues it.",
    "running": "continues.",
    "waiting": "continues, and waits.",
    "stopping": "is being stopped.",
    "cancelled": "is stopped.",
}
"""What a command has done to a run, by the state it is in now."""


async def changed(commander: WorkflowController, told: RunTold) -> None:
    commander.desk.list_runs([told])
    says = SAYS.get(told.state, f"is {told.state}.")
    note(commander, f"{told.label or told.workflow} ({short_id(told.run_id)}) {says}")


@does("pause")
async def pause(commander: WorkflowController, text: str) -> None:
    run_id = await commander.named(text)
    await changed(commander, await commander.do("pause", run=run_id))


@does("resume")
async def resume(commander: WorkflowController, text: str) -> None:
    run_id = await commander.named(text)
    await changed(commander, await commander.do("resume", run=run_id))


@does("stop")
async def stop(commander: WorkflowController, text: str) -> None:
    from nerve.commander.workflow_controller import STOPPED

    run_id = await commander.named(text)
    await changed(commander, await commander.do("stop", run=run_id, reason=STOPPED))


@does("fork")
async def fork(commander: WorkflowController, text: str) -> None:
    run, _, step = text.partition(" ")
    run_id = await commander.named(run)
    at = step.strip() or None
    if at is not None and not at.startswith("/"):
        at = f"/{at}"
    await commander.began(await commander.do("fork", run=run_id, at=at))


@does("retry")
async def retry(commander: WorkflowController, text: str) -> None:
    await commander.began(await commander.do("retry", run=await commander.named(text)))


# -- gates -----------------------------------------------------------------------------------------------


@does("gates")
async def gates(commander: WorkflowController, text: str) -> None:
    if not text:
        tell(commander, "gates", listing.gates(commander.desk))
        return
    gate = gate_named(commander.desk, text)
    commander.desk.open_gate(gate.gate_id)
    note(commander, f"What you type now answers '{name_of(gate)}'. {OTHERWISE} Esc leaves it.")


@does("answer")
async def answer(commander: WorkflowController, text: str) -> None:
    gate, said = split_answer(commander.desk, text)
    refused = await commander.answer(gate, resolve(said, commander.desk.blocks))
    if refused:
        commander.desk.say("error", refused)


@does("approve")
async def approve(commander: WorkflowController, text: str) -> None:
    await choose(commander, text, YES)


@does("reject")
async def reject(commander: WorkflowController, text: str) -> None:
    await choose(commander, text, NO)


async def choose(commander: WorkflowController, text: str, words: tuple[str, ...]) -> None:
    """The one choice that says this; what stands behind the gate, or instead of it, is the reason."""
    gate, reason = split_reason(commander.desk, text)
    if refused := await commander.answer(gate, meant(gate, words), reason):
        commander.desk.say("error", refused)


# -- facts -----------------------------------------------------------------------------------------------


@does("facts")
async def facts(commander: WorkflowController, text: str) -> None:
    found = (await commander.client.facts(pattern=text or None)).facts
    tell(commander, "facts", listing.facts(found))


@does("signal")
async def signal(commander: WorkflowController, text: str) -> None:
    name, _, rest = text.partition(" ")
    if not name:
        raise Unknown("Name the signal: /signal NAME [VALUE] [--key KEY].")
    key, rest = key_of(rest.strip())
    value = resolve_value(rest, commander.desk.blocks) if rest else None
    await commander.do("signal", label=name, key=key, value=anything(value))
    note(commander, f"The signal '{name}' is sent{f' with the key {key!r}' if key else ''}.")


def key_of(text: str) -> tuple[str | None, str]:
    """The KEY of a `--key KEY` or `--key=KEY` at the beginning or the end, and the rest."""
    found = KEY.search(text)
    if found is None:
        return None, text
    key = (found["key"] or found["last"] or "").strip("\"'")
    if not key:
        raise Unknown("Name the key: /signal NAME [VALUE] --key KEY.")
    return key, (text[: found.start()] + text[found.end() :]).strip()


# -- here ------------------------------------------------------------------------------------------------


@does("usage")
async def usage(commander: WorkflowController, text: str) -> None:
    tell(commander, "usage", listing.usage(commander.desk, await commander.client.usage()))


@does("agents")
async def agents(commander: WorkflowController, text: str) -> None:
    tell(commander, "agents", listing.agents((await commander.client.threads()).threads))


@does("export")
async def export(commander: WorkflowController, text: str) -> None:
    from nerve.commander.paper import write

    file = one_file("export", text)
    count = write(file, commander.desk)
    note(commander, f"{count} blocks are written to {file}.")


@does("import")
async def import_(commander: WorkflowController, text: str) -> None:
    from nerve.commander.paper import conversation_in, notation_of, read

    file = one_file("import", text)
    source = read(file)
    blocks = conversation_in(source)
    if blocks is not None:
        first = commander.desk.bring(blocks)
        note(commander, f"{len(blocks)} blocks are here again; their results are ::{first} and the next.")
        return
    told = await commander.client.define(source=source, notation=notation_of(file))
    await commander.reload()
    note(commander, f"%{told.id} is defined.")


def one_file(command: str, text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    if len(words) != 1:
        raise Unknown(f"Name one file: /{command} FILE. A name with spaces is written in quotes.")
    return words[0]


@does("theme")
async def theme(commander: WorkflowController, text: str) -> None:
    known = list(commander.themes)
    if text and known and text not in known:
        raise Unknown(f"There is no theme '{text}'. There are: {', '.join(known)}.")
    commander.ask("theme", text)


@does("tui")
async def tui(commander: WorkflowController, text: str) -> None:
    if text not in ("plain", "full"):
        raise Unknown("Say which: /tui plain or /tui full.")
    commander.ask("tui", text)


@does("help")
async def help_(commander: WorkflowController, text: str) -> None:
    from nerve.router.commands import HELP

    name = text.lstrip("/")
    if name and find(name) is None:
        raise Unknown(unknown(name))
    notes = f"\n\n{HELP}" if not name else ""
    tell(commander, "help", help_text(name) + notes)


@does("quit")
async def quit_(commander: WorkflowController, text: str) -> None:
    commander.ask("quit")
