"""Writes workflows down in JSON: the spec itself, or steps where steps can say it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from nerve.notations.json_steps.lower import (
    CHILD,
    DURATION,
    ITERATIONS,
    TIMEOUT,
)
from nerve.notations.json_steps.reader import read
from nerve.notations.json_steps.shape import CONTINUE
from nerve.spec.models import WorkflowSpec
from nerve.spec.source import Unreadable

TOLD = 20
"""Differences that are named."""


def write(data: dict[str, Any]) -> str:
    """The full form: the spec as it is."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_steps(data: dict[str, Any]) -> tuple[str, list[str]]:
    """A workflow as steps, and what of it steps cannot say; with nothing to say it reads back as it was."""
    spec = plain(data)
    if spec["body"]["kind"] != "machine":
        return "", [f"the body is of kind {spec['body']['kind']}; only a machine can be written as steps"]
    cannot: list[str] = []
    text = write(file_of(spec, cannot))
    return text, cannot or differences_of(spec, text)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """A spec in its plain form, its start first."""
    spec = WorkflowSpec.model_validate(data).model_dump(mode="json", exclude_defaults=True)
    body = spec["body"]
    if body["kind"] == "machine" and (start := body.pop("start", None)):
        body["states"].sort(key=lambda state: state["name"] != start)
    return spec


def file_of(spec: dict[str, Any], cannot: list[str]) -> dict[str, Any]:
    limits = spec.get("limits", {})
    made = {"id": spec["name"]} | ({"description": spec["description"]} if "description" in spec else {})
    if (most := limits.get("iterations", ITERATIONS)) != ITERATIONS:
        made["max_iterations"] = most
    if (duration := milliseconds(limits.get("wall_time", DURATION / 1000))) != DURATION:
        made["max_duration_ms"] = duration
    if "context" in spec:
        made["initial_context"] = spec["context"]
    states = spec["body"]["states"]
    groups = {
        state["name"]: group[0]["id"] for state in states if (group := group_of(state.get("body") or {}))
    }
    if groups:
        made["parallel"] = True
    steps = [step for state in states for step in steps_of_state(into(state, groups), cannot)]
    return made | {"steps": steps}


def into(state: dict[str, Any], groups: dict[str, str]) -> dict[str, Any]:
    """A state whose ways lead to the first step of a group, and not to the group."""
    ways = [
        {**way, "to": groups.get(way["to"], way["to"])} if "to" in way else way
        for way in state.get("next", [])
    ]
    on_error = state.get("on_error")
    led = {"on_error": groups.get(on_error, on_error)} if on_error else {}
    return {**state, "next": ways, **led}


def steps_of_state(state: dict[str, Any], cannot: list[str]) -> Iterator[dict[str, Any]]:
    """The step of a state, or the steps of a group, one after the other."""
    node = state.get("body") or {"kind": "nothing"}
    members = group_of(node)
    if not members:
        named = {"id": state["name"], **node}
        step = step_of_node(named, cannot, condition="when" in first_way(state)) | routes_of(state, node)
        yield {**step, "id": state["name"]}
        return
    for member, following in zip(members, [*members[1:], None], strict=True):
        routes = {"next": following["id"]} if following else routes_of(state, node)
        yield step_of_node(member, cannot) | routes


def first_way(state: dict[str, Any]) -> dict[str, Any]:
    return next(iter(state.get("next", [])), {})


def routes_of(state: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Where a state goes on, in the keys of its type of step."""
    ways = [way.get("to") for way in state.get("next", [])]
    keys = ["next"]
    if "when" in first_way(state):
        keys = ["on_reject", "on_approve"] if node["kind"] == "gate" else ["then", "else"]
    routes = {
        key: to for key, to in zip(keys, ways, strict=False) if to is not None or key in ("then", "else")
    }
    if "on_error" in state:
        routes["on_error"] = state["on_error"]
    return routes


# -- steps -------------------------------------------------------------------------------------


def step_of_node(
    node: dict[str, Any], cannot: list[str], condition: bool = False, nested: bool = False
) -> dict[str, Any]:
    made: dict[str, Any] = {"id": node.get("id", "")}
    match node:
        case {"kind": "call", "target": agent}:
            made |= {"type": "agent", "agent": agent} | input_of(node.get("input"))
        case {"kind": "workflow", "workflow": name}:
            made |= {"type": "agent", "agent": CHILD + name} | input_of({"context": node.get("input")})
        case {"kind": "gate"}:
            made |= {"type": "approval"} | ({"message": node["prompt"]} if "prompt" in node else {})
            made |= {"on_reject": CONTINUE} if nested and "reject" not in node else {}
        case {"kind": "transform", "expression": expression}:
            made["type"] = "condition" if condition else "transform"
            made[made["type"]] = expression
        case {"kind": "parallel", "outputs": "list", "branches": branches}:
            parts = [step_of_node(part, cannot, nested=True) for part in branches]
            made |= {"type": "parallel", "steps": parts}
            made |= {"min_success": node["require"]} if "require" in node else {}
        case _:
            cannot.append(f"'{node.get('id', '?')}' of kind {node['kind']} is no step")
    made |= {key: node[key] for key in ("params", "output_schema", "limits") if key in node}
    return made | policy_of(node)


def input_of(given: Any) -> dict[str, Any]:
    """What an `input` of a step must say to give this."""
    if not isinstance(given, dict):
        return {}
    named = [name for name in given if name not in ("input", "context")]
    context = given.get("context")
    if isinstance(context, dict):
        return {"input": list(context)}
    if not named and isinstance(context, str) and context.startswith("{{ results["):
        named = [context[len("{{ results['") : -len("'] }}")]]
    return {"input": named[0]} if named else {}


def policy_of(node: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if retry := node.get("retry"):
        made["max_retries"] = retry.get("attempts", 3)
        if delay := milliseconds(retry.get("delay", 0.5)):
            made["retry_delay_ms"] = delay
    timeout = node.get("timeout")
    if timeout is not None and not (node["kind"] == "call" and timeout * 1000 == TIMEOUT):
        made["timeout_ms"] = milliseconds(timeout)
    if node.get("on_error") == "skip":
        made["on_error"] = "skip"
    return made | ({"description": node["description"]} if "description" in node else {})


def group_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of a group that was made because they are independent."""
    match node:
        case {
            "kind": "sequence",
            "steps": [{"kind": "parallel", "branches": branches} as side_by_side, last],
        }:
            plain_group = "require" not in side_by_side and str(last.get("expression")).startswith("given[")
            return branches if plain_group else []
    return []


def milliseconds(seconds: float) -> float:
    exact = round(seconds * 1000, 6)
    return int(exact) if exact == int(exact) else exact


# -- what cannot be said -----------------------------------------------------------------------


def differences_of(spec: dict[str, Any], text: str) -> list[str]:
    """Where the steps say something else than the spec, as reading them again shows."""
    try:
        again = plain(read(text).data)
    except Unreadable as error:
        return [problem.message for problem in error.problems]
    return list(islice(differing(spec, again, ""), TOLD))


def differing(wanted: Any, got: Any, where: str) -> Iterator[str]:
    """What of a spec is other when it was written as steps."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in [*wanted, *(key for key in got if key not in wanted)]:
            inner = f"{where}.{key}".lstrip(".")
            if key not in wanted:
                yield f"{inner} is not set, but steps set it"
            else:
                yield from differing(wanted[key], got.get(key, ...), inner)
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, pair in enumerate(zip(wanted, got, strict=True)):
            yield from differing(*pair, f"{where}[{index}]")
    elif wanted != got:
        yield f"{where} cannot be said with steps"
