"""Rate limits and their reset times in text."""

from datetime import UTC, datetime

import pytest

from nerve.agents.provider import TurnOutcome
from nerve.agents.rate_limits import failure_outcome, limit_message, parse_reset_time

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("429, resets at 14:30 UTC", "2026-11-15T14:31+00:00"),
        ("your limit resets 2pm (UTC)", "2026-11-15T14:01+00:00"),
        ("resets at 11:30 UTC", "2026-11-16T11:31+00:00"),
        ("resets 3:05am (Asia/Tokyo)", "2026-11-16T03:06+09:00"),
        ("resets at 2026-11-15T18:00:00Z", "2026-11-15T18:00+00:00"),
        ("please retry-after: 60", "2026-11-15T12:01+00:00"),
        ("resets_at: 1794747600", "2026-11-15T13:00+00:00"),
        ("Please retry in 34.5s.", "2026-11-15T12:00:34.5+00:00"),
        ('"retryDelay": "34s"', "2026-11-15T12:00:34+00:00"),
    ],
)
def test_the_reset_time_is_parsed_from_text(said: str, at: str) -> None:
    assert parse_reset_time(said, NOW) == datetime.fromisoformat(at).timestamp()


@pytest.mark.parametrize(
    "said", ["rate limit", "resets at 99:99", "resets 14", "resets soon", "try again later"]
)
def test_text_without_a_time_has_no_reset_time(said: str) -> None:
    assert parse_reset_time(said, NOW) is None


def test_a_time_of_day_without_a_zone_is_local() -> None:
    here = datetime.fromtimestamp(NOW).replace(hour=23, minute=59)
    assert parse_reset_time("resets at 23:58", NOW) == here.timestamp()


QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("error", "kind", "status", "outcome"),
    [
        (QUOTA, "codex", 429, "failed"),
        (QUOTA, "acp", None, "failed"),
        ("Your credit balance is too low", "claude", 400, "failed"),
        (f"{QUOTA} Please retry in 34.5s.", "acp", None, "limited"),
        ("Rate limit reached", "codex", 429, "limited"),
        ("no details", "claude", 429, "limited"),
        ("no details", "codex", 503, "limited"),
        ("no details", "llm", 529, "limited"),
        ("no details", "llm", 500, "failed"),
        ('{"type":"overloaded_error","message":"Overloaded"}', "command", None, "limited"),
        ("The model is overloaded. Please try again later.", "acp", None, "limited"),
        ('{"error":{"code":503,"status":"UNAVAILABLE"}}', "acp", None, "limited"),
        ("the API said 529: Overloaded", "command", None, "limited"),
        ("error: no matching overloaded function", "command", None, "failed"),
        ("line 503 of server.py failed", "command", None, "failed"),
    ],
)
def test_one_rule_says_which_failures_pass(
    error: str, kind: str, status: int | None, outcome: TurnOutcome
) -> None:
    assert failure_outcome(error, kind, status) == outcome


def test_a_waiting_step_shows_the_words_of_the_vendor() -> None:
    assert limit_message("claude", NOW, "API Error: 529\nOverloaded").startswith(
        "held: claude overload until "
    )
    assert limit_message("claude", NOW, "API Error: 529\nOverloaded").endswith(": API Error: 529 Overloaded")
    assert limit_message("codex", NOW, "You've hit your usage limit").startswith("held: codex limit until ")
    assert len(limit_message("codex", NOW, "x" * 5000)) < 400
