"""The dataspace: `nerve facts`, `assert`, `retract` and `signal`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from nerve.cli.commanding import Key
from nerve.cli.common import DEFAULT, Common, Door, answering
from nerve.cli.exits import COMPLETED
from nerve.cli.inputs import anything

PATTERN = Parameter(name="PATTERN", help="A record with _ for anything and ?name for what is to be told.")
Fact = Annotated[
    str, Parameter(name="FACT", help="A record: (label field … :name value …).", allow_leading_hyphen=True)
]
ALONE = "No server is running: what waits for this goes on with `nerve resume RUN`, or `nerve serve`."


def facts(pattern: Annotated[str | None, PATTERN] = None, /, *, common: Common = DEFAULT) -> int:
    """List the facts that fit a pattern; without one, all.

    PATTERN is an S-expression, such as '(review _ :by ?who)', its JSON form, or a label.
    """

    async def do(door: Door) -> int:
        found = (await door.client.facts(pattern=None if pattern is None else read(pattern))).facts
        told = [fact.model_dump(mode="json") for fact in found]
        door.tell(told, [fact.text for fact in found] or "No facts.")
        return COMPLETED

    return answering(common, do, looks=True)


def assert_(fact: Fact, /, *, key: Key = None, common: Common = DEFAULT) -> int:
    """Assert a fact in the dataspace; every run that waits for it goes on.

    FACT is an S-expression, such as '(review "main.py" :by "ann")', or its JSON form.
    """

    async def do(door: Door) -> int:
        told = await door.client.assert_fact(fact=read(fact), key=key)
        door.tell(told, told.text)
        return await settled(door)

    return answering(common, do, writes=True)


def retract(pattern: Annotated[str, PATTERN], /, *, key: Key = None, common: Common = DEFAULT) -> int:
    """Retract the facts that fit a pattern, and print them."""

    async def do(door: Door) -> int:
        found = (await door.client.retract(fact=read(pattern), key=key)).facts
        told = [fact.model_dump(mode="json") for fact in found]
        door.tell(told, [fact.text for fact in found] or "No facts fit.")
        return COMPLETED

    return answering(common, do)


def signal(
    label: Annotated[str, Parameter(name="LABEL", help="What the signal is called.")],
    value: Annotated[str | None, Parameter(name="VALUE", help="JSON, or a text.")] = None,
    /,
    *,
    key: str | None = None,
    idempotency_key: Key = None,
    common: Common = DEFAULT,
) -> int:
    """Send a signal; every run that waits for it goes on.

    VALUE is JSON, or a text.

    Parameters
    ----------
    key
        The key of the signal, such as the label of one run.
    """

    async def do(door: Door) -> int:
        given = None if value is None else anything(value)
        told = await door.client.signal(label=label, key=key, value=given, idempotency_key=idempotency_key)
        door.tell(told, f"signal {label} sent")
        return await settled(door)

    return answering(common, do, writes=True)


async def settled(door: Door) -> int:
    """In this process, wait for the runs that were begun by this."""
    if door.session is not None:
        for drive in list(door.session.engine.drives.values()):
            await door.rests(drive.run)
        door.say(ALONE)
    return COMPLETED


def read(text: str) -> Any:
    """A fact or a pattern: JSON if it looks like it, else its text."""
    return anything(text) if text.lstrip().startswith("[") else text
