"""`nerve route`: which workflow a text asks for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from nerve.cli.common import DEFAULT, Common, Door, Flag, answering
from nerve.cli.exits import COMPLETED
from nerve.cli.going import Wait, gone_on


def route(
    text: Annotated[str, Parameter(name="TEXT")],
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
        if told.run is not None:
            door.say(f"{told.workflow}: {told.reason}")
            return await gone_on(door, told.run, wait, did="It runs")
        what = told.workflow if told.kind == "workflow" else told.kind
        door.tell(told, f"{what}  {told.text or told.reason}".rstrip())
        return COMPLETED

    return answering(common, do, writes=start)
