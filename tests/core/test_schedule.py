"""Schedules: cron in time zones, intervals, dates and excluded days, computed from a time alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.schedule import (
    Schedule,
    parse_cron,
    parse_duration,
    parse_excluded,
    parse_instant,
    parse_local_time,
    parse_timezone,
)


def local_times(schedule: Schedule, begin: str, end: str) -> list[str]:
    """Return the times of a schedule between two local times, in its zone."""
    after, until = (parse_instant(text, schedule.timezone) for text in (begin, end))
    found = schedule.times_between(after, until)
    return [datetime.fromtimestamp(at, schedule.zone).strftime("%Y-%m-%d %H:%M%z") for at in found]


def test_a_year_of_a_daily_schedule_has_a_time_each_day() -> None:
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"):
        schedule = Schedule(cron="30 2 * * *", timezone=zone)
        assert len(local_times(schedule, "2027-01-01", "2028-01-01")) == 365


@pytest.mark.parametrize(
    ("zone", "day", "expected"),
    [
        ("Europe/Berlin", "2027-03-28", "2027-03-28 03:00+0200"),
        ("America/New_York", "2027-03-14", "2027-03-14 03:00-0400"),
        ("Australia/Lord_Howe", "2027-10-03", "2027-10-03 02:30+1100"),  # a gap of half an hour
    ],
)
def test_a_time_that_a_zone_skips_is_the_end_of_the_gap(zone: str, day: str, expected: str) -> None:
    cron = "15 2 * * *" if zone == "Australia/Lord_Howe" else "30 2 * * *"
    found = local_times(Schedule(cron=cron, timezone=zone), day, f"{day} 23:00")
    assert found == [expected]


@pytest.mark.parametrize(
    ("zone", "day", "cron", "expected"),
    [
        ("Europe/Berlin", "2027-10-31", "30 2 * * *", "2027-10-31 02:30+0200"),
        ("America/New_York", "2027-11-07", "30 1 * * *", "2027-11-07 01:30-0400"),
        ("Australia/Lord_Howe", "2027-04-04", "45 1 * * *", "2027-04-04 01:45+1100"),
    ],
)
def test_a_time_that_a_zone_has_twice_is_the_first(zone: str, day: str, cron: str, expected: str) -> None:
    assert local_times(Schedule(cron=cron, timezone=zone), day, f"{day} 23:00") == [expected]


def test_cron_of_every_hour_has_23_times_on_the_short_day_and_25_on_the_long_one() -> None:
    schedule = Schedule(cron="0 * * * *", timezone="Europe/Berlin")
    assert len(local_times(schedule, "2027-03-27 23:59", "2027-03-28 23:59")) == 23
    assert len(local_times(schedule, "2027-10-30 23:59", "2027-10-31 23:59")) == 25


def test_an_interval_counts_the_hours_that_pass() -> None:
    schedule = Schedule(every=6 * 3600, start=parse_instant("2027-03-27", "Europe/Berlin"))
    begin = parse_instant("2027-03-27", "Europe/Berlin")
    found = list(schedule.times_between(begin, begin + 86_400))
    assert [at - begin for at in found] == [21_600, 43_200, 64_800, 86_400]


def test_february_29_comes_every_four_years_but_not_in_2100() -> None:
    schedule = Schedule(cron="0 12 29 2 *")
    found = local_times(schedule, "2092-01-01", "2109-01-01")
    assert [text[:4] for text in found] == ["2092", "2096", "2104", "2108"]


def test_the_31st_is_skipped_in_short_months_and_the_last_day_is_in_all() -> None:
    assert len(local_times(Schedule(cron="0 0 31 * *"), "2026-12-31", "2027-12-31 12:00")) == 7
    last_days = local_times(Schedule(cron="0 0 L * *"), "2027-01-01", "2028-01-01")
    assert [text[8:10] for text in last_days] == [
        "31",
        "28",
        "31",
        "30",
        "31",
        "30",
        "31",
        "31",
        "30",
        "31",
        "30",
        "31",
    ]


def test_weekdays_are_those_of_the_zone() -> None:
    schedule = Schedule(cron="0 0 * * MON", timezone="Pacific/Auckland")
    found = datetime.fromtimestamp(schedule.next_after(0.0) or 0.0, UTC)
    assert found.weekday() == 6  # there it is Monday already


def test_dates_are_local_times_in_their_order() -> None:
    dates = tuple(map(parse_local_time, ["2026-12-24 18:00", "2027-03-28 02:30"]))
    schedule = Schedule(dates=dates, timezone="Europe/Berlin")
    found = local_times(schedule, "2026-01-01", "2028-01-01")
    assert found == ["2026-12-24 18:00+0100", "2027-03-28 03:30+0200"]
    assert schedule.next_after(parse_instant("2028-01-01", "UTC")) is None


def test_excluded_days_are_left_out_as_a_day_a_range_and_every_year() -> None:
    exclude = tuple(map(parse_excluded, ["2027-01-02", "2027-01-04..2027-01-05", "01-07"]))
    schedule = Schedule(cron="0 9 * * *", exclude=exclude)
    found = local_times(schedule, "2027-01-01", "2027-01-09")
    assert [text[8:10] for text in found] == ["01", "03", "06", "08"]
    assert "2030-01-07" not in " ".join(local_times(schedule, "2030-01-06", "2030-01-09"))


def test_a_schedule_whose_times_are_all_excluded_has_none() -> None:
    assert Schedule(cron="0 0 25 12 *", exclude=(parse_excluded("12-25"),)).next_after(0.0) is None
    always = parse_excluded("0001-01-01..9999-12-30")
    assert Schedule(every=1.0, exclude=(always,)).next_after(0.0) is None


ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Cairo"]
)
CRONS = st.sampled_from(
    [
        "*/7 * * * *",
        "30 2 * * *",
        "15 1,2,3 * * *",
        "0 */2 * * *",
        "0 0 1,15 * MON",
        "59 23 L * *",
        "5 1-3 * 3,10 *",
    ]
)


@given(
    zone=ZONES,
    cron=CRONS,
    day=st.dates(datetime(2020, 1, 1).date(), datetime(2030, 1, 1).date()),
    offsets=st.lists(st.floats(0, 86_400 * 3), min_size=1, max_size=5),
)
def test_the_times_are_the_same_from_wherever_they_are_computed(
    zone: str, cron: str, day: Any, offsets: list[float]
) -> None:
    schedule = Schedule(cron=cron, timezone=zone)
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    end = begin + 86_400 * 3
    times = list(schedule.times_between(begin, end))
    assert times == sorted(set(times))
    for offset in offsets:
        assert list(schedule.times_between(begin + offset, end)) == [
            at for at in times if at > begin + offset
        ]


@given(every=st.floats(1, 1e6), start=st.floats(-1e9, 2e9), after=st.floats(0, 2e9))
def test_an_interval_always_has_a_next_time_within_its_length(
    every: float, start: float, after: float
) -> None:
    found = Schedule(every=every, start=start).next_after(after)
    assert found is not None
    assert after < found <= after + every * 1.001 + 1e-3


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15min", 900), ("2h", 7200), ("1d", 86_400), ("1.5h", 5400), (5, 5)]
)
def test_a_duration_is_a_number_with_a_unit_or_seconds(text: Any, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-1s", True, None, [], "1e3s", "1h30min"])
def test_another_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"must be seconds or a text such as '30s'"):
        parse_duration(text)


@pytest.mark.parametrize("cron", ["", "* * * *", "60 * * * *", "0 25 * * *", "0 0 30 2 *", "@daily", 5, None])
def test_a_cron_expression_that_is_not_valid_is_refused(cron: Any) -> None:
    with pytest.raises(ValueError, match=r"^cron"):
        parse_cron(cron)


def test_an_unknown_time_zone_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'Europe/Berlin'"):
        parse_timezone("Europe/Berln")
    for name in ("", "/etc/passwd", "../UTC", "Europe", None):
        with pytest.raises(ValueError, match="timezone must be a name"):
            parse_timezone(name)


@pytest.mark.parametrize("text", ["25.12.2026", "2026-13-01", "2027-01-02..2027-01-01", "12-32", "", None, 5])
def test_an_excluded_day_of_another_form_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="An excluded day must have the form"):
        parse_excluded(text)


def test_an_instant_has_the_offset_that_it_names_or_that_of_the_zone() -> None:
    assert parse_instant("2027-01-01T12:00+02:00", "UTC") == parse_instant("2027-01-01T10:00", "UTC")
    in_berlin = datetime(2027, 1, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert parse_instant("2027-01-01T12:00", "Europe/Berlin") == in_berlin.timestamp()
    assert in_berlin.utcoffset() == timedelta(hours=1)
