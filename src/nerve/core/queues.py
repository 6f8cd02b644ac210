"""Queues: named limits on how many steps and runs of a session are active at a time, and start in a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from nerve.core.suggest import did_you_mean_hint
from nerve.core.tags import MAX_TAG_CHARS
from nerve.core.validation import describe_value, require_int, require_name, require_str
from nerve.lazy_dataclass import dataclass

SECONDS_BY_UNIT = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NAME = re.compile(r"[\w.-]{1,64}")
_RATE = re.compile(r"([1-9]\d{0,5})/(s|min|h)")


class Rate(NamedTuple):
    """At most `limit` starts in any window of `seconds`."""

    limit: int
    seconds: float


class QueueRequest(NamedTuple):
    """What a step or a run asks of a queue."""

    queue: str
    key: str | None = None
    """The value of the queue's `per`: each has a limit of its own."""
    priority: int = 0

    def to_data(self) -> dict[str, Any]:
        """Return the request as the start of a run records it."""
        return {"name": self.queue, "key": self.key, "priority": self.priority}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> QueueRequest:
        return cls(data["name"], data.get("key"), data.get("priority") or 0)


@dataclass(frozen=True, slots=True)
class Queue:
    """A limit that steps and runs of a session share.

    At most `concurrency` of them are active at the same time; 1 is a mutex. At most as many start as `rate`
    says: `10/s`, `100/min`, `1000/h`, in any window of that length. `per` names an argument, input field or
    tag: the limits count separately for each of its values. `priority` names one with an integer: of the
    entries that wait, the highest goes first, then the oldest.
    """

    name: str
    concurrency: int | None = None
    rate: str | None = None
    per: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                "The name of a queue must be 1 to 64 letters, digits, '_', '-' or '.', got"
                f" {describe_value(self.name)}"
            )
        if self.concurrency is not None:
            require_int(f"concurrency of queue '{self.name}'", self.concurrency, 1)
        if self.rate is not None:
            parse_rate(self.name, self.rate)
        for setting in ("per", "priority"):
            if (value := getattr(self, setting)) is not None:
                require_str(f"{setting} of queue '{self.name}'", value)

    @property
    def window(self) -> Rate | None:
        """The rate as numbers."""
        return None if self.rate is None else parse_rate(self.name, self.rate)

    def make_request(self, owner: str, sources: Iterable[Any]) -> QueueRequest:
        """Return what `owner` asks of this queue; the first of the `sources` with a name has its value.

        ValueError without a value for `per`, or with a value that cannot be a key or a priority.
        """
        mappings = [source for source in sources if isinstance(source, Mapping)]
        key = None if self.per is None else self._find_key(owner, self.per, mappings)
        return QueueRequest(self.name, key, self._find_priority(owner, mappings))

    def _find_key(self, owner: str, per: str, sources: list[Mapping[str, Any]]) -> str:
        value = find_value(per, sources)
        if isinstance(value, bool):
            return str(value).lower()
        if value is None:
            raise ValueError(
                f"Queue '{self.name}' counts per '{per}', but {owner} has neither an input field nor a tag"
                f" '{per}'"
            )
        if not isinstance(value, str | int | float):
            raise ValueError(
                f"'{per}' of {owner}, by which queue '{self.name}' counts, must be a string, a number or a"
                f" boolean, got {describe_value(value)}"
            )
        return str(value)[:MAX_TAG_CHARS]

    def _find_priority(self, owner: str, sources: list[Mapping[str, Any]]) -> int:
        value = None if self.priority is None else find_value(self.priority, sources)
        if value is None:
            return 0
        try:
            return int(value) if isinstance(value, str) else require_int("priority", value, -(2**53))
        except ValueError:
            raise ValueError(
                f"The priority '{self.priority}' of {owner} in queue '{self.name}' must be an integer, got"
                f" {describe_value(value)}"
            ) from None


def find_value(name: str, sources: Iterable[Mapping[str, Any]]) -> Any:
    """Return the value of a name in the first of the sources that has it; None without one."""
    return next((value for source in sources if (value := source.get(name)) is not None), None)


def parse_rate(queue: str, rate: Any) -> Rate:
    """Return a rate such as `100/min`; ValueError for any other text."""
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        raise ValueError(
            f"rate of queue '{queue}' must be a number per s, min or h such as '100/min', got"
            f" {describe_value(rate)}"
        )
    return Rate(int(match[1]), SECONDS_BY_UNIT[match[2]])


def queue_name(queue: Any) -> str:
    """Return the name of a queue that is given by its name or itself; ValueError for another value."""
    return queue.name if isinstance(queue, Queue) else require_name("a queue", queue)


def find_queue(queues: Mapping[str, Queue], name: str) -> Queue:
    """Return a declared queue; ValueError for an unknown name."""
    if (queue := queues.get(name)) is None:
        known = describe_names(queues)
        raise ValueError(f"Queue '{name}' not found{did_you_mean_hint(name, queues) or f'. {known}'}")
    return queue


def describe_names(queues: Collection[str]) -> str:
    return f"Known queues: {', '.join(queues)}" if queues else "The session has no queues"
