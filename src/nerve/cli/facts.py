"""The dataspace: `nerve facts`, `assert`, `retract` and `signal`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from nerve.cli.context import DEFAULT_OPTIONS, CliContext, CommonOptions, run_with_api
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.run_control import KeyOption
from nerve.cli.workflow_inputs import parse_json_or_text

PATTERN_PARAMETER = Parameter(name="PATTERN", help="A record; _ matches anything and ?name captures a value.")
FactArgument = Annotated[
    str, Parameter(name="FACT", help="A record: (label field … :name value …).", allow_leading_hyphen=True)
]
NO_SERVER_NOTICE = (
    "No server is running. To resume runs that wait for this: `nerve resume RUN`, or `nerve serve`."
)


def facts_command(
    pattern: Annotated[str | None, PATTERN_PARAMETER] = None, /, *, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """List the facts that match a pattern, or all facts.

    PATTERN is an S-expression, such as '(review _ :by ?who)', its JSON form, or a label.
    """

    async def do(context: CliContext) -> int:
        matches = (
            await context.client.facts(pattern=None if pattern is None else parse_fact_argument(pattern))
        ).facts
        payload = [fact.model_dump(mode="json") for fact in matches]
        context.print_result(payload, [fact.text for fact in matches] or "No facts.")
        return COMPLETED

    return run_with_api(common, do, read_only=True)


def assert_command(
    fact: FactArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Assert a fact in the dataspace and wake the runs that wait for it.

    FACT is an S-expression, such as '(review "main.py" :by "ann")', or its JSON form.
    """

    async def do(context: CliContext) -> int:
        response = await context.client.assert_fact(fact=parse_fact_argument(fact), key=key)
        context.print_result(response, response.text)
        return await wait_for_started_runs(context)

    return run_with_api(common, do, writes=True)


def retract_command(
    pattern: Annotated[str, PATTERN_PARAMETER],
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Retract the facts that match a pattern, and print them."""

    async def do(context: CliContext) -> int:
        retracted = (await context.client.retract(fact=parse_fact_argument(pattern), key=key)).facts
        payload = [fact.model_dump(mode="json") for fact in retracted]
        context.print_result(payload, [fact.text for fact in retracted] or "No matching facts.")
        return COMPLETED

    return run_with_api(common, do)


def signal_command(
    label: Annotated[str, Parameter(name="LABEL", help="The label of the signal.")],
    value: Annotated[str | None, Parameter(name="VALUE", help="JSON, or plain text.")] = None,
    /,
    *,
    key: str | None = None,
    idempotency_key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a signal and wake the runs that wait for it.

    VALUE is JSON, or plain text.

    Parameters
    ----------
    key
        The key of the signal, for example the label of a run.
    """

    async def do(context: CliContext) -> int:
        parsed_value = None if value is None else parse_json_or_text(value)
        response = await context.client.signal(
            label=label, key=key, value=parsed_value, idempotency_key=idempotency_key
        )
        context.print_result(response, f"signal {label} sent")
        return await wait_for_started_runs(context)

    return run_with_api(common, do, writes=True)


async def wait_for_started_runs(context: CliContext) -> int:
    """Without a server, wait until the runs woken in this process are idle."""
    if context.session is not None:
        for drive in list(context.session.engine.executors.values()):
            await context.wait_until_idle(drive.run)
        context.info(NO_SERVER_NOTICE)
    return COMPLETED


def parse_fact_argument(text: str) -> Any:
    """Return a fact or pattern: parsed JSON if it starts with `[`, otherwise the text."""
    return parse_json_or_text(text) if text.lstrip().startswith("[") else text
