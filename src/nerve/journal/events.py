"""Events of a journal: one class for each type, the only code that encodes and decodes event data.

A field whose default is None or False is left out of the JSON while it has that default, except those that
a class lists in `written_nulls`. Keys missing in older journals get their defaults. Unknown keys, and values
of another type than their field, are kept in `extra`: users can emit some of these events with any data.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import attrgetter
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from nerve.core.events import (
    LONG_TEXT_EVENTS,
    MAX_SHOWN_CHARS,
    JournalRow,
    WorkflowEvent,
    WorkflowEventType,
    truncate_event_data,
)
from nerve.core.json_codec import (
    MAX_EVENT_DEPTH,
    decode_json,
    encode_json,
    is_scalar_json,
    replace_invalid_text,
)
from nerve.core.result import (
    CHILD_REJECTED_ERROR_TYPE,
    REJECTED_ERROR_TYPE,
    Result,
    Settlement,
    restore_results,
)
from nerve.core.runtime import NodeCall
from nerve.core.tracebacks import FailureTrace
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.errors import JournalBroken, NotJson
from nerve.journal.paths import ROOT_PATH
from nerve.lazy_dataclass import dataclass
from nerve.store.port import EventRow as StoredRow
from nerve.store.port import RunRow, Store

log = logging.getLogger("nerve")


class FieldSpec(NamedTuple):
    """How a field of an event is read and written."""

    accepted_types: tuple[type, ...]
    """The types of its values; empty for any type."""
    default: Any
    is_optional: bool
    """Whether it is left out of the JSON while it has its default."""

    def accepts(self, value: Any) -> bool:
        return not self.accepted_types or isinstance(value, self.accepted_types)


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """An event whose type the engine knows."""

    type: ClassVar[WorkflowEventType]
    max_depth: ClassVar[int | None] = MAX_EVENT_DEPTH
    """The maximum nesting of its data; None if deeper values may be written approximately."""
    written_nulls: ClassVar[tuple[str, ...]] = ()
    """The fields that are written even if they are None."""
    has_foreign_text: ClassVar[bool] = False
    """Whether its text comes from agents, commands and errors; invalid characters in it are replaced."""

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the event with this JSON as its data."""
        return cls.from_data(decode_json(text))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        specs = field_specs(cls)
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for key, value in data.items():
            spec = specs.get(key)
            if spec is None or (spec.is_optional and value is spec.default) or not spec.accepts(value):
                extra[key] = value
            else:
                known[key] = value
        return cls(**known, extra=extra)

    def to_data(self) -> dict[str, Any]:
        """Return the data as the journal has it."""
        names, omitted_values, read_values = field_encoding(type(self))
        data = {
            name: value
            for name, value, omitted in zip(names, read_values(self), omitted_values, strict=True)
            if value is not omitted
        }
        return data | self.extra if self.extra else data

    def encode(self) -> str:
        """Return the data as JSON; raise NotJson if it cannot be encoded."""
        return encode_event_data(self.to_data(), self.max_depth, self.has_foreign_text)


def encode_event_data(
    data: Mapping[str, Any], max_depth: int | None = MAX_EVENT_DEPTH, has_foreign_text: bool = False
) -> str:
    try:
        return encode_json(data, max_depth=max_depth)
    except NotJson:
        if not has_foreign_text:
            raise
        return encode_json(replace_invalid_text(data), max_depth=max_depth)


def field_specs(event_class: type[KnownEvent]) -> dict[str, FieldSpec]:
    """Return the fields of an event class by name, without `extra`."""
    if (specs := _FIELD_SPECS.get(event_class)) is None:
        # On first use: most processes read events of few types.
        specs = _FIELD_SPECS[event_class] = read_field_specs(event_class)
    return specs


_FIELD_SPECS: dict[type[KnownEvent], dict[str, FieldSpec]] = {}

FieldEncoding = tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]
ALWAYS_WRITTEN = object()
"""Stands for the value with which a field is left out, if it is always written."""
_FIELD_ENCODINGS: dict[type[KnownEvent], FieldEncoding] = {}


def field_encoding(event_class: type[KnownEvent]) -> FieldEncoding:
    """Return the names of the fields, the values with which they are left out, and a reader of all values."""
    if (encoding := _FIELD_ENCODINGS.get(event_class)) is None:
        specs = field_specs(event_class)
        names = tuple(specs)
        omitted = tuple(spec.default if spec.is_optional else ALWAYS_WRITTEN for spec in specs.values())
        read_values = attrgetter(*names) if len(names) > 1 else partial(read_attributes, names)
        encoding = _FIELD_ENCODINGS[event_class] = names, omitted, read_values
    return encoding


def read_attributes(names: tuple[str, ...], event: KnownEvent) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in names)


def read_field_specs(event_class: type[KnownEvent]) -> dict[str, FieldSpec]:
    hints = get_type_hints(event_class)
    specs: dict[str, FieldSpec] = {}
    for event_field in fields(event_class):
        if event_field.name == "extra":
            continue
        hint = hints[event_field.name]
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        accepted = {get_origin(part) or part for part in parts}
        # JSON has one type of number: 5 is a valid float.
        accepted |= {int} if float in accepted else set()
        default = event_field.default
        # By identity: 0.0 == False, but a number is always written.
        is_omitted = default is None or default is False
        is_optional = is_omitted and event_field.name not in event_class.written_nulls
        specs[event_field.name] = FieldSpec(() if Any in accepted else tuple(accepted), default, is_optional)
    return specs


# -- the run ---------------------------------------------------------------------------------------


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


# -- calls -----------------------------------------------------------------------------------------


NO_EXTRA: Mapping[str, Any] = MappingProxyType({})
NO_ATTRIBUTES = '"attributes":{}}'
"""The end of a result without attributes."""
_SETTLED_BY_EVENT: dict[str, Settlement] = {
    WorkflowEventType.NODE_ERROR: "error",
    WorkflowEventType.NODE_TIMEOUT: "timeout",
}


@lru_cache(10_000)
def cached_json(name: str) -> str:
    """Return the JSON of a name, cached because names repeat."""
    return encode_json(name)


_NAME = r'"([^"\\]*)"'
"""A string without escapes; an event with another one is decoded as a whole."""
_STARTED_HEAD = re.compile(
    rf'\{{("control":true,)?"node_id":{_NAME},(?:"step_id":{_NAME},)?("once":true,)?(?:"child":{_NAME},)?'
    rf'"hash":{_NAME},"input":'
)
_SETTLED_HEAD = re.compile(
    rf'\{{"node_id":{_NAME},"success":(true|false),"duration_ms":([\d.]+),(?:"step_id":{_NAME},)?'
    rf'(?:"error":{_NAME},"error_type":{_NAME},)?(?:"timeout":([\d.e+-]+),)?"result":'
)


_SETTLED_NAMES = (
    "node_id",
    "duration_ms",
    "step_id",
    "error",
    "error_type",
    "timeout",
    "decided",
    "location",
    "traceback",
)


class CallStarted(NamedTuple):
    """The body has called a node; `input_json` is the JSON of the input, decoded on demand.

    Starts and ends of calls are most of a journal. As named tuples they are built in C.
    """

    node_id: str = ""
    hash: str = ""
    input_json: str = "null"
    step_id: str | None = None
    is_control: bool = False
    is_once: bool = False
    """Whether it has effect="once"."""
    child: str | None = None
    """The id of the child run that the call starts."""
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def type(self) -> WorkflowEventType:
        """The type of the event; each of the classes below has its own."""
        raise NotImplementedError

    @property
    def is_leaf(self) -> bool:
        """Whether it acts by itself: not a control node, and not a child run."""
        return not self.is_control and self.child is None

    @property
    def input(self) -> Any:
        return decode_json(self.input_json)

    @classmethod
    def decode(cls, text: str) -> Self:
        # By hand: most events of a journal are starts and ends of calls, and few inputs are ever read.
        if (head := _STARTED_HEAD.match(text)) is None:
            return cls.from_data(decode_json(text))
        control, node_id, step_id, once, child, input_hash = head.groups()
        input_json = text[head.end() : -1]
        return cls(node_id, input_hash, input_json, step_id, control is not None, once is not None, child)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        names = ("node_id", "hash", "step_id", "child")
        known: dict[str, Any] = {name: data[name] for name in names if data.get(name) is not None}
        read_keys = {*known, "input", "control", "once"}
        known["input_json"] = encode_json(data.get("input"), max_depth=None)
        known |= {"is_control": bool(data.get("control")), "is_once": bool(data.get("once"))}
        return cls(**known, extra={key: value for key, value in data.items() if key not in read_keys})

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = decode_json(self.encode())
        return data

    def encode(self) -> str:
        # Built by hand: this runs for every step.
        if self[3:] == DEFAULTS_OF_START:
            node_id, hash, input_json = self[:3]
            return f'{{"node_id":{cached_json(node_id)},"hash":"{hash}","input":{input_json}}}'
        node_id, hash, input_json, step_id, is_control, is_once, child, extra = self
        control = '{"control":true,"node_id":' if is_control else '{"node_id":'
        marks = f',"step_id":{cached_json(step_id)}' if step_id is not None else ""
        if is_once:
            marks += ',"once":true'
        if child is not None:
            marks += f',"child":{encode_json(child)}'
        text = f'{control}{cached_json(node_id)}{marks},"hash":"{hash}","input":{input_json}}}'
        return put_before(extra, text) if extra else text


DEFAULTS_OF_START = CallStarted()[3:]
"""The last fields of the start of a leaf; most leaves are started with these."""


def put_before(extra: Mapping[str, Any], text: str) -> str:
    """Return the JSON of an object with further keys; first, so that the head is not read as a usual one."""
    return f"{encode_json(dict(extra), max_depth=MAX_EVENT_DEPTH)[:-1]},{text[1:]}" if extra else text


class NodeStarted(CallStarted):
    __slots__ = ()
    type = WorkflowEventType.NODE_STARTED


class StepStarted(CallStarted):
    """Like `NodeStarted`, for a step of a graph."""

    __slots__ = ()
    type = WorkflowEventType.STEP_STARTED


class CallSettled(NamedTuple):
    """A call has its outcome; `result_json` is the JSON of its result, decoded on demand."""

    node_id: str = ""
    success: bool = False
    result_json: str = "{}"
    duration_ms: float | None = None
    step_id: str | None = None
    error: str | None = None
    error_type: str | None = None
    timeout: float | None = None
    decided: str | None = None
    """The decision of the user on a step whose outcome was unknown: `skip` or `fail`."""
    location: str | None = None
    """The last frame of the user's code, if the node raised: `flow.py:12 in charge`."""
    traceback: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA

    @property
    def type(self) -> WorkflowEventType:
        """The type of the event; each of the classes below has its own."""
        raise NotImplementedError

    @property
    def settlement(self) -> Settlement:
        """How the call ended: the node returned, raised or timed out."""
        return _SETTLED_BY_EVENT.get(self.type, "completed")

    @property
    def has_failed(self) -> bool:
        """Whether it is a failure; a rejection, which a person has decided, is not."""
        return not self.success and self.error_type not in (REJECTED_ERROR_TYPE, CHILD_REJECTED_ERROR_TYPE)

    @property
    def result(self) -> Result:
        """The result, as the body gets it."""
        result = restore_result(decode_json(self.result_json), self.result_json)
        result.settlement = self.settlement
        return result

    def attribute(self, name: str) -> Any:
        """Return an attribute of the result; None if it has no such attribute."""
        # A cheap filter: few results have attributes, and decoding all of them would dominate the time to
        # load a run.
        return self.attributes.get(name) if f'"{name}"' in self.result_json else None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the result."""
        if self.result_json.endswith(NO_ATTRIBUTES):
            return {}
        result = decode_json(self.result_json)
        return (result.get("attributes") or {}) if isinstance(result, dict) else {}

    @property
    def usage(self) -> Any:
        """The usage that the result reports; None if it reports none."""
        return self.attributes.get("usage") if '"usage"' in self.result_json else None

    @classmethod
    def decode(cls, text: str) -> Self:
        # A result is an object and usually the last key; a decision may follow it.
        if (head := _SETTLED_HEAD.match(text)) is None or not text.endswith("}}"):
            return cls.from_data(decode_json(text))
        node_id, success, duration, step_id, error, error_type, timeout = head.groups()
        return cls(
            node_id,
            success == "true",
            text[head.end() : -1],
            float(duration),
            step_id,
            error,
            error_type,
            None if timeout is None else decode_json(timeout),
        )

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        known = {name: data[name] for name in _SETTLED_NAMES if data.get(name) is not None}
        extra = {key: value for key, value in data.items() if key not in (*known, "success", "result")}
        known["success"] = bool(data.get("success"))
        known["result_json"] = encode_json(data.get("result") or {}, max_depth=None)
        return cls(**known, extra=extra)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = decode_json(self.encode())
        return data

    def encode(self) -> str:
        # Built by hand: this runs for every step.
        if self[4:] == DEFAULTS_OF_END and self.success and self.duration_ms is not None:
            node_id, _, result, duration = self[:4]
            return (
                f'{{"node_id":{cached_json(node_id)},"success":true,"duration_ms":{duration:.3f}'
                f',"result":{result}}}'
            )
        node_id, success, result, duration, step_id, error, error_type, timeout, decided, *trace, extra = self
        details = f',"duration_ms":{duration:.3f}' if duration is not None else ""
        if step_id is not None:
            details += f',"step_id":{cached_json(step_id)}'
        if not success:
            details += f',"error":{encode_json(error)}' if error is not None else ""
            details += f',"error_type":{cached_json(error_type)}' if error_type is not None else ""
            details += f',"timeout":{encode_json(timeout)}' if timeout is not None else ""
            if trace != [None, None]:
                details += "".join(
                    f',"{name}":{encode_json(value)}'
                    for name, value in zip(("location", "traceback"), trace, strict=True)
                    if value is not None
                )
        end = f',"decided":{cached_json(decided)}}}' if decided is not None else "}"
        outcome = "true" if success else "false"
        text = f'{{"node_id":{cached_json(node_id)},"success":{outcome}{details},"result":{result}{end}'
        return put_before(extra, text) if extra else text


DEFAULTS_OF_END = CallSettled()[4:]
"""The last fields of the end of a call that has succeeded."""


def restore_result(value: dict[str, Any], text: str) -> Result:
    """Return a decoded result; nested Results occur only in those of control nodes."""
    result: Result = restore_results(value) if text.count('"attributes":') > 1 else Result(value)
    return result


class NodeCompleted(CallSettled):
    __slots__ = ()
    type = WorkflowEventType.NODE_COMPLETED


class NodeError(CallSettled):
    """The node has raised."""

    __slots__ = ()
    type = WorkflowEventType.NODE_ERROR


class NodeTimeout(CallSettled):
    __slots__ = ()
    type = WorkflowEventType.NODE_TIMEOUT


class StepCompleted(CallSettled):
    """Like `NodeCompleted`, for a step of a graph."""

    __slots__ = ()
    type = WorkflowEventType.STEP_COMPLETED


class StepFailed(CallSettled):
    """Like `NodeCompleted`, `NodeError` or `NodeTimeout`, for a step of a graph that failed."""

    __slots__ = ()
    type = WorkflowEventType.STEP_FAILED


@dataclass(frozen=True, slots=True)
class NodeRetrying(KnownEvent):
    """A leaf runs again: after a failed attempt, after a crash, or because the user decided so."""

    type = WorkflowEventType.NODE_RETRYING
    has_foreign_text = True
    node_id: str = ""
    attempt: int = 1
    again: bool = False
    """Whether the user decided to run a step again whose outcome was unknown."""
    recovered: bool = False
    """Whether the process ended during the previous attempt."""
    attempts: int | None = None
    """The maximum number of attempts."""
    delay: float = 0.0
    error: str | None = None
    error_type: str | None = None
    location: str | None = None
    traceback: str | None = None


# -- waits -----------------------------------------------------------------------------------------


class WaitOpened(KnownEvent):
    """The body, or a leaf, waits for a person, a timer, a signal or a fact."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GateWaiting(WaitOpened):
    type = WorkflowEventType.GATE_WAITING
    written_nulls = ("choices", "options")
    gate_id: str = ""
    prompt: str = ""
    choices: list[str] | None = None
    options: list[str] | None = None
    node_id: str | None = None
    input_preview: Any = None
    note: str | None = None
    action: dict[str, Any] | None = None
    form: dict[str, Any] | None = None
    timeout: float | None = None
    deadline: float | None = None
    hash: str = ""
    typed: bool = False
    """Whether choices and form come from the type of the answer."""


@dataclass(frozen=True, slots=True)
class TimerStarted(WaitOpened):
    type = WorkflowEventType.TIMER_STARTED
    written_nulls = ("seconds", "deadline")
    seconds: float | None = None
    deadline: float | None = None
    guard: bool = False
    """Whether it bounds other steps; the run does not count as waiting for it."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class SignalWaiting(WaitOpened):
    """The body waits for a signal with a label, or for facts that match patterns."""

    type = WorkflowEventType.SIGNAL_WAITING
    written_nulls = ("label", "key", "deadline")
    patterns: dict[str, Any] | None = None
    label: str | None = None
    key: str | None = None
    deadline: float | None = None
    hash: str = ""

    def to_data(self) -> dict[str, Any]:
        data = KnownEvent.to_data(self)
        if self.patterns is not None:
            del data["label"], data["key"]
        return data

    @property
    def awaits_agent(self) -> bool:
        """Whether the response of an agent to a request can settle it."""
        from nerve.dataspace.builtin_records import RESPONSE_LABEL  # few runs wait for facts

        return any(pattern and pattern[0] == RESPONSE_LABEL for pattern in (self.patterns or {}).values())


@dataclass(frozen=True, slots=True)
class MessageWaiting(WaitOpened):
    """The body waits for the next message of a channel."""

    type = WorkflowEventType.MESSAGE_WAITING
    written_nulls = ("deadline",)
    channel: str = ""
    deadline: float | None = None
    background: bool = False
    """Whether it waits for updates beside the body; the run does not count as waiting for it."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class QueueWaiting(WaitOpened):
    """A step or the run waits for a slot of a queue. The engine opens this wait, not the body."""

    type = WorkflowEventType.QUEUE_WAITING
    written_nulls = ("key",)
    queue: str = ""
    key: str | None = None
    priority: int = 0


class WaitSettled(KnownEvent):
    """A wait has its outcome."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GateAnswered(WaitSettled):
    type = WorkflowEventType.GATE_ANSWERED
    written_nulls = ("answer", "response")
    gate_id: str = ""
    node_id: str | None = None
    answer: Any = None
    response: Any = None
    """The answer again, for readers of older versions."""
    by: str = ""
    via: str | None = None
    reason: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GateTimeout(WaitSettled):
    type = WorkflowEventType.GATE_TIMEOUT
    written_nulls = ("timeout",)
    gate_id: str | None = None
    node_id: str | None = None
    timeout: float | None = None


class TimerFired(WaitSettled):
    __slots__ = ()
    type = WorkflowEventType.TIMER_FIRED


@dataclass(frozen=True, slots=True)
class SignalReceived(WaitSettled):
    """A signal was received; for a wait with patterns, the value has the matched fact and its captures."""

    type = WorkflowEventType.SIGNAL_RECEIVED
    written_nulls = ("label", "key", "value")
    label: str | None = None
    key: str | None = None
    value: Any = None

    def to_data(self) -> dict[str, Any]:
        data = KnownEvent.to_data(self)
        if self.label is None:
            del data["label"], data["key"]
        return data


@dataclass(frozen=True, slots=True)
class SignalTimeout(WaitSettled):
    type = WorkflowEventType.SIGNAL_TIMEOUT
    written_nulls = ("timeout",)
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class MessageReceived(WaitSettled):
    """The body has received a message; `message` is the sequence number of the event that sent it."""

    type = WorkflowEventType.MESSAGE_RECEIVED
    written_nulls = ("value",)
    channel: str = ""
    message: int = 0
    value: Any = None


@dataclass(frozen=True, slots=True)
class MessageTimeout(WaitSettled):
    type = WorkflowEventType.MESSAGE_TIMEOUT
    written_nulls = ("timeout",)
    channel: str = ""
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class QueueEntered(WaitSettled):
    """A step or the run got a slot of a queue that it had to wait for, or needs for another attempt."""

    type = WorkflowEventType.QUEUE_ENTERED
    written_nulls = ("key",)
    queue: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TimerMoved(KnownEvent):
    """A timer that bounds other steps was paused, or continues."""

    type = WorkflowEventType.TIMER_MOVED
    left: float | None = None
    """The remaining seconds of a paused timer."""
    deadline: float | None = None
    guard: bool = True


@dataclass(frozen=True, slots=True)
class RequestAbandoned(KnownEvent):
    """The body has abandoned a call or wait, or a stop has ended it."""

    gate_id: str | None = None
    node_id: str | None = None
    step_id: str | None = None
    stopped: bool = False
    """Whether a stop caused it, and not the body."""
    result: dict[str, Any] | None = None
    """A result with the `attributes` of the abandoned call, if it has used something."""

    def attribute(self, name: str) -> Any:
        """Return an attribute of the result; None if it has no such attribute."""
        return self.attributes.get(name)

    @property
    def attributes(self) -> dict[str, Any]:
        return (self.result or {}).get("attributes") or {}

    @property
    def usage(self) -> Any:
        return self.attribute("usage")


class NodeCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.NODE_CANCELLED


class GateCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.GATE_CANCELLED


class TimerCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.TIMER_CANCELLED


class SignalCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.SIGNAL_CANCELLED


class MessageCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.MESSAGE_CANCELLED


class QueueCancelled(RequestAbandoned):
    __slots__ = ()
    type = WorkflowEventType.QUEUE_CANCELLED


def abandon_by_stop(request: CallStarted | WaitOpened) -> RequestAbandoned:
    """Return the event that ends a call or wait because its run stops."""
    match request:
        case CallStarted(node_id=node_id, step_id=step_id):
            return NodeCancelled(node_id=node_id, step_id=step_id, stopped=True)
        case GateWaiting(gate_id=gate_id, node_id=node_id):
            return GateCancelled(gate_id=gate_id, node_id=node_id, stopped=True)
        case TimerStarted():
            return TimerCancelled(stopped=True)
        case MessageWaiting():
            return MessageCancelled(stopped=True)
        case QueueWaiting():
            return QueueCancelled(stopped=True)
    return SignalCancelled(stopped=True)


# -- messages from outside ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSent(KnownEvent):
    """A message for the run; it stays unread until the body receives it."""

    type = WorkflowEventType.MESSAGE_SENT
    written_nulls = ("value",)
    channel: str = ""
    value: Any = None
    key: str | None = None
    """The idempotency key: a second message with it is not sent."""
    by: str | None = None
    carried: int | None = None
    """The number of the message in the previous run of the chain, which did not read it."""


@dataclass(frozen=True, slots=True)
class UpdateCompleted(KnownEvent):
    """The body has handled an update; `message` is the event that requested it."""

    type = WorkflowEventType.UPDATE_COMPLETED
    has_foreign_text = True
    written_nulls = ("result",)
    name: str = ""
    message: int = 0
    result: Any = None
    error: str | None = None
    error_type: str | None = None


# -- what the engine records about a body ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockRead(KnownEvent):
    type = WorkflowEventType.CLOCK_READ
    now: str = ""


@dataclass(frozen=True, slots=True)
class PathReset(KnownEvent):
    """What is recorded at and below the path no longer applies: the step runs again."""

    type = WorkflowEventType.PATH_RESET
    because: str = ""


@dataclass(frozen=True, slots=True)
class ChildStopped(KnownEvent):
    """The usage of a child run that was stopped."""

    type = WorkflowEventType.CHILD_STOPPED
    run_id: str = ""
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TagsChanged(KnownEvent):
    """The body has set tags of the run; other tags stay."""

    type = WorkflowEventType.TAGS_CHANGED
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PatchEvaluated(KnownEvent):
    """The body has asked for the first time whether it takes the new branch of a patch."""

    type = WorkflowEventType.PATCH_EVALUATED
    name: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True)
class FactsCopied(KnownEvent):
    """A fork has changed facts as the copied step at the path did, for its own id."""

    type = WorkflowEventType.FACTS_COPIED


# -- what nodes emit; users can emit events of these names with any data ------------------------------


class ForeignText(KnownEvent):
    """An event with text of an agent or a command."""

    __slots__ = ()
    has_foreign_text = True


class IterationStarted(KnownEvent):
    """An event that counts as an iteration."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LoopIteration(IterationStarted):
    type = WorkflowEventType.LOOP_ITERATION
    loop_id: str | None = None
    iteration: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class StateEntered(IterationStarted):
    type = WorkflowEventType.STATE_ENTERED
    node_id: str | None = None
    state: str | None = None
    transition: int | None = None
    previous: str | None = None
    """How the previous state ended: `completed` or `failed`."""


@dataclass(frozen=True, slots=True)
class BranchTaken(KnownEvent):
    type = WorkflowEventType.BRANCH_TAKEN
    node_id: str | None = None
    branch: str | None = None
    key: Any = None


@dataclass(frozen=True, slots=True)
class MapItemStart(KnownEvent):
    type = WorkflowEventType.MAP_ITEM_START
    node_id: str | None = None
    index: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class MapItemComplete(KnownEvent):
    type = WorkflowEventType.MAP_ITEM_COMPLETE
    node_id: str | None = None
    index: int | None = None
    success: bool | None = None


@dataclass(frozen=True, slots=True)
class OutputChunk(ForeignText):
    type = WorkflowEventType.OUTPUT_CHUNK
    stream: str | None = None
    text: str | None = None
    dropped_characters: int | None = None
    printed: bool = False
    """Whether a function printed it; it is not part of the output of the step."""


@dataclass(frozen=True, slots=True)
class ToolCalled(ForeignText):
    """An agent calls a tool, or reports how a call proceeds."""

    type = WorkflowEventType.TOOL_CALL
    name: str | None = None
    input: Any = None
    id: str | None = None
    status: str | None = None
    text: str | None = None
    dropped_characters: int | None = None


class UsageReported(ForeignText):
    """The usage of one turn of an agent; `extra` has the figures, which providers extend."""

    __slots__ = ()
    type = WorkflowEventType.USAGE


@dataclass(frozen=True, slots=True)
class PlanReported(ForeignText):
    type = WorkflowEventType.PLAN
    entries: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class PermissionDecided(ForeignText):
    type = WorkflowEventType.PERMISSION
    tool: str | None = None
    verdict: str | None = None


@dataclass(frozen=True, slots=True)
class AgentThreadRecorded(KnownEvent):
    """The conversation of an agent, and what the step has used so far."""

    type = WorkflowEventType.AGENT_THREAD
    thread: str | None = None
    provider: str | None = None
    totals: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    forks: str | None = None
    """The conversation that this one forks; a crash leaves it unknown whether the fork was created."""


@dataclass(frozen=True, slots=True)
class Steered(KnownEvent):
    """A message was sent to the agent of a step."""

    type = WorkflowEventType.STEERED
    text: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderLimited(KnownEvent):
    type = WorkflowEventType.PROVIDER_LIMITED
    provider: str | None = None
    until: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ProviderOpen(KnownEvent):
    type = WorkflowEventType.PROVIDER_OPEN
    provider: str | None = None
    over: bool | None = None
    """Whether the limit of the provider has ended."""


@dataclass(frozen=True, slots=True)
class StepSkipped(KnownEvent):
    type = WorkflowEventType.SKIPPED
    step_id: str | None = None
    path: str | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class LogWritten(ForeignText):
    type = WorkflowEventType.LOG
    message: str | None = None
    thread: str | None = None
    """`running` or `ended`: whether the thread of a sync function outlives its step."""
    level: str | None = None
    """The level of a record of `logging`, such as `warning`."""
    logger: str | None = None


@dataclass(frozen=True, slots=True)
class EmittedEvent:
    """An event that a node emitted, with its data as it is; decoded, one under a name of the user's own."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        return self.data

    def copy(self) -> EmittedEvent:
        """Return the event as it will be read back; its data does not change with that of the emitter."""
        return EmittedEvent(self.type, decode_json(self.encode()))

    def encode(self) -> str:
        event_class = EVENT_CLASSES.get(self.type)
        has_foreign_text = event_class is not None and getattr(event_class, "has_foreign_text", False)
        return encode_event_data(self.data, has_foreign_text=has_foreign_text)


CallEvent = CallStarted | CallSettled
Request = CallStarted | WaitOpened
"""What a body asks for and waits for."""
Event = KnownEvent | CallEvent | EmittedEvent


def _subclasses(event_class: Any) -> Iterator[Any]:
    for subclass in event_class.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


EVENT_CLASSES: dict[str, type[KnownEvent | CallEvent]] = {
    event_class.type: event_class
    for family in (KnownEvent, CallStarted, CallSettled)
    for event_class in _subclasses(family)
    if hasattr(event_class, "type")
}
"""The class of each event type."""


def decode_event(row: JournalRow) -> Event:
    """Return the event of a row."""
    event_class = EVENT_CLASSES.get(row.type)
    if event_class is None:
        return EmittedEvent(row.type, decode_json(row.data))
    return event_class.decode(row.data)


def event_from_data(type: str, data: Mapping[str, Any]) -> Event:
    """Return the event of data as clients get it."""
    event_class = EVENT_CLASSES.get(type)
    return EmittedEvent(type, dict(data)) if event_class is None else event_class.from_data(data)


def may_contain(data: str, text: str) -> bool:
    """Whether the stored data of an event could have a text; cheaper than decoding it."""
    return encode_json(text, max_depth=None)[1:-1] in data


def data_length(row: JournalRow) -> int:
    """Return the number of characters of the data of an event."""
    return len(row.data)


def read_short_input(first_row: JournalRow, max_chars: int) -> Any:
    """Return the input in the first event of a run; None if the event is longer than `max_chars`."""
    start = decode_event(first_row) if len(first_row.data) <= max_chars else None
    return start.input if isinstance(start, RunStarted) else None


def outcome_of(event: Event) -> Any:
    """Return the outcome for the body: a result, an answer, or a timeout."""
    match event:
        case CallSettled():
            return event.result
        case GateAnswered(answer=answer):
            return answer
        case SignalReceived(value=value):
            return value
        case MessageReceived():
            return event
        case GateTimeout(timeout=seconds):
            return wait_timeout_error("gate", seconds)
        case SignalTimeout(timeout=seconds):
            return wait_timeout_error("signal", seconds)
        case MessageTimeout(channel=channel, timeout=seconds):
            return wait_timeout_error(f"message '{channel}'", seconds)
    return None


def make_event(run_id: str, workflow_id: str, row: JournalRow, untruncated: bool = False) -> WorkflowEvent:
    """Return the event of a row as clients get it; long output is truncated unless `untruncated` is set."""
    at, data = datetime.fromtimestamp(row.at, UTC), decode_json(row.data)
    if row.type in LONG_TEXT_EVENTS and not untruncated and len(row.data) > MAX_SHOWN_CHARS:
        data = truncate_event_data(data)
    return WorkflowEvent(run_id, workflow_id, row.type, data, at, seq=row.seq, path=row.path)


_EVENT_BY_SETTLEMENT: dict[Settlement, type[CallSettled]] = {
    "error": NodeError,
    "timeout": NodeTimeout,
    "completed": NodeCompleted,
}


def read_intact(store: Store, run_id: str) -> list[StoredRow]:
    """Return the events of a run, or none if its journal is damaged, so that sums over runs still work."""
    try:
        return store.events(run_id)
    except JournalBroken as error:
        log.warning("skipped a damaged journal: %s", error)
        return []


def compare_run_row(row: RunRow, first: StoredRow, last: StoredRow) -> Iterator[str]:
    """Yield the differences between the row of a run and the first and last event of its journal."""
    start, names = decode_event(first), ("session", "key", "parent", "conversation", "label")
    journal_values = {"run": getattr(start, "run_id", None), "workflow": getattr(start, "workflow_id", None)}
    journal_values |= {name: getattr(start, name, None) for name in names}
    ended = last.type.removeprefix("workflow_") if last.settles == ROOT_PATH else None
    if ended is not None or row.state in FINAL_STATE_VALUES:
        journal_values["state"] = ended or "open"
    for name, value in journal_values.items():
        if (row_value := getattr(row, name)) != value:
            yield f"its row in the runs table has {name} {row_value!r}, but its journal has {value!r}"


def contains_text(row: JournalRow, text: str) -> bool:
    """Return whether the type, the path or the data of an event contains a text in lower case."""
    return text in row.type or text in row.path.lower() or text in row.data.lower()


def settle_call(call: NodeCall, result: Result, seconds: float) -> tuple[CallSettled, Result]:
    """Return the event that settles a call, and its result as it will be read back."""
    try:
        text, stored_result = encode_result(result)
    # A result that cannot be stored fails the step: replay could not return it.
    except NotJson as error:
        text, stored_result = encode_result(Result.from_exception(error))
    is_success, settlement = stored_result.get("success"), stored_result.settlement
    event_class, step_id = _EVENT_BY_SETTLEMENT[settlement], None
    if call.is_graph_step:
        event_class = StepCompleted if is_success else StepFailed
        step_id = call.path.rsplit("/", 1)[-1]
    if is_success:
        first_fields = call.node_id, True, text, seconds * 1000, step_id
        return tuple.__new__(event_class, first_fields + DEFAULTS_OF_END[1:]), stored_result
    timeout = stored_result.timeout_seconds if settlement == "timeout" else None
    why = stored_result.error, stored_result.error_type, timeout
    trace = FailureTrace.of_result(stored_result)
    return event_class(call.node_id, False, text, seconds * 1000, step_id, *why, None, *trace), stored_result


def encode_result(result: Result) -> tuple[str, Result]:
    """Return the JSON of a result, and the result as it will be read back; a scalar one is unchanged."""
    output = result.get("output")
    is_plain = len(result) == 3 and result.get("success") is True and not result.get("attributes")
    if is_plain and is_scalar_json(output):
        try:
            return f'{{"success":true,"output":{encode_json(output)},"attributes":{{}}}}', result
        except NotJson:
            pass  # encoded again below, where the error names the position
    text = encode_json(result)
    # Read back, so the body sees the same value now as on replay (tuples become lists, keys become
    # strings).
    return text, restore_result(decode_json(text), text).with_settlement(result)


def wait_timeout_error(kind: str, seconds: float | None) -> TimeoutError:
    """Return the error for a wait that timed out."""
    return TimeoutError(f"{kind} timed out" + (f" after {seconds:g} s" if seconds is not None else ""))
