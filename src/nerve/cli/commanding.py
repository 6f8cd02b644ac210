"""Doing something to a run: `nerve answer`, `approve`, `reject`, `pause`, `steer`, `stop` and the others."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from nerve.api import ApiError
from nerve.api.models import GateTold
from nerve.cli.answers import name_of, names_of
from nerve.cli.bounds import bounds
from nerve.cli.common import DEFAULT, Common, Door, Run, answering, command
from nerve.cli.exits import COMPLETED
from nerve.cli.flags import Many
from nerve.cli.going import Wait, gone_on
from nerve.cli.inputs import anything
from nerve.cli.story import outcome_of
from nerve.cli.usage import UsageError, stopped
from nerve.commander.core import choosing
from nerve.commander.core.gates import NO, YES, chosen

Gate = Annotated[str | None, Parameter(help="Its id, its name or its path; needed where several are open.")]
Key = Annotated[str | None, Parameter(help="The same command with the same key is done once.")]
Reason = Annotated[str, Parameter(help="Why; it is kept with the run.")]


def answer(
    run: Run,
    answer: Annotated[
        str, Parameter(name="ANSWER", help="The answer, the number of a choice, or JSON for a form.")
    ],
    /,
    *,
    gate: Gate = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Answer an open gate of a run; a choice may be named by its number."""
    about = {"key": key, "reason": reason}
    return answering(common, lambda door: given(door, run, gate, about, wait, lambda found: answer))


def approve(
    run: Run,
    /,
    *,
    gate: Gate = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Answer an open gate of a run with the choice that approves."""
    about = {"key": key, "reason": reason}
    return answering(common, lambda door: given(door, run, gate, about, wait, lambda it: meant(it, YES)))


def reject(
    run: Run,
    /,
    *,
    gate: Gate = None,
    reason: Reason = "",
    key: Key = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Answer an open gate of a run with the choice that rejects."""
    about = {"key": key, "reason": reason}
    return answering(common, lambda door: given(door, run, gate, about, wait, lambda it: meant(it, NO)))


def meant(gate: GateTold, words: tuple[str, ...]) -> str:
    """The one choice of a gate that says this; nothing is guessed."""
    try:
        return choosing.meant(gate, words, lambda gate, text: command("answer", gate.run_id, text))
    except choosing.Unsaid as error:
        told = str(error)
        raise UsageError(stopped(told[:1].lower() + told[1:])) from None


async def given(
    door: Door, run: str, gate: str | None, about: dict[str, str | None], wait: bool, say: Any
) -> int:
    run_id = await door.taken_up(run)
    known = await door.client.run(run=run_id)
    asked: dict[str, Any] = {"run": run_id, **about}
    open_ = exact = [each for each in known.gates if gate is None or gate in names_of(each)]
    if gate is not None and not exact:
        open_ = [each for each in known.gates if any(name.startswith(gate) for name in names_of(each))]
    if len(open_) == 1:
        text = say(open_[0])
        # The api knows whether a gate that is over had just that name, and takes it for no other then.
        asked |= {
            "gate": open_[0].gate_id if exact else gate,
            "answer": chosen(text, open_[0].choices or []),
        }
    elif len(open_) > 1:
        names = ", ".join(f"{each.gate_id} ({name_of(each)})" for each in open_)
        raise ApiError("conflict", f"several gates are open: {names}", "Name one of them: --gate GATE")
    else:  # the api says why: answered already, over, or never there
        asked |= {
            "gate": gate,
            "answer": say(GateTold(gate_id="", run_id=run_id, path="/", prompt="", options=["yes", "no"])),
        }
    await door.client.answer(**asked)
    now = await door.client.run(run=run_id)
    return await gone_on(door, now, wait, known=known.last_seq, did="Answered; it goes on")


def pause(run: Run, /, *, key: Key = None, common: Common = DEFAULT) -> int:
    """Let nothing new begin in a run; what is running is finished. `nerve resume` goes on."""

    async def do(door: Door) -> int:
        told = await door.client.pause(run=run, key=key)
        door.tell(outcome_of(told).to_dict(), f"{told.run_id} {told.state}")
        return COMPLETED

    return answering(common, do)


def steer(
    run: Run,
    text: Annotated[str, Parameter(name="TEXT", help="What it is told.", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    key: Key = None,
    common: Common = DEFAULT,
) -> int:
    """Say something to an agent at work, in the server of this project.

    Parameters
    ----------
    path
        The step; may be left out where only one agent listens.
    """

    async def do(door: Door) -> int:
        told = await door.client.steer(run=run, text=text, path=path, key=key)
        door.tell(told, f"{told.run_id} {told.path} was told")
        return COMPLETED

    return answering(common, do)


def stop(run: Run, /, *, reason: Reason = "", key: Key = None, common: Common = DEFAULT) -> int:
    """End a run, with everything it has started."""

    async def do(door: Door) -> int:
        told = await door.client.stop(run=run, reason=reason, key=key)
        door.tell(outcome_of(told).to_dict(), f"{told.run_id} {told.state}")
        return COMPLETED

    return answering(common, do)


def retry(
    run: Run, /, *, path: str = "", key: Key = None, wait: Wait = False, common: Common = DEFAULT
) -> int:
    """Go on with a held run, or with a copy of a finished one from its first failure.

    Parameters
    ----------
    path
        The path to run again, of a run that is held.
    """

    async def do(door: Door) -> int:
        before = await door.client.run(run=run)
        told = await door.client.retry(run=run, path=path, key=key)
        same = told.run_id == before.run_id
        return await gone_on(
            door, told, wait, known=before.last_seq if same else 0, did="Tried again; it runs"
        )

    return answering(common, do)


def skip(
    run: Run,
    /,
    *,
    path: str = "",
    output: str | None = None,
    key: Key = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Settle the path that a run is held at, as if it had been done.

    Parameters
    ----------
    path
        The path; the one it is held at, if it is left out.
    output
        What it gave: JSON, or a text.
    """

    async def do(door: Door) -> int:
        before = await door.client.run(run=run)
        at = path or str((before.held or {}).get("path") or "")
        gave = None if output is None else anything(output)
        told = await door.client.skip(run=run, path=at, output=gave, key=key)
        return await gone_on(door, told, wait, known=before.last_seq, did="Skipped; it goes on")

    return answering(common, do)


def fork(
    run: Run,
    /,
    *,
    at: str | None = None,
    input: str | None = None,
    override: Many = (),
    limit: Many = (),
    key: Key = None,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Start a run that takes over what another has settled, and goes its own way from a path on.

    Parameters
    ----------
    at
        The path from which on it is run again.
    input
        The new input of that step, or of the workflow: JSON, or a text.
    override
        PATH:NAME=VALUE changes a setting of a step, which is run again; can be given several times.
    limit
        NAME=NUMBER raises a limit of the run, /STEP:NAME=NUMBER that of a step; can be given several times.
    """
    changed: dict[str, Any] = {} if input is None else {"input": anything(input)}
    if override:
        changed["overrides"] = overrides(override)
    if limit:
        changed["limits"] = bounds(limit)

    async def do(door: Door) -> int:
        told = await door.client.fork(run=run, at=at, key=key, **changed)
        return await gone_on(door, told, wait, did="It runs")

    return answering(common, do)


def overrides(given: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for each in given:
        place, equals, value = each.partition("=")
        path, colon, name = place.rpartition(":")
        if not (equals and colon and path and name):
            raise UsageError(f"--override {each} is not of the form PATH:NAME=VALUE.")
        made.setdefault(path, {})[name] = anything(value)
    return made
