"""Rate limits and their reset times in text."""

from datetime import UTC, datetime

import pytest

from nerve.agents.rate_limits import parse_reset_time

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
