"""Events of a run as a whole: its start, its commands and its end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Self

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import MAX_EVENT_DEPTH, decode_json, encode_json
from nerve.errors import NotJson
from nerve.journal.events.known_event import KnownEvent, put_before
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RunStarted(KnownEvent):
    """The first event of every run: what it was started with, or copied from."""

    type = WorkflowEventType.STARTED
    written_nulls = ("input",)
    run_id: str = ""
    workflow_id: str = ""
    steps: list[str] = field(default_factory=list)
    input: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    session: str = ""
    definition: str = ""
    seed: str | None = None
    limits: dict[str, Any] | None = None
    label: str | None = None
    branch: str | None = None
    conversation: str | None = None
    modules: list[str] | None = None
    tags: dict[str, str] | None = None
    queue: dict[str, Any] | None = None
    """The queue that limits the run: its `name`, the `key` and the `priority` of the run in it."""
    parent: str | None = None
    parent_path: str | None = None
    lineage: list[str] | None = None
    key: str | None = None
    forked_from: dict[str, Any] | None = None
    """For a fork: `run`, `at`, the number of `copied` events, the `origins`, and the `unclear` steps."""
    raised: dict[str, dict[str, Any]] | None = None
    """For a fork: the limits of steps that were raised in the run it derives from, by path."""
    overrides: dict[str, dict[str, Any]] | None = None
    continued_from: dict[str, Any] | None = None
    """For a later run of a chain: the previous `run`, the `first` one, and what they have `used`."""
    started_by: dict[str, Any] | None = None
    """For a detached run: the `run` that started it, and the `path` of the call."""
    caller: dict[str, Any] | None = None
    """For a run that was started by a request: the identity of its caller (`by`), and how it came (`via`)."""
    traceparent: str | None = None
    """The span of a distributed trace that started the run, as in the W3C header of this name."""
    workspace: dict[str, Any] | None = None
    """For a run that was called in a workspace: that of its caller, see `ActiveWorkspace.to_data`, and the
    `directory` of the call in it. For a later run of a chain: the workspace of the chain."""
    place: str | None = None
    """Where the run works, if not in the project: `fresh` in a worktree of its own."""

    def encode(self) -> str:
        is_plain = not self.params and not self.extra and read_rare_fields(self) == NO_RARE_FIELDS
        if not is_plain or self.seed is None or self.limits is None:
            return KnownEvent.encode(self)
        try:
            input_json = encode_json(self.input, max_depth=MAX_EVENT_DEPTH - 1)
        except NotJson:
            return KnownEvent.encode(self)  # its error names the position
        # By hand: most runs are started with these values only, and many with the same.
        text = cached_start_json(self.workflow_id, (*self.steps,), self.session, self.definition)
        limits = cached_limits_json((*self.limits,), *self.limits.values())
        head = f'{{"run_id":{encode_json(self.run_id)},{text[0]},"input":{input_json},"params":{{}}'
        return f'{head},{text[1]},"seed":{encode_json(self.seed)},"limits":{limits}}}'

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata a run may have besides its input."""
        values = {name: getattr(self, name) for name in START_METADATA}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def source_run(self) -> str | None:
        """The run that this one was forked from."""
        source: str | None = (self.forked_from or {}).get("run")
        return source

    @property
    def starter(self) -> tuple[str | None, str | None]:
        """What started the run, `unix:ada` or `run:ID`, and how: `cli`; None if it is not known."""
        if self.caller is not None:
            return self.caller.get("by"), self.caller.get("via")
        run = (self.started_by or {}).get("run")
        return (f"run:{run}" if run else None), None

    @property
    def previous_run(self) -> str | None:
        """The run of the chain that this one continues."""
        previous: str | None = (self.continued_from or {}).get("run")
        return previous

    @property
    def chain(self) -> str:
        """The first run of the chain."""
        return str((self.continued_from or {}).get("first", self.run_id))

    @property
    def used_before(self) -> dict[str, Any]:
        """What the earlier runs of the chain have used of its budget, and the models."""
        return dict((self.continued_from or {}).get("used", {}))

    @property
    def copied_events(self) -> int:
        """The number of events copied at the start of a run, including its own first one."""
        return int((self.forked_from or {}).get("copied", 0))

    @property
    def unclear_paths(self) -> list[str]:
        """The leaves with an unknown outcome in the run that this one was forked from."""
        return list((self.forked_from or {}).get("unclear", ()))

    @property
    def origin_ids(self) -> list[str]:
        """The ids of the runs a fork derives from, oldest first, and its own; empty if not a fork."""
        previous_ids: list[str] = (self.forked_from or {}).get("origins", [])
        return [*previous_ids, self.run_id] if previous_ids else []


@lru_cache(1000)
def cached_start_json(
    workflow_id: str, steps: tuple[str, ...], session: str, definition: str
) -> tuple[str, str]:
    """Return the JSON of what the starts of a workflow have in common: before and after the input."""
    before, after = (
        {"workflow_id": workflow_id, "steps": steps},
        {"session": session, "definition": definition},
    )
    return encode_json(before)[1:-1], encode_json(after)[1:-1]


@lru_cache(1000, typed=True)
def cached_limits_json(names: tuple[str, ...], *values: Any) -> str:
    return encode_json(dict(zip(names, values, strict=True)))


read_rare_fields = attrgetter(*list(RunStarted.__slots__)[9:])
"""Reads the fields that few starts of runs have."""
NO_RARE_FIELDS = (None,) * (len(RunStarted.__slots__) - 9)

START_METADATA = ("label", "branch", "conversation", "modules", "tags", "queue", "caller", "traceparent")
"""Metadata a run may have besides its input; recorded with its start."""


class RunEnd(KnownEvent):
    """The last event of a run."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RunCompleted(RunEnd):
    """The body has returned, or continued as new; `result_json` is the JSON of its value."""

    type = WorkflowEventType.COMPLETED
    run_id: str = ""
    result_json: str = "null"
    duration_s: float = 0.0

    @classmethod
    def decode(cls, text: str) -> Self:
        head, tail = _COMPLETED_HEAD.match(text), _COMPLETED_TAIL.search(text, max(0, len(text) - 50))
        if head is None or tail is None:
            return cls.from_data(decode_json(text))
        return cls(head[1], text[head.end() : tail.start()], decode_json(tail[1]))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        known = ("run_id", "result", "duration_s")
        extra = {key: value for key, value in data.items() if key not in known}
        result_json = encode_json(data.get("result"), max_depth=None)
        return cls(data.get("run_id", ""), result_json, data.get("duration_s", 0.0), extra=extra)

    @property
    def result(self) -> Any:
        return decode_json(self.result_json)

    @property
    def continued_as(self) -> str | None:
        """The next run of the chain; None if the body has returned."""
        next_run: str | None = self.extra.get("continued_as")
        return next_run

    def to_data(self) -> dict[str, Any]:
        values = {"run_id": self.run_id, "result": self.result, "duration_s": self.duration_s}
        return values | self.extra

    def encode(self) -> str:
        head = f'{{"run_id":{encode_json(self.run_id)},"result":'
        text = f'{head}{self.result_json},"duration_s":{self.duration_s!r}}}'
        return put_before(self.extra, text)


_COMPLETED_HEAD = re.compile(r'\{"run_id":"([^"\\]*)","result":')
_COMPLETED_TAIL = re.compile(r',"duration_s":([\d.e+-]+)\}\Z')


@dataclass(frozen=True, slots=True)
class RunFailed(RunEnd):
    """The body has raised."""

    type = WorkflowEventType.FAILED
    written_nulls = ("error",)
    max_depth = None
    run_id: str = ""
    error: str | None = None
    error_type: str = ""
    duration_s: float = 0.0
    location: str | None = None
    """The last frame of the user's code: `flow.py:12 in charge`."""
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class RunCancelled(RunEnd):
    """The run was stopped, or a person rejected it."""

    type = WorkflowEventType.CANCELLED
    max_depth = None
    run_id: str = ""
    reason: str = ""
    killed: list[str] = field(default_factory=list)
    """The paths that were executing."""
    stopped_with: str | None = None
    """The enclosing run that was stopped."""
    error_type: str | None = None
    error: str | None = None
    """What the body raised while it was being stopped."""
    moved_to: dict[str, Any] | None = None
    """For a run that continues in another engine: its `engine`, its `store`, and the `state` of the run."""


@dataclass(frozen=True, slots=True)
class RunStopping(KnownEvent):
    """The body was cancelled at this point and cleans up; then the run ends as cancelled, or as failed."""

    type = WorkflowEventType.STOPPING
    run_id: str = ""
    reason: str = ""
    stopped_with: str | None = None
    error: str | None = None
    """The limit that the run has reached, if that is why."""
    error_type: str | None = None


@dataclass(frozen=True, slots=True)
class RunPaused(KnownEvent):
    type = WorkflowEventType.PAUSED
    run_id: str = ""
    resting: list[str] | None = None
    """The leaves that wait for their next attempt."""


@dataclass(frozen=True, slots=True)
class RunResumed(KnownEvent):
    type = WorkflowEventType.RESUMED
    run_id: str = ""
    limits: dict[str, Any] | None = None
    """Raised limits of the run, and of steps by path."""
    with_changes: bool = False
    """Whether changed code was accepted: events before this one are optional."""


@dataclass(frozen=True, slots=True)
class RunOnHold(KnownEvent):
    """The run needs a decision of the user."""

    type = WorkflowEventType.HELD
    max_depth = None
    reason: str = ""
    message: str = ""
    path: str = ""
    purse: str | None = None
    """The run whose budget is exhausted, or `day`."""
    limit: Any = None


@dataclass(frozen=True, slots=True)
class RunChanged(KnownEvent):
    """The run continues with another definition of its workflow."""

    type = WorkflowEventType.CHANGED
    definition: str = ""
