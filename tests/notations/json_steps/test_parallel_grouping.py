"""What `"parallel": true` puts side by side, and what it does not."""

import json
from typing import Any

import pytest

from nerve.notations.json_steps import read_document
from nerve.text.source import Document


def agent(id: str, next: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "agent", "agent": "x", "input": [], "next": next, **more}


def transform(id: str, expression: str, next: str | None = None) -> dict[str, Any]:
    return {"id": id, "type": "transform", "transform": expression, "next": next}


def document(*steps: dict[str, Any], parallel: bool = True) -> Document:
    return read_document(json.dumps({"id": "w", "parallel": parallel, "steps": list(steps)}))


def groups(*steps: dict[str, Any]) -> list[list[str]]:
    """The ids of what runs side by side."""
    states = document(*steps).data["body"]["states"]
    return [
        [branch["id"] for branch in state["body"]["steps"][0]["branches"]]
        for state in states
        if state["name"].startswith("auto-parallel")
    ]


@pytest.mark.requirement("S2-25")
def test_steps_with_explicit_inputs_run_in_parallel() -> None:
    read_from = document(agent("a", "b"), agent("b", "c"), {**agent("c"), "input": ["a", "b"]})
    first, second = read_from.data["body"]["states"]
    assert first["name"] == "auto-parallel"
    assert first["next"] == [{"to": "c"}]
    assert "after_failure" not in first
    assert second["name"] == "c"
    assert "'a', 'b' run in parallel as 'auto-parallel'" in read_from.warnings[0].message
    assert read_from.warnings[0].severity == "note"


@pytest.mark.requirement("S2-25")
def test_a_group_gives_what_its_last_step_would_have_given() -> None:
    state = document(agent("a", "b"), agent("b")).data["body"]["states"][0]
    assert state["body"]["steps"][1] == {"kind": "transform", "expression": "given['b']"}


@pytest.mark.requirement("S2-25")
def test_nothing_is_grouped_unless_asked_for() -> None:
    states = document(agent("a", "b"), agent("b"), parallel=False).data["body"]["states"]
    assert [state["name"] for state in states] == ["a", "b"]


@pytest.mark.requirement("S2-25")
def test_an_agent_that_sees_everything_is_reported_as_not_independent() -> None:
    def open(id: str, next: str | None = None) -> dict[str, Any]:
        return {"id": id, "type": "agent", "agent": "x", "next": next}

    assert groups(open("a", "b"), open("b")) == []
    assert groups(agent("a", "b"), {**agent("b"), "input": "a"}) == []
    assert "no steps are provably independent" in document(open("a", "b"), open("b")).warnings[0].message


def test_a_chain_is_cut_where_a_step_needs_one_before_it() -> None:
    needs_b = {**agent("c", "d"), "input": ["b"]}
    assert groups(agent("a", "b"), agent("b", "c"), needs_b, agent("d")) == [["a", "b"], ["c", "d"]]


def test_ways_lead_to_the_group_and_not_into_it() -> None:
    check = {"id": "k", "type": "condition", "condition": "true", "then": "a", "else": None}
    states = document(agent("a", "b"), agent("b", "t"), transform("t", "given", "k"), check).data["body"][
        "states"
    ]
    assert [state["name"] for state in states] == ["auto-parallel", "t", "k"]
    assert states[2]["next"] == [{"when": "given", "to": "auto-parallel"}, {}]
    to_middle = {**check, "then": "b"}
    assert groups(agent("a", "b"), agent("b", "t"), transform("t", "given", "k"), to_middle) == []


def test_a_step_in_the_middle_that_is_the_start_is_not_grouped_with_those_before() -> None:
    assert groups(agent("b"), agent("a", "b")) == []


@pytest.mark.parametrize("handler", ["end", "skip"])
def test_a_step_with_a_handler_of_its_own_is_not_grouped(handler: str) -> None:
    assert groups(agent("a", "b"), agent("b", "end", on_error=handler), agent("end")) == []


def test_a_step_whose_failure_a_condition_handles_is_not_grouped() -> None:
    check = {"id": "k", "type": "condition", "condition": "true", "then": None, "else": None}
    assert groups(agent("a", "b"), agent("b", "k"), check) == []


def test_workflows_see_only_what_they_are_given() -> None:
    def child(id: str, next: str | None = None) -> dict[str, Any]:
        return {"id": id, "type": "agent", "agent": "workflow:x", "next": next}

    assert groups(child("a", "b"), child("b")) == [["a", "b"]]
    assert groups(child("a", "b"), {**child("b"), "input": "a"}) == []


@pytest.mark.parametrize(
    ("expression", "independent"),
    [
        ("input.x * 2", True),
        ("context.first.n", True),
        ("results['first'].n + steps[\"first\"].output", True),
        ("context.a.n", False),
        ("context?.a", False),
        ("results['a']", False),
        ("results['' + 'a']", False),
        ("results[input.which]", False),
        ("results['\\x61']", False),
        ("context.first-context.a", False),
        ("Object.values(results)", False),
        ("(all => all.a)(context)", False),
        ("({...steps})", False),
        ("given", False),
        ("`${results}`", False),
    ],
)
def test_a_transform_is_grouped_only_if_it_names_all_it_reads(expression: str, independent: bool) -> None:
    steps = [agent("first", "stop"), {"id": "stop", "type": "approval", "next": "a"}]
    found = groups(*steps, agent("a", "t"), transform("t", expression))
    assert found == ([["a", "t"]] if independent else [])


def test_the_name_of_a_group_is_free() -> None:
    states = document(agent("auto-parallel", "b"), agent("b")).data["body"]["states"]
    assert [state["name"] for state in states] == ["auto-parallel-2"]


def test_thousands_of_steps_are_grouped_in_bounds() -> None:
    steps = [transform(f"s{n}", "input", f"s{n + 1}") for n in range(2000)]
    assert {len(group) for group in groups(*steps)} == {100}
