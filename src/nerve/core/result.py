"""Result: the outcome of executing a node, a dict of a fixed shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from nerve.core.json_codec import decode_json, encode_json, find_json_object
from nerve.core.json_diagnostics import json_key_text, truncate_error_text
from nerve.core.validation import require_mapping
from nerve.errors import NodeFailed, Rejected

RESULT_KEYS = frozenset({"success", "output", "error", "error_type", "attributes"})

REPORTED_FAILURE_MESSAGE = "the output has success: false"

REQUIRED_RESULT_KEYS = frozenset({"success", "output", "attributes"})

Settlement = Literal["completed", "error", "timeout", "skipped"]
ResultOutcome = Literal["ok", "failed", "skipped", "timed_out", "cancelled"]
OUTCOMES: tuple[ResultOutcome, ...] = get_args(ResultOutcome)
REJECTED_ERROR_TYPE = "Rejected"
"""The error type of a rejected gate: it ends the run, and no error handler receives it."""
CHILD_REJECTED_ERROR_TYPE = "ChildRejected"
"""The error type of a called workflow that ended by a rejection: `on_error` of the caller handles it."""
REJECTED_ERROR_TYPES = frozenset({REJECTED_ERROR_TYPE, CHILD_REJECTED_ERROR_TYPE})
IMMUTABLE_TYPES = frozenset({str, int, float, bool, type(None)})
"""Types of values that can be shared without a copy."""


class Result(dict[str, Any]):
    """The outcome of a node: `success`, `output`, `attributes`; for failures `error` and `error_type`.

    `result["output"]` of a failure raises NodeFailed, so a failure cannot pass unnoticed as a value;
    `result.get("output")` and `result.output` return what the failed node returned.
    """

    node: str = ""
    """The path of the step that it belongs to, where it is known."""
    settlement: Settlement = "completed"
    """How the call ended: the node returned, raised, timed out, or was never executed."""
    cause: BaseException | None = None
    """The exception, in the process that raised it."""
    interruption: BaseException | None = None
    """The exception that ended a node that timed out; its traceback shows where the node was."""
    timeout_seconds: float | None = None
    """The timeout that expired, in seconds."""
    _parsed_output: tuple[str, dict[str, Any]] = ("", {})
    """Cache of `data`: the last output that was parsed, and the object in it."""

    def __getitem__(self, key: str) -> Any:
        if key == "output" and not self.get("success"):
            raise NodeFailed(self.node or "a node", self.error_type or "Failed", self.error) from self.cause
        return super().__getitem__(key)

    def with_settlement(self, other: Result) -> Result:
        """Copy settlement, causes and timeout of another result to this one, and return this one."""
        self.settlement, self.timeout_seconds = other.settlement, other.timeout_seconds
        self.cause, self.interruption = other.cause, other.interruption
        return self

    @classmethod
    def ok(cls, output: Any = None, attributes: Mapping[str, Any] | None = None) -> Result:
        """Return a successful result with this output."""
        return cls(success=True, output=output, attributes=dict(attributes or {}))

    @classmethod
    def failed(
        cls,
        error: str,
        error_type: str = "Failed",
        output: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Result:
        """Return a failed result with this error; `error_type` is a short name of its kind."""
        return cls(
            success=False,
            output=output,
            error=truncate_error_text(error),
            error_type=truncate_error_text(error_type),
            attributes=dict(attributes or {}),
        )

    @classmethod
    def of(cls, value: Any) -> Result:
        """Return the result for the return value of a function.

        A dict of the shape of a result becomes the result; any other value becomes its output. An object
        with `success: false` is a failure, whatever else it contains.
        """
        # The common cases first: a complete Result, which needs no copy, and a plain value.
        # With `get`, here and below: `__getitem__` runs Python code, and this runs for every step.
        if type(value) is cls and "output" in value and type(value.get("attributes")) is dict:
            success = value.get("success")
            if success is True:
                return value
            if success is False and type(value.get("error")) is type(value.get("error_type")) is str:
                return value
        elif not isinstance(value, dict):
            return cls(success=True, output=value, attributes={})
        if not is_result_shaped(value) and not (type(value) is cls and value.keys() >= REQUIRED_RESULT_KEYS):
            return cls.ok(value).with_reported_failure()
        result = cls._from_shaped_dict(value)
        return result.with_settlement(value) if isinstance(value, Result) else result

    @classmethod
    def _from_shaped_dict(cls, value: dict[str, Any]) -> Result:
        attributes = value.get("attributes")
        if attributes is not None:
            require_mapping("attributes of a result", attributes)
        if value.get("success", not value.get("error")):
            return cls.ok(value.get("output"), attributes)
        return cls.failed(
            str(value.get("error") or "failed"),
            str(value.get("error_type") or "Failed"),
            value.get("output"),
            attributes,
        )

    @classmethod
    def from_exception(cls, error: BaseException) -> Result:
        """Return a failed result for an exception, which `cause` keeps."""
        name = type(error).__name__
        if name in (REJECTED_ERROR_TYPE, CHILD_REJECTED_ERROR_TYPE) and not isinstance(error, Rejected):
            name = f"{type(error).__module__}.{name}"  # a user exception of the same name is not a rejection
        result = cls.failed(error_text(error), name)
        result.cause = error
        return result

    def with_reported_failure(self) -> Result:
        """Return this result, or a failure with the same output if the output has `success: false`."""
        output = self.get("output")
        if not self["success"] or not isinstance(output, dict) or output.get("success") is not False:
            return self
        error = output.get("error")
        return Result.failed(
            error if isinstance(error, str) and error else REPORTED_FAILURE_MESSAGE,
            "Failed",
            output,
            self["attributes"],
        )

    @property
    def data(self) -> dict[str, Any]:
        """The output if it is an object or JSON of one; {} for any other output."""
        output = self.get("output")
        if isinstance(output, str):
            if self._parsed_output[0] != output:
                self._parsed_output = (output, find_json_object(output))
            return self._parsed_output[1]
        return output if isinstance(output, dict) else {}

    @property
    def success(self) -> bool:
        """Whether the node succeeded."""
        return bool(dict.__getitem__(self, "success"))

    @property
    def output(self) -> Any:
        """The value that the node returned; often None for a failure."""
        return self.get("output")

    @property
    def error(self) -> str:
        """Why it failed, or ""."""
        return str(self.get("error", ""))

    @property
    def error_type(self) -> str:
        """The kind of the failure, such as the name of an exception, or ""."""
        return str(self.get("error_type", ""))

    @property
    def attributes(self) -> dict[str, Any]:
        """Further data of the node, such as `iterations` or `exit_code`."""
        attributes: dict[str, Any] = dict.__getitem__(self, "attributes")
        return attributes


def error_text(error: BaseException) -> str:
    """Return the message of an exception; with its type, if it is not an Exception."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as str_error:
        text = f"{name}, whose __str__ raised {type(str_error).__name__}"
    if not text:
        return name
    return text if isinstance(error, Exception) else f"{name}: {text}"


def is_result_shaped(value: Any) -> bool:
    """Return whether a value is a dict with keys of a result only."""
    if not isinstance(value, dict) or not RESULT_KEYS.issuperset(value):
        return False
    return "output" in value or "success" in value


def result_output(value: Any) -> Any:
    """Return the output of a Result; return any other value unchanged."""
    return value.output if isinstance(value, Result) else value


def restore_results(value: Any) -> Any:
    """Return decoded JSON, with dicts of the shape of a Result turned back into Results."""
    if type(value) is list:
        return [restore_results(part) for part in value]
    if type(value) is not dict:
        return value
    restored = {key: restore_results(part) for key, part in value.items()}
    return Result(restored) if REQUIRED_RESULT_KEYS <= restored.keys() <= RESULT_KEYS else restored


def deep_copy_json(value: Any) -> Any:
    """Return a deep copy as JSON would restore it; Results in it stay Results."""
    if type(value) in IMMUTABLE_TYPES:
        return value
    if isinstance(value, list | tuple):
        return [part if type(part) in IMMUTABLE_TYPES else deep_copy_json(part) for part in value]
    if not isinstance(value, dict):
        return decode_json(encode_json(value))
    mapping = {
        key if type(key) is str else json_key_text(key): part
        if type(part) in IMMUTABLE_TYPES
        else deep_copy_json(part)
        for key, part in value.items()
    }
    if not isinstance(value, Result):
        return mapping
    return Result(mapping).with_settlement(value)


def census(results: Mapping[str, Result] | Sequence[Result]) -> dict[str, Any]:
    """Return how many parts had each outcome, and the names of those that did not succeed."""
    named_results = (
        results.items() if isinstance(results, Mapping) else ((str(i), r) for i, r in enumerate(results))
    )
    parts: dict[str, list[str]] = {kind: [] for kind in OUTCOMES}
    for name, result in named_results:
        parts[result_outcome(result)].append(name)
    counts: dict[str, Any] = {kind: len(names) for kind, names in parts.items()}
    counts["not_ok"] = {kind: names for kind, names in parts.items() if names and kind != "ok"}
    return counts


def was_skipped(result: Result) -> bool:
    """Return whether a step, or its failure, was skipped; attributes do not turn a failure into a skip."""
    if result.settlement == "skipped":
        return True
    return result.success and isinstance(result.attributes.get("skipped"), str)


def is_rejected(result: Result) -> bool:
    """Return whether a person rejected a gate, in this run or a child run. A rejection is never retried."""
    return not result.get("success") and result.get("error_type") in REJECTED_ERROR_TYPES


def is_final_rejection(result: Result) -> bool:
    """Return whether a person rejected a gate of this run; error handlers do not handle that."""
    return not result["success"] and result.get("error_type") == REJECTED_ERROR_TYPE


def first_rejection(results: Iterable[Result]) -> Result | None:
    """Return the first rejection; one of this run takes precedence over one of a child run."""
    rejected = [result for result in results if is_rejected(result)]
    return next(filter(is_final_rejection, rejected), rejected[0] if rejected else None)


def result_outcome(result: Result) -> ResultOutcome:
    if was_skipped(result):
        return "skipped"
    if result.success:
        return "ok"
    if result.settlement == "timeout" or result.error_type == "TimeoutError":
        return "timed_out"
    return "cancelled" if result.error_type == "CancelledError" else "failed"
