"""Schedules: the times at which something starts, as cron, as an interval or as dates, in a time zone.

Everything is computed from a time alone, so a restart, or a clock that was changed, sees the same times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import describe_value
from nerve.lazy_dataclass import dataclass

SECONDS_BY_UNIT = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
MIN_INTERVAL_S = 1.0
MAX_EXCLUDED_DAYS = 4000
"""The days after which a schedule whose times are all excluded is taken to have none."""
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|min|h|d|w)")
_YEARLY = re.compile(r"(\d\d)-(\d\d)")
_RANGE = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class Excluded:
    """Days without an occurrence: from one date to another, or the same day of every year."""

    first: date
    last: date
    is_yearly: bool = False

    def contains(self, day: date) -> bool:
        if self.is_yearly:
            return (day.month, day.day) == (self.first.month, self.first.day)
        return self.first <= day <= self.last


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times in a time zone; exactly one of `cron`, `every` and `dates` is given.

    A time of day that the zone skips is the moment after the gap; one that it has twice is the first. Cron
    with `*` hours and intervals count the hours that pass.
    """

    cron: str | None = None
    every: float | None = None
    """Seconds between two times, counted from `start`."""
    start: float = 0.0
    dates: tuple[datetime, ...] = ()
    """Local times without a zone, sorted."""
    timezone: str = "UTC"
    exclude: tuple[Excluded, ...] = ()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def next_after(self, after: float) -> float | None:
        """Return the first time after a Unix timestamp; None if there is none."""
        for _ in range(MAX_EXCLUDED_DAYS):
            found = self._next_candidate(after)
            if found is None:
                return None
            day = datetime.fromtimestamp(found, self.zone).date()
            if not any(excluded.contains(day) for excluded in self.exclude):
                return found
            # The rest of the day is excluded too.
            midnight = datetime.combine(day + timedelta(days=1), time(), self.zone).timestamp()
            after = max(found, midnight - 1)
        return None

    def times_between(self, after: float, until: float) -> Iterator[float]:
        """Yield the times after one timestamp and up to another."""
        found = self.next_after(after)
        while found is not None and found <= until:
            yield found
            found = self.next_after(found)

    def _next_candidate(self, after: float) -> float | None:
        if self.cron is not None:
            return next_cron_time(self.cron, self.zone, after)
        if self.every is not None:
            count = int((after - self.start) // self.every) + 1
            found = self.start + count * self.every
            return found if found > after else found + self.every
        times = sorted(day.replace(tzinfo=self.zone).timestamp() for day in self.dates)
        return next((found for found in times if found > after), None)


def next_cron_time(cron: str, zone: ZoneInfo, after: float) -> float | None:
    """Return the first time of a cron expression after a timestamp; None if there is none in 50 years."""
    from cronsim import CronSim

    begin = datetime.fromtimestamp(int(after // 1), UTC if zone.key == "UTC" else zone)
    for found in CronSim(cron, begin):
        # An hour that the zone has twice may begin before the time.
        if (at := found.timestamp()) > after:
            return at
    return None


def parse_cron(cron: Any) -> str:
    """Return a cron expression with five fields, or six with seconds; ValueError for any other value."""
    from cronsim import CronSim, CronSimError

    if not isinstance(cron, str):
        raise ValueError(f"cron must be a string such as '0 3 * * *', got {describe_value(cron)}")
    try:
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"cron '{cron}' is not valid: {str(error).lower()}") from None
    except StopIteration:
        raise ValueError(f"cron '{cron}' has no time in 50 years") from None
    return cron


def parse_timezone(name: Any) -> str:
    """Return the name of a time zone; ValueError for an unknown one."""
    if not isinstance(name, str) or not name or not is_known_zone(name):
        from zoneinfo import available_timezones

        hint = did_you_mean_hint(name, available_timezones()) if isinstance(name, str) else ""
        raise ValueError(f"timezone must be a name such as 'Europe/Berlin', got {describe_value(name)}{hint}")
    return name


@lru_cache(maxsize=64)
def is_known_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # what is not a name of the database, or a folder of it
        return False
    return True


def parse_duration(value: Any, what: str = "A duration") -> float:
    """Return the seconds of a duration such as `30s`, `15min`, `2h`, `1d` or `1w`, or of a number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{what} must be seconds or a text such as '30s', '15min', '2h', '1d', got"
            f" {describe_value(value)}"
        )
    return float(match[1]) * SECONDS_BY_UNIT[match[2]]


def parse_local_time(value: Any) -> datetime:
    """Return a local date and time such as `2026-12-24 18:00`, or a date, which is its midnight."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise ValueError(f"A date must have the form '2026-12-24 18:00', got {describe_value(value)}")
    return found


def parse_instant(value: Any, zone: str) -> float:
    """Return the timestamp of a date and time, which is in the zone unless it has an offset of its own."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"A time must have the form '2026-12-24T18:00', got {describe_value(value)}")
    return (found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))).timestamp()


def parse_excluded(value: Any) -> Excluded:
    """Return the days of `2026-12-25`, `2026-12-24..2027-01-02` or `12-25`, which is that of every year."""
    try:
        if isinstance(value, str) and (match := _YEARLY.fullmatch(value)):
            day = date(2024, int(match[1]), int(match[2]))  # a leap year
            return Excluded(day, day, is_yearly=True)
        if isinstance(value, str) and (match := _RANGE.fullmatch(value)):
            days = Excluded(date.fromisoformat(match[1]), date.fromisoformat(match[2]))
            if days.first <= days.last:
                return days
        elif isinstance(value, str):
            return Excluded(date.fromisoformat(value), date.fromisoformat(value))
    except ValueError:
        pass
    raise ValueError(
        "An excluded day must have the form '2026-12-25', '2026-12-24..2027-01-02' or '12-25', got"
        f" {describe_value(value)}"
    )
