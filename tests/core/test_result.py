"""Result."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.result import OUTCOMES, RESULT_KEYS, Result, census, result_output


@pytest.mark.requirement("S0-71")
def test_a_result_is_a_dict_and_has_its_parts_as_properties() -> None:
    result = Result.failed("no", "Refused", output=1, attributes={"a": 2})
    assert isinstance(result, dict)
    assert json.loads(json.dumps(result)) == result
    assert (result.success, result.output, result.error, result.error_type) == (False, 1, "no", "Refused")
    assert result.attributes == {"a": 2}


def test_a_success_has_no_error() -> None:
    result = Result.ok("out")
    assert result == {"success": True, "output": "out", "attributes": {}}
    assert (result.error, result.error_type) == ("", "")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
shaped = st.dictionaries(st.sampled_from(sorted(RESULT_KEYS - {"attributes"})), values)


@given(values | shaped)
def test_any_return_value_becomes_a_complete_result(value: object) -> None:
    result = Result.of(value)
    assert {"success", "output", "attributes"} <= result.keys() <= RESULT_KEYS
    assert result.success != ("error" in result)
    assert Result.of(result) is result


@given(shaped)
def test_a_dict_is_a_result_exactly_when_it_has_output_or_success(value: dict[str, object]) -> None:
    result = Result.of(value)
    if value.keys() & {"output", "success"}:
        assert result.output == value.get("output")
    else:
        assert result.output == value


def test_an_error_without_success_is_a_failure() -> None:
    assert Result.of({"output": None, "error": "no"}) == Result.failed("no")


def test_missing_fields_of_a_result_are_added() -> None:
    assert Result.of(Result(success=True, output=3)) == Result.ok(3)


def test_an_exception_without_a_message_is_described_by_its_type() -> None:
    result = Result.from_exception(KeyError())
    assert (result.error, result.error_type) == ("KeyError", "KeyError")
    assert isinstance(result.cause, KeyError)


def test_result_output_returns_the_output_or_the_value_itself() -> None:
    assert result_output(Result.ok(3)) == 3
    assert result_output({"output": 3}) == {"output": 3}


def test_a_census_counts_and_names_those_that_did_not_succeed() -> None:
    late = Result.failed("late", "TimeoutError")
    gone = Result.failed("gone", "CancelledError")
    skipped = Result.ok(None, {"skipped": "why"})
    parts = {"a": Result.ok(), "b": Result.failed("no"), "c": late, "d": gone, "e": skipped}
    counts = census(parts)
    assert [counts[kind] for kind in OUTCOMES] == [1, 1, 1, 1, 1]
    assert counts["not_ok"] == {"failed": ["b"], "skipped": ["e"], "timed_out": ["c"], "cancelled": ["d"]}


@given(st.lists(st.booleans()))
def test_a_census_counts_every_part_once(flags: list[bool]) -> None:
    counts = census([Result.ok() if flag else Result.failed("no") for flag in flags])
    assert (counts["ok"], counts["failed"]) == (flags.count(True), flags.count(False))
    assert sum(counts[kind] for kind in OUTCOMES) == len(flags)
