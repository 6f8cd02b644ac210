"""Write workflows in JSON: the spec itself, or steps where possible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from nerve.notations.json_steps.lowering import (
    DEFAULT_MAX_DURATION_MS,
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_TIMEOUT_MS,
    WORKFLOW_PREFIX,
)
from nerve.notations.json_steps.reader import read_document
from nerve.notations.json_steps.step_schema import CONTINUE_ON_REJECT
from nerve.notations.yaml_keys import GATE_POLICY_KEYS
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.spec.models import WorkflowSpec
from nerve.text.source import InvalidDefinition

MAX_DIFFERENCES = 20
"""Maximum number of reported differences."""


def write_document(data: dict[str, Any]) -> str:
    """Return the full form, the spec itself."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_steps(data: dict[str, Any]) -> tuple[str, list[str]]:
    """Return a workflow as steps, and what steps cannot express; if nothing, it parses back unchanged."""
    spec = normalize_spec(data)
    if spec["body"]["kind"] != "machine":
        return "", [f"the body is of kind {spec['body']['kind']}; only a machine can be written as steps"]
    cannot: list[str] = []
    text = write_document(build_step_file(spec, cannot))
    if cannot:
        return text, cannot
    try:
        again = normalize_spec(read_document(text).data)
    except InvalidDefinition as error:
        return text, [problem.message for problem in error.problems]
    return text, list(islice(iter_differences(spec, again, ""), MAX_DIFFERENCES))


def normalize_spec(data: dict[str, Any]) -> dict[str, Any]:
    """Return a spec without defaults, with its start state first."""
    spec = WorkflowSpec.model_validate(data).model_dump(mode="json", exclude_defaults=True)
    body = spec["body"]
    if body["kind"] == "machine" and (start := body.pop("start", None)):
        body["states"].sort(key=lambda state: state["name"] != start)
    return spec


def build_step_file(spec: dict[str, Any], cannot: list[str]) -> dict[str, Any]:
    limits = spec.get("limits", {})
    document = {"id": spec["name"]} | ({"description": spec["description"]} if "description" in spec else {})
    if (max_iterations := limits.get("iterations", DEFAULT_MAX_ITERATIONS)) != DEFAULT_MAX_ITERATIONS:
        document["max_iterations"] = max_iterations
    if (
        duration := ms_from_seconds(limits.get("wall_time", DEFAULT_MAX_DURATION_MS / 1000))
    ) != DEFAULT_MAX_DURATION_MS:
        document["max_duration_ms"] = duration
    if "context" in spec:
        document["initial_context"] = spec["context"]
    if "workspace" in spec["body"]:
        document["workspace"] = spec["body"]["workspace"]
    states = spec["body"]["states"]
    groups = {
        state["name"]: group[0]["id"] for state in states if (group := group_members(state.get("body") or {}))
    }
    if groups:
        document["parallel"] = True
    steps = [step for state in states for step in steps_of_state(redirect_to_groups(state, groups), cannot)]
    return document | {"steps": steps}


def redirect_to_groups(state: dict[str, Any], groups: dict[str, str]) -> dict[str, Any]:
    """Return a state whose routes lead to the first step of a group instead of the group."""
    routes = [
        {**route, "to": groups.get(route["to"], route["to"])} if "to" in route else route
        for route in state.get("next", [])
    ]
    on_error = state.get("on_error")
    error_route = {"on_error": groups.get(on_error, on_error)} if on_error else {}
    return {**state, "next": routes, **error_route}


def steps_of_state(state: dict[str, Any], cannot: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the step of a state, or the steps of a group in order."""
    node = state.get("body") or {"kind": "nothing"}
    members = group_members(node)
    if not members:
        node_with_id = {"id": state["name"], **node}
        step = step_of_node(node_with_id, cannot, condition="when" in first_route(state)) | route_keys(
            state, node
        )
        yield {**step, "id": state["name"]}
        return
    for member, following in zip(members, [*members[1:], None], strict=True):
        routes = {"next": following["id"]} if following else route_keys(state, node)
        yield step_of_node(member, cannot) | routes


def first_route(state: dict[str, Any]) -> dict[str, Any]:
    return next(iter(state.get("next", [])), {})


def route_keys(state: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the routes of a state in the keys of its step type."""
    targets = [route.get("to") for route in state.get("next", [])]
    keys = ["next"]
    if "when" in first_route(state):
        keys = ["on_reject", "on_approve"] if node["kind"] == "gate" else ["then", "else"]
    routes = {
        key: to for key, to in zip(keys, targets, strict=False) if to is not None or key in ("then", "else")
    }
    if "on_error" in state:
        routes["on_error"] = state["on_error"]
    return routes


# -- steps -------------------------------------------------------------------------------------


def step_of_node(
    node: dict[str, Any], cannot: list[str], condition: bool = False, nested: bool = False
) -> dict[str, Any]:
    step: dict[str, Any] = {"id": node.get("id", "")}
    match node:
        case {"kind": "call", "target": agent}:
            step |= {"type": "agent", "agent": agent} | step_input(node.get("input"))
        case {"kind": "workflow", "workflow": name}:
            step |= {"type": "agent", "agent": WORKFLOW_PREFIX + name} | step_input(
                {"context": node.get("input")}
            )
        case {"kind": "gate"}:
            step |= {"type": "approval"} | ({"message": node["prompt"]} if "prompt" in node else {})
            step |= {key: node[key] for key in GATE_POLICY_KEYS if key in node}
            step |= {"on_reject": CONTINUE_ON_REJECT} if nested and "reject" not in node else {}
        case {"kind": "transform", "expression": expression}:
            step["type"] = "condition" if condition else "transform"
            step[step["type"]] = expression
        case {"kind": "merge", "of": name}:
            step |= {"type": "merge", "of": name}
            step |= {key: node[key] for key in ("method", "on_conflict") if key in node}
        case {"kind": "parallel", "outputs": "list", "branches": branches}:
            parts = [step_of_node(part, cannot, nested=True) for part in branches]
            step |= {"type": "parallel", "steps": parts}
            step |= {"min_success": node["require"]} if "require" in node else {}
        case _:
            cannot.append(f"'{node.get('id', '?')}' of kind {node['kind']} cannot be written as a step")
    copied = ("params", "output_schema", "cwd", "limits", "workspace", *STEP_SETTING_KEYS)
    step |= {key: node[key] for key in copied if key in node}
    policy: dict[str, Any] = {}
    if retry := node.get("retry"):
        policy["max_retries"] = retry.get("attempts", 3)
        if delay := ms_from_seconds(retry.get("delay", 0.5)):
            policy["retry_delay_ms"] = delay
    timeout = node.get("timeout")
    if timeout is not None and not (node["kind"] == "call" and timeout * 1000 == DEFAULT_TIMEOUT_MS):
        policy["timeout_ms"] = ms_from_seconds(timeout)
    if node.get("on_error") == "skip":
        policy["on_error"] = "skip"
    return step | (policy | ({"description": node["description"]} if "description" in node else {}))


def step_input(node_input: Any) -> dict[str, Any]:
    """Return the `input` key of a step that produces this node input."""
    if not isinstance(node_input, dict):
        return {}
    names = [name for name in node_input if name not in ("input", "context")]
    context = node_input.get("context")
    if isinstance(context, dict):
        return {"input": list(context)}
    if not names and isinstance(context, str) and context.startswith("{{ results["):
        names = [context[len("{{ results['") : -len("'] }}")]]
    return {"input": names[0]} if names else {}


def group_members(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the members of an automatic parallel group, or an empty list."""
    match node:
        case {
            "kind": "sequence",
            "steps": [{"kind": "parallel", "branches": branches} as parallel, last],
        }:
            plain_group = "require" not in parallel and str(last.get("expression")).startswith("given[")
            return branches if plain_group else []
    return []


def ms_from_seconds(seconds: float) -> float:
    exact = round(seconds * 1000, 6)
    return int(exact) if exact == int(exact) else exact


# -- differences -------------------------------------------------------------------------------


def iter_differences(expected: Any, got: Any, where: str) -> Iterator[str]:
    """Yield the differences between a spec and the spec of its steps."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            inner = f"{where}.{key}".lstrip(".")
            if key not in expected:
                yield f"{inner} is not set, but steps set it"
            else:
                yield from iter_differences(expected[key], got.get(key, ...), inner)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, pair in enumerate(zip(expected, got, strict=True)):
            yield from iter_differences(*pair, f"{where}[{index}]")
    elif expected != got:
        yield f"{where} cannot be expressed with steps"
