"""`nerve facts`, `assert`, `retract` and `signal`: the facts of the dataspace."""

from __future__ import annotations

from typing import Annotated, Any

from nerve.cli.operations import KeyOption, ValueArgument, execute_operation, parse_value
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter

PATTERN_PARAMETER = Parameter(name="PATTERN", help="A record; _ matches anything and ?name captures a value.")
FactArgument = Annotated[
    str, Parameter(name="FACT", help="A record: (label field … :name value …).", allow_leading_hyphen=True)
]


def facts_command(
    pattern: Annotated[str | None, PATTERN_PARAMETER] = None, /, *, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """List the facts that match a pattern, or all facts.

    PATTERN is an S-expression, such as '(review _ :by ?who)', its JSON form, or a label.
    """
    request = {"pattern": parse_fact_argument(pattern)}
    return execute_operation(
        common, "facts", request, lambda page: format_facts(page) or "No facts.", read_only=True
    )


def assert_command(
    fact: FactArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Assert a fact in the dataspace and wake the runs that wait for it.

    FACT is an S-expression, such as '(review "main.py" :by "ann")', or its JSON form.
    """
    request = {"fact": parse_fact_argument(fact), "key": key}
    return execute_operation(common, "assert_fact", request, lambda fact: fact.text, wakes_runs=True)


def retract_command(
    pattern: Annotated[str, PATTERN_PARAMETER],
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Retract the facts that match a pattern, and print them."""
    request = {"fact": parse_fact_argument(pattern), "key": key}
    return execute_operation(
        common, "retract", request, lambda page: format_facts(page) or "No matching facts."
    )


def signal_command(
    label: Annotated[str, Parameter(name="LABEL", help="The label of the signal.")],
    value: ValueArgument = None,
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
    request = {"label": label, "key": key, "value": parse_value(value), "idempotency_key": idempotency_key}
    return execute_operation(common, "signal", request, lambda _: f"signal {label} sent", wakes_runs=True)


def format_facts(page: Any) -> list[str]:
    return [fact.text for fact in page.facts]


def parse_fact_argument(text: str | None) -> Any:
    """Return a fact or pattern: parsed JSON if it starts with `[`, otherwise the text."""
    return parse_value(text) if (text or "").lstrip().startswith("[") else text
