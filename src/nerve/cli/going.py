"""Commands after which a run goes on: in the server of the project, or else in this process."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from nerve.api.models import RunTold
from nerve.cli.answers import Answers
from nerve.cli.common import Door, Flag, again, command
from nerve.cli.exits import COMPLETED
from nerve.cli.story import Story, outcome_of
from nerve.cli.telling import tell

Wait = Annotated[
    Flag, Parameter(help="Show the run until it ends or waits for somebody; without a server always.")
]


async def gone_on(
    door: Door, run: RunTold, wait: bool, answers: Answers | None = None, known: int = 0, did: str = ""
) -> int:
    """Tell how a run goes on; in this process, show it for as long as it can. The exit code."""
    if door.session is None and not wait:
        door.tell(outcome_of(run).to_dict(), run.run_id)
        if not door.common.json:
            door.say(f"{did or 'It goes on'} in the server. See it: {command('watch', run.run_id)}")
        return COMPLETED
    outcome = await Story(door, run.run_id, answers, known).told()
    return tell(outcome, again(door.common, outcome.run_id), door.common.json, door.out, door.common.quiet)
