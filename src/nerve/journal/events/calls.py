"""Events of calls of nodes: start, retry and outcome, which are most of a journal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import EXACT_TYPES, decode_json, encode_json
from nerve.core.result import (
    CHILD_REJECTED_ERROR_TYPE,
    REJECTED_ERROR_TYPE,
    Result,
    Settlement,
    restore_results,
)
from nerve.core.runtime import NodeCall
from nerve.core.tracebacks import FailureTrace
from nerve.errors import NotJson
from nerve.journal.events.known_event import KnownEvent, put_before
from nerve.lazy_dataclass import dataclass

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
        is_control, is_once = control is not None, once is not None
        fields = node_id, input_hash, input_json, step_id, is_control, is_once, child, NO_EXTRA
        return tuple.__new__(cls, fields)

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
        node_id, hash, input_json, step_id, is_control, is_once, child, extra = self
        if step_id is None and child is None and not (is_control or is_once or extra):
            return f'{{"node_id":{cached_json(node_id)},"hash":"{hash}","input":{input_json}}}'
        control = '{"control":true,"node_id":' if is_control else '{"node_id":'
        marks = f',"step_id":{cached_json(step_id)}' if step_id is not None else ""
        if is_once:
            marks += ',"once":true'
        if child is not None:
            marks += f',"child":{encode_json(child)}'
        text = f'{control}{cached_json(node_id)}{marks},"hash":"{hash}","input":{input_json}}}'
        return put_before(extra, text) if extra else text


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
        result, ms = text[head.end() : -1], float(duration)
        if success == "true" and error is timeout is None:
            return tuple.__new__(cls, (node_id, True, result, ms, step_id, *NO_FAILURE))
        seconds = None if timeout is None else decode_json(timeout)
        return cls(node_id, success == "true", result, ms, step_id, error, error_type, seconds)

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
        (node_id, success, result, duration, step_id, error, error_type, timeout, decided, *trace, extra) = (
            self
        )
        if success and duration is not None and step_id is None and decided is None and not extra:
            return (
                f'{{"node_id":{cached_json(node_id)},"success":true,"duration_ms":{duration:.3f}'
                f',"result":{result}}}'
            )
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


NO_FAILURE = (*(None,) * 6, NO_EXTRA)
"""The last fields of a call that has succeeded: nothing about a failure or its decision."""


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


def open_call(
    call: NodeCall, input_hash: str, input_json: str, is_control: bool, child: str | None
) -> CallStarted:
    """Return the event that starts a call; `child` is the id of the child run that it starts."""
    event_class: type[CallStarted] = NodeStarted
    step_id = None
    if call.is_graph_step:
        event_class, step_id = StepStarted, call.path.rsplit("/", 1)[-1]
    is_once = call.policy.effect == "once" and child is None
    # Built in C, like the event that settles the call: a run has both for every step.
    fields = call.node_id, input_hash, input_json, step_id, is_control, is_once, child, NO_EXTRA
    return tuple.__new__(event_class, fields)


_EVENT_BY_SETTLEMENT: dict[Settlement, type[CallSettled]] = {
    "error": NodeError,
    "timeout": NodeTimeout,
    "completed": NodeCompleted,
}


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
        fields = call.node_id, True, text, seconds * 1000, step_id, *NO_FAILURE
        return tuple.__new__(event_class, fields), stored_result
    timeout = stored_result.timeout_seconds if settlement == "timeout" else None
    why = stored_result.error, stored_result.error_type, timeout
    trace = FailureTrace.of_result(stored_result)
    return event_class(call.node_id, False, text, seconds * 1000, step_id, *why, None, *trace), stored_result


def encode_result(result: Result) -> tuple[str, Result]:
    """Return the JSON of a result, and the result as it will be read back; a scalar one is unchanged."""
    output = result.get("output")
    if (
        type(output) in EXACT_TYPES
        and len(result) == 3
        and result.get("success") is True
        and not result.get("attributes")
    ):
        try:
            return f'{{"success":true,"output":{encode_json(output)},"attributes":{{}}}}', result
        except NotJson:
            pass  # encoded again below, where the error names the position
    text = encode_json(result)
    # Read back, so the body sees the same value now as on replay (tuples become lists, keys become
    # strings).
    return text, restore_result(decode_json(text), text).with_settlement(result)
