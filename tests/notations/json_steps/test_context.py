"""The context as immutable data."""

import dataclasses
from datetime import UTC, datetime

import pytest

from nerve.notations.json_steps import StepResult, create_context

BEGAN = datetime(2025, 12, 18, tzinfo=UTC)


@pytest.mark.requirement("S2-06")
@pytest.mark.requirement("S2-27")
def test_a_result_is_in_the_new_context_only() -> None:
    before = create_context("test", {"foo": "bar"}, BEGAN)
    after = before.add_result("step1", StepResult("step1", True, "result"))
    assert len(before.results) == 0
    assert len(after.results) == 1
    assert before.get_result("step1") is None
    result = after.get_result("step1")
    assert result is not None
    assert result.data == "result"
    assert (after.workflow_id, after.input, after.start_time) == ("test", {"foo": "bar"}, BEGAN)


@pytest.mark.requirement("S2-06")
@pytest.mark.requirement("S2-27")
def test_iterations_and_errors_are_counted_in_new_contexts() -> None:
    first = create_context("test", {})
    second = first.increment_iteration()
    third = second.increment_iteration().increment_error()
    assert [it.metadata.iteration_count for it in (first, second, third)] == [0, 1, 2]
    assert [it.metadata.error_count for it in (first, second, third)] == [0, 0, 1]


@pytest.mark.requirement("S2-07")
def test_a_result_makes_its_step_the_current_one() -> None:
    context = create_context("test", None)
    assert (context.metadata.current_step, context.metadata.previous_steps) == ("", ())
    for step in ("plan", "code", "plan"):
        context = context.add_result(step, StepResult(step, True))
    assert context.metadata.current_step == "plan"
    assert context.metadata.previous_steps == ("plan", "code", "plan")
    assert list(context.results) == ["plan", "code"]


@pytest.mark.requirement("S2-06")
def test_nothing_in_a_context_can_be_changed() -> None:
    context = create_context("test", {}).add_result("a", StepResult("a", False, error="no"))
    with pytest.raises(TypeError):
        context.results["b"] = StepResult("b", True)  # type: ignore[index]
    for thing in (context, context.metadata, context.results["a"]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, dataclasses.fields(thing)[0].name, "x")


@pytest.mark.requirement("S2-06")
def test_neither_the_input_nor_the_data_of_a_result_can_be_changed() -> None:
    given = {"a": [1, {"b": 2}]}
    context = create_context("test", given).add_result("s", StepResult("s", True, given))
    result = context.get_result("s")
    assert result is not None
    for kept in (context.input, result.data):
        with pytest.raises(TypeError):
            kept["a"] = 3
        with pytest.raises(TypeError):
            kept["a"][1]["b"] = 3
        assert kept == {"a": (1, {"b": 2})}
    given["a"].append(3)
    assert len(context.input["a"]) == 2


@pytest.mark.requirement("S2-08")
def test_a_result_says_how_its_step_ended() -> None:
    names = [field.name for field in dataclasses.fields(StepResult)]
    assert names == ["step_id", "success", "data", "error", "start_time", "end_time", "duration"]
