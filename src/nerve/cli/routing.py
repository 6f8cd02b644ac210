"""`nerve route`: which workflow a text asks for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from nerve.api.models import RouteTold
from nerve.cli.common import DEFAULT, Common, Door, Flag, answering, command
from nerve.cli.exits import COMPLETED
from nerve.cli.going import Wait, gone_on


def route(
    text: Annotated[str, Parameter(name="TEXT", help="What somebody wants, in words.")],
    /,
    *,
    start: Flag = False,
    wait: Wait = False,
    common: Common = DEFAULT,
) -> int:
    """Say which workflow a text asks for.

    Parameters
    ----------
    start
        Start it.
    """

    async def do(door: Door) -> int:
        told = await door.client.route(text=text, start=start)
        for warning in (told.model_extra or {}).get("warnings", ()):
            door.say(f"warning: {warning}")
        if told.run is not None:
            door.say(f"{told.workflow}: {told.reason or 'an agent has decided'}")
            return await gone_on(door, told.run, wait, did="It runs")
        door.tell(told, lines(told))
        if told.reason and not common.json:
            door.say(f"({told.reason})")
        return COMPLETED

    return answering(common, do, writes=start)


def lines(told: RouteTold) -> list[str]:
    """The workflow that is meant; or what is asked back, with the commands that would start something."""
    if told.kind == "workflow":
        return [f"{told.workflow}  {told.text}".rstrip()]
    more = told.model_extra or {}
    ways = [command("start", name, told.text) for name in more.get("candidates", ())]
    return [f"{told.kind}  {more.get('question') or more.get('reply') or told.text}".rstrip(), *ways]
