"""Policies of steps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.nodes import MockNode, Policy, Result, Retry
from nerve.core.policy import NO_POLICY

retries = st.builds(
    Retry,
    attempts=st.integers(1, 5000),
    delay=st.floats(0, 100),
    factor=st.floats(1, 10),
    cap=st.floats(0, 1000),
    jitter=st.floats(0, 2),
)


@given(retries, st.integers(1, 5000), st.floats(0, 1))
def test_a_backoff_is_capped_and_never_shrinks(retry: Retry, attempt: int, chance: float) -> None:
    pause = retry.backoff_seconds(attempt, chance)
    assert 0 <= pause <= retry.cap * (1 + retry.jitter)
    assert pause <= retry.backoff_seconds(attempt + 1, chance)


def test_the_backoffs_grow_up_to_the_cap() -> None:
    retry = Retry(5, delay=1, factor=3, cap=10)
    assert [retry.backoff_seconds(attempt, 0.0) for attempt in (1, 2, 3, 4)] == [1, 3, 9, 10]


def test_jitter_adds_its_fraction_of_the_backoff() -> None:
    assert Retry(delay=2, jitter=0.5).backoff_seconds(1, chance=1.0) == 3


def test_without_a_delay_every_backoff_is_zero() -> None:
    assert Retry(9999, delay=0).backoff_seconds(5000, 1.0) == 0


@pytest.mark.requirement("C-14")
@given(st.integers(1, 50))
def test_attempts_is_the_total_number_of_attempts(attempts: int) -> None:
    retry, failed = Retry(attempts), Result.failed("no")
    assert [retry.should_retry(failed, number) for number in range(1, attempts + 1)] == [True] * (
        attempts - 1
    ) + [False]


def test_attempts_can_be_unlimited() -> None:
    assert all(Retry(None).should_retry(Result.failed("no"), number) for number in (1, 3, 10**6))


@pytest.mark.parametrize(
    ("retry", "error", "is_retried"),
    [
        (Retry(retry_on=OSError), ConnectionResetError("down"), True),
        (Retry(retry_on=(OSError, KeyError)), KeyError("id"), True),
        (Retry(retry_on=OSError), ValueError("bad"), False),
        (Retry(not_on=ValueError), UnicodeDecodeError("utf-8", b"", 0, 1, "bad"), False),
        (Retry(not_on=ValueError), OSError("down"), True),
        (Retry(retry_on=OSError, not_on=ConnectionError), ConnectionResetError("down"), False),
        (Retry(retry_on=OSError, not_on=ConnectionError), TimeoutError("late"), True),
    ],
)
def test_exception_types_decide_what_is_retried(retry: Retry, error: Exception, is_retried: bool) -> None:
    assert retry.should_retry(Result.from_exception(error), 1) is is_retried


def test_an_error_that_another_process_reported_is_matched_by_its_name() -> None:
    assert Retry(retry_on=TimeoutError).should_retry(Result.failed("late", "TimeoutError"), 1)
    assert not Retry(not_on=TimeoutError).should_retry(Result.failed("late", "TimeoutError"), 1)


def test_a_success_is_not_retried() -> None:
    assert not Retry(5).should_retry(Result.ok(), 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Retry(0), "Retry.attempts must be at least 1, got 0"),
        (lambda: Retry(on="TimeoutError"), "Retry.on must be a tuple of names"),  # type: ignore[arg-type]
        (lambda: Retry(retry_on="OSError"), "Retry.retry_on must be exception types such as"),  # type: ignore[arg-type]
        (lambda: Retry(not_on=(int,)), "Retry.not_on must be exception types such as"),  # type: ignore[arg-type]
        (lambda: Retry(on=TimeoutError), "Retry.on must be a tuple of names"),  # type: ignore[arg-type]
        (lambda: MockNode(timeout=-1), "timeout must be a non-negative number of seconds, got -1"),
        (
            lambda: MockNode(idle_timeout=-1),
            "idle_timeout must be a non-negative number of seconds, got -1",
        ),
        (lambda: MockNode(on_error="ignore"), "on_error must be 'fail', 'skip' or a node, got 'ignore'"),
        (lambda: MockNode(effect="twice"), "effect must be 'repeat' or 'once', got 'twice'"),
    ],
)
def test_an_invalid_policy_is_rejected(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_an_unknown_setting_is_rejected() -> None:
    with pytest.raises(TypeError, match="retires"):
        MockNode(retires=3)


policies = st.builds(
    Policy,
    retry=st.none() | st.just(Retry(2)),
    timeout=st.none() | st.sampled_from([0, 1.0]),
    idle_timeout=st.none() | st.just(2.0),
    on_error=st.sampled_from([None, "fail", "skip"]),
    effect=st.sampled_from([None, "once", "repeat"]),
)


@given(policies, policies)
def test_settings_of_the_step_override_those_of_the_node(step: Policy, node: Policy) -> None:
    both = step.with_defaults(node)
    for name in Policy.__slots__:
        own = getattr(step, name)
        assert getattr(both, name) == (own if own is not None else getattr(node, name))


def test_two_empty_policies_merge_to_the_empty_policy() -> None:
    assert Policy.of() is NO_POLICY
    assert NO_POLICY.with_defaults(NO_POLICY) is NO_POLICY
