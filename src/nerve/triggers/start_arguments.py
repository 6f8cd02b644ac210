"""What a trigger starts for an event: its condition, input, parameters, label and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.core.triggers import NAMES_BY_KIND, Trigger
from nerve.errors import NerveError
from nerve.expr import EvalError, compile_template
from nerve.expr import compile as compile_expression
from nerve.lazy_dataclass import dataclass

TAG = "trigger"
"""The tag that names the trigger of a run."""
DEPTH_TAG = "trigger-depth"
"""The tag of a run that was started because of a run that a trigger had started: how many came before it."""


class NotStarted(NerveError):
    """An occurrence starts nothing, and why."""


class NotWanted(NotStarted):
    """The condition of the trigger is false, which is usual."""


@dataclass(frozen=True, slots=True)
class StartArguments:
    """The arguments of a start."""

    workflow: str
    input: Any
    params: dict[str, Any]
    key: str
    label: str | None
    tags: dict[str, Any]
    queue: str | None


def make_start(
    trigger: Trigger, occurrence: str, time: str, event: Mapping[str, Any], depth: int = 0
) -> StartArguments:
    """Return what to start for an event; NotStarted if `when` is false or an expression fails."""
    names = NAMES_BY_KIND[trigger.kind]
    scope = {**dict.fromkeys(names), **event, "trigger": trigger.name, "time": time}
    try:
        if trigger.when is not None and not compile_expression(f"!!({trigger.when})")(scope):
            raise NotWanted("when is false")
        given = render(trigger.input, scope) if trigger.has_input else default_input(trigger, event)
        label = render(trigger.label, scope)
        params, tags = render(dict(trigger.params), scope), render(dict(trigger.tags), scope)
    except EvalError as error:
        raise NotStarted(f"an expression failed: {error}") from None
    tags[TAG] = trigger.name
    if depth:
        tags[DEPTH_TAG] = depth
    return StartArguments(
        trigger.workflow,
        given,
        params,
        trigger.start_key(occurrence),
        None if label in (None, "") else str(label),
        tags,
        trigger.queue,
    )


def render(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return a value in which the texts with expressions are replaced by what they give."""
    if isinstance(value, str):
        return compile_template(value).value(scope)
    if isinstance(value, Mapping):
        return {name: render(item, scope) for name, item in value.items()}
    return [render(item, scope) for item in value] if isinstance(value, list) else value


def default_input(trigger: Trigger, event: Mapping[str, Any]) -> Any:
    """Return the input of a trigger that declares none: the event itself."""
    names = NAMES_BY_KIND[trigger.kind]
    main = {"webhook": "body"}.get(trigger.kind, names[0] if names else None)
    return event.get(main) if main is not None else None
