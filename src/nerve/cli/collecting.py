"""`nerve gc`: runs that ended long ago are deleted, after it was said which."""

from __future__ import annotations

import re
from datetime import datetime

from nerve.api.models import Collected
from nerve.cli.common import DEFAULT, Common, Door, Flag, answering
from nerve.cli.exits import COMPLETED
from nerve.cli.usage import UsageError

DAYS = {"h": 1 / 24, "d": 1, "w": 7}
MOST = 36_500
"""Days."""
SHOWN = 20
"""Runs that are listed."""


def gc(
    *,
    older_than: str = "30d",
    output_older_than: str | None = None,
    yes: Flag = False,
    common: Common = DEFAULT,
) -> int:
    """Say which runs ended long ago, and with --yes delete them, with their logs and artifacts.

    Runs that are open stay, whatever their age, and so does everything they have called.

    Parameters
    ----------
    older_than
        How long ago a run must have ended: 30d, 2w, 36h; a day at least.
    output_older_than
        Empty what agents said longer ago than that, in the runs that stay.
    yes
        Delete; without it nothing is changed.
    """
    asked = {"older_than": days(older_than, "--older-than", 1), "dry_run": not yes}
    if output_older_than is not None:
        asked["output_older_than"] = days(output_older_than, "--output-older-than")

    async def do(door: Door) -> int:
        told = await door.client.collect(**asked)
        door.tell(told, lines(told))
        if told.dry_run and (told.runs or told.chunks):
            door.say("Nothing was changed. Do it with: --yes")
        return COMPLETED

    return answering(common, do)


def days(text: str, option: str, least: int = 0) -> float:
    """A time in days, from what a person writes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if found is None:
        raise UsageError(f"{option} {text} is no time: write 30d, 2w or 36h.")
    number = float(found[1]) * DAYS[found[2]]
    if not least <= number <= MOST:
        between = f"from {least} to {MOST:,} days" if least else f"at most {MOST:,} days"
        raise UsageError(f"{option} {text} cannot be: write {between}.")
    return number


def lines(told: Collected) -> list[str]:
    would = "would be " if told.dry_run else ""
    listed = [line(run.run_id, run.workflow, run.state, run.ended_at) for run in told.oldest[:SHOWN]]
    if told.runs > len(listed):
        listed.append(f"… and {told.runs - len(listed)} more")
    about = f"{told.events} events, {told.bytes:,} bytes, {told.files} logs and artifacts"
    listed.append(f"{told.runs} runs {would}deleted ({about})" if told.runs else "No run is that old.")
    if told.chunks:
        listed.append(f"{told.chunks} pieces of output {would}emptied ({told.chunk_bytes:,} bytes)")
    return listed


def line(run_id: str, workflow: str, state: str, ended: datetime) -> str:
    return f"{run_id}  {workflow}  {state}  {ended.astimezone():%Y-%m-%d}"
