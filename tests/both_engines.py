"""Tests that run with both engines: on the local one, and in Temporal.

`@pytest.mark.local(reason)` is for a test of the local engine alone, because it looks into this process.
`@pytest.mark.differs(row)` is for behaviour that Temporal does not have; the row is that of the table in
docs/guides/temporal.md.
"""

from __future__ import annotations

import inspect

import pytest

QUICK_TESTS = frozenset(
    {
        "test_a_second_message_with_the_same_key_is_not_sent",
        "test_a_repeated_update_gets_the_first_reply_also_when_the_run_has_ended",
        "test_an_update_whose_handler_raises_fails_and_the_run_continues",
        "test_a_chain_of_runs_has_the_value_of_its_last_run",
        "test_unread_messages_are_carried_over_in_order_with_their_keys",
        "test_the_budget_counts_over_the_chain",
        "test_open_children_and_tasks_end_with_the_run",
        "test_a_failed_compensation_does_not_prevent_the_others",
        "test_a_typed_step_and_the_run_it_fails_record_where",
        "test_a_child_run_does_not_inherit_tags",
        "test_a_detached_run_outlives_the_run_that_started_it",
    }
)
"""The tests that `make test` runs in Temporal; `make test-full` runs all."""


def parametrize_engine(metafunc: pytest.Metafunc) -> None:
    """Run a test once with each engine that it is for."""
    function, fixtures = metafunc.definition, metafunc.fixturenames
    is_for_one = "temporal_sessions" in fixtures or any(
        function.get_closest_marker(name) for name in ("local", "differs")
    )
    if "engine" not in fixtures or is_for_one or not inspect.iscoroutinefunction(metafunc.function):
        return
    marks = [pytest.mark.temporal, pytest.mark.cluster]
    if function.name not in QUICK_TESTS:
        marks.append(pytest.mark.full)
    metafunc.parametrize("engine", ["local", pytest.param("temporal", marks=marks)], indirect=True)
