"""Rate limits and overload of providers: how they are recognised, when they end, and who waits for that."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from nerve.agents.provider import TurnFinished, TurnOutcome
from nerve.core.clock import SYSTEM_CLOCK, Clock, ClockTimeout

LIMIT_PAUSES_S = (60.0, 120.0, 300.0, 900.0)
"""Backoff in seconds for consecutive rate limits without a reset time."""

LIMIT_STATUS_CODES = (429, 503, 529)
"""HTTP status codes of a rate limit and of an overload: the same request may succeed later."""
EXHAUSTED_TEXT = re.compile(
    r"insufficient[_ ](quota|funds|balance|credits?)|plan and billing|credit balance|out of credits"
    r"|billing[_ ](error|hard limit)",
    re.IGNORECASE,
)
"""How errors say that an account is used up, which waiting does not change."""
OVERLOAD_TEXT = re.compile(
    r"overloaded_error|server_?is_?overloaded|\bis (currently |temporarily )?(overloaded|at capacity)"
    r"|\b529\b.{0,40}overloaded|\b503 service unavailable\b|\bstatus\W{1,4}UNAVAILABLE\b",
    re.IGNORECASE,
)
"""How errors say that the service of a provider is overloaded."""
MAX_REASON_CHARS = 300
"""Characters of a provider's error in the message of a waiting step."""
COMMON_LIMIT_TEXT = (
    r"(?<![\w:.#/])(?<!line )429\b(?!\.\d)|rate.?limit|usage limit|hit your (\w+ )?limit|too many requests"
    r"|RESOURCE_EXHAUSTED"
)
LIMIT_TEXTS = {
    "acp": re.compile(f"{COMMON_LIMIT_TEXT}|quota", re.IGNORECASE),
    "claude": re.compile(
        r"\b(hit|reached) your .{0,40}limit\b|\b(usage|rate) limit\b|\bresets (at )?\d", re.IGNORECASE
    ),
    "command": re.compile(COMMON_LIMIT_TEXT, re.IGNORECASE),
}
"""How the errors of each kind of provider say that it is rate limited, where it reports no code for that."""

RETRY_AFTER_TEXT = re.compile(r"retry[-_ ]?(?:after|delay)\W{1,4}(\d+(?:\.\d+)?)\W?(ms|m)?", re.IGNORECASE)
RESETS_AT_TEXT = re.compile(r"resets?[-_ ]?at\W{1,4}(\d{10})(?!\d)", re.IGNORECASE)
RESET_DATE_TEXT = re.compile(
    r"resets?(?: at)?:? (\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)", re.IGNORECASE
)
RESET_DAY_TEXT = re.compile(r"try again at (\w{3})\w* (\d+)\w*, (\d{4}),? (\d+:\d\d [AP]M)", re.IGNORECASE)
RESET_CLOCK_TEXT = re.compile(
    r"(?:resets?|try again)(?: at)?:? (\d{1,2})(?::(\d\d))? ?([ap]m)?\b(?: ?\(?(UTC|GMT|[A-Z]\w+/\w+)\)?)?",
    re.IGNORECASE,
)
DURATION_TEXT = re.compile(
    r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)(?:econd|inute|our|ay|in)?s?(?![a-z])", re.IGNORECASE
)
RETRY_IN_TEXT = re.compile(r"(?:try again|retry) in (.*)", re.IGNORECASE)
SECONDS_BY_UNIT = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class RateLimits:
    """The rate-limited providers of a session, with the waiters for the ends of their limits."""

    def __init__(self, limited: Mapping[str, float] | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.limited: dict[str, float] = dict(limited or {})
        """Rate-limited providers, with the Unix timestamp at which the limit ends."""
        self.reasons: dict[str, str] = {}
        """What each limited provider has answered, in its own words."""
        self._refusals: dict[str, int] = {}
        self._available_events: dict[str, asyncio.Event] = {}
        """Wakes the waiters of a provider when its limit ends early."""

    def limited_until(self, provider: str) -> float:
        """Return when the limit of a provider ends; 0 if it is not limited."""
        until = self.limited.get(provider, 0.0)
        return until if until > self._clock.time() else 0.0

    def refusals(self, provider: str) -> int:
        """Return how often the provider has refused since its last answer; concurrent refusals count once."""
        return self._refusals.get(provider, 0)

    def mark_limited(
        self, provider: str, until: float | None, refusal_count: int | None = None, reason: str = ""
    ) -> float:
        """Mark the provider as rate limited and return when to try again.

        `refusal_count` is the value of `refusals()` before the query: a query that started before an earlier
        refusal was known counts as the same refusal, and does not lengthen the backoff.
        """
        now, before = self._clock.time(), self.limited.get(provider, 0.0)
        self.reasons[provider] = reason
        if refusal_count is None or refusal_count >= self.refusals(provider):
            self._refusals[provider] = self.refusals(provider) + 1
        refusal_count = self._refusals[provider]
        if until is None:
            until = (
                before if before > now else now + LIMIT_PAUSES_S[min(refusal_count, len(LIMIT_PAUSES_S)) - 1]
            )
        elif until <= now:
            until = now + min(refusal_count, LIMIT_PAUSES_S[0])
        self.limited[provider] = max(until, before)
        return self.limited[provider]

    async def wait_until_available(
        self, provider: str, on_limited: Callable[[float], Awaitable[None]]
    ) -> bool:
        """Wait until the provider is not limited, and return whether it was; report each new end time."""
        announced_until = 0.0
        while until := self.limited_until(provider):
            if until > announced_until:
                await on_limited(until)
                announced_until = until
                continue  # the limit may have ended during the callback
            available = self._available_events.setdefault(provider, asyncio.Event())
            with suppress(TimeoutError):
                async with ClockTimeout(self._clock, until - self._clock.time()):
                    await available.wait()
        if announced_until:
            self.limited.pop(provider, None)
        return announced_until > 0

    def mark_available(self, provider: str) -> bool:
        """End the rate limit after an answer and wake all waiters; return whether a limit was active."""
        self._refusals.pop(provider, None)
        if (available := self._available_events.pop(provider, None)) is not None:
            available.set()
        return self.limited.pop(provider, 0.0) > self._clock.time()


# -- errors ----------------------------------------------------------------------------------------


def failure_outcome(
    error: str,
    provider_kind: str = "",
    status: int | None = None,
    resets_at: float | None = None,
    is_limit: bool = False,
) -> TurnOutcome:
    """Return how a turn with an error ended: `limited` if waiting helps, otherwise `failed`.

    The provider may report the HTTP status, when the limit ends, or that it is a limit; the text of the error
    counts as well. An account that is used up is not a limit, unless the error says when to try again.
    """
    if EXHAUSTED_TEXT.search(error) and resets_at is None and parse_reset_time(error) is None:
        return "failed"
    limit_text = LIMIT_TEXTS.get(provider_kind)
    is_limit = is_limit or status in LIMIT_STATUS_CODES or OVERLOAD_TEXT.search(error) is not None
    return "limited" if is_limit or (limit_text is not None and limit_text.search(error)) else "failed"


def failed_turn(thread: str, error: str, provider_kind: str) -> TurnFinished:
    """Return the outcome of a turn with an error: failed, or limited if the text says so."""
    outcome = failure_outcome(error, provider_kind)
    resets_at = parse_reset_time(error) if outcome == "limited" else None
    return TurnFinished(thread, outcome=outcome, error=error, resets_at=resets_at)


def limit_message(provider: str, until: float, reason: str) -> str:
    """Return what a waiting step shows: until when, and the words of the provider."""
    cause = "overload" if OVERLOAD_TEXT.search(reason) or "overloaded" in reason.lower() else "limit"
    reset_time = datetime.fromtimestamp(until).astimezone().strftime("%H:%M")
    words = " ".join(reason.split())[:MAX_REASON_CHARS]
    return f"held: {provider} {cause} until {reset_time}" + (f": {words}" if words else "")


def parse_reset_time(text: str, now: float | None = None) -> float | None:
    """Return when a rate limit ends, as a Unix timestamp, if the text says so in a known form."""
    now = time.time() if now is None else now
    text = re.sub(r"\s", " ", text)  # some messages have a narrow space before AM and PM
    if match := RESETS_AT_TEXT.search(text):
        return float(match[1])
    if match := RETRY_AFTER_TEXT.search(text):
        return now + float(match[1]) * SECONDS_BY_UNIT[(match[2] or "").lower()]
    if match := RESET_DATE_TEXT.search(text):
        return datetime.fromisoformat(match[1]).timestamp()
    if match := RESET_DAY_TEXT.search(text):
        return _parse_day(" ".join(match.groups()))
    if match := RESET_CLOCK_TEXT.search(text):
        # The next occurrence of a time of day; one minute is added because the seconds are missing.
        if not (match[2] or match[3]):
            return None
        hour, minute = int(match[1]), int(match[2] or 0)
        if half := (match[3] or "").lower():
            hour = hour % 12 + 12 * (half == "pm")
        local_now = datetime.fromtimestamp(now, _parse_timezone(match[4]))
        try:
            reset = local_now.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(
                minutes=1
            )
        except ValueError:
            return None
        return (reset if reset > local_now else reset + timedelta(days=1)).timestamp()
    spans = DURATION_TEXT.findall(match[1] if (match := RETRY_IN_TEXT.search(text)) else "")
    seconds = sum(float(amount) * SECONDS_BY_UNIT[unit.lower()] for amount, unit in spans)
    return now + seconds if spans else None


def _parse_day(text: str) -> float | None:
    """Parse a local date and time; as below, a minute is added because the seconds are missing."""
    try:
        return (datetime.strptime(text.upper(), "%b %d %Y %I:%M %p") + timedelta(minutes=1)).timestamp()
    except ValueError:
        return None


def _parse_timezone(name: str | None) -> tzinfo | None:
    """Return the time zone by name; None (local time) if it is missing or unknown."""
    if not name or name.upper() in ("UTC", "GMT"):
        return UTC if name else None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
