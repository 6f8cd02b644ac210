"""Result: what executing a node gives, a dict with one shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from nerve.core.json_codec import decode_json, encode_json, find_json_object
from nerve.core.json_diagnostics import json_key_text, truncate_error_text
from nerve.core.validation import require_mapping
from nerve.errors import Rejected

RESULT_KEYS = frozenset({"success", "output", "error", "error_type", "attributes"})

REPORTED_FAILURE_MESSAGE = "the answer says success: false"

REQUIRED_RESULT_KEYS = frozenset({"success", "output", "attributes"})

Settlement = Literal["completed", "error", "timeout", "skipped"]
ResultOutcome = Literal["ok", "failed", "skipped", "timed_out", "cancelled"]
OUTCOMES: tuple[ResultOutcome, ...] = get_args(ResultOutcome)
REJECTED_ERROR_TYPE = "Rejected"
"""The error type of a gate whose answer was a no: it ends the run, and no handler of errors sees it."""
CHILD_REJECTED_ERROR_TYPE = "ChildRejected"
"""The error type of a called workflow that ended so: `on_error` of the caller handles it."""
IMMUTABLE_TYPES = frozenset({str, int, float, bool, type(None)})
"""The types of values that can be shared as they are."""


class Result(dict[str, Any]):
    """`success`, `output`, `attributes`, and when it failed `error` and `error_type`."""

    settlement: Settlement = "completed"
    """How the call ended: the node returned, raised, ran out of time, or was never executed."""
    cause: BaseException | None = None
    """The exception itself, in the process where it was raised."""
    timeout_seconds: float | None = None
    """The seconds that it ran out of, if it did."""
    _parsed_output: tuple[str, dict[str, Any]] = ("", {})
    """The text that was looked into last, and the object in it."""

    def with_settlement(self, other: Result) -> Result:
        """This result, said to have come about as another one did."""
        self.settlement, self.cause, self.timeout_seconds = (
            other.settlement,
            other.cause,
            other.timeout_seconds,
        )
        return self

    @classmethod
    def ok(cls, output: Any = None, attributes: Mapping[str, Any] | None = None) -> Result:
        """A successful result with this output."""
        return cls(success=True, output=output, attributes=dict(attributes or {}))

    @classmethod
    def failed(
        cls,
        error: str,
        error_type: str = "Failed",
        output: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Result:
        """A failed result with this error; `error_type` is a short name of its kind."""
        return cls(
            success=False,
            output=output,
            error=truncate_error_text(error),
            error_type=truncate_error_text(error_type),
            attributes=dict(attributes or {}),
        )

    @classmethod
    def of(cls, value: Any) -> Result:
        """What a function returned, as a result: a result-shaped dict is one, anything else is the output.

        An object that says `success: false` is a failure, whatever else is in it.
        """
        if type(value) is cls and value.keys() >= REQUIRED_RESULT_KEYS and is_valid_result(value):
            return value
        if not isinstance(value, dict):
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
        """A failed result for an exception, which `cause` keeps."""
        name = type(error).__name__
        if name in (REJECTED_ERROR_TYPE, CHILD_REJECTED_ERROR_TYPE) and not isinstance(error, Rejected):
            name = f"{type(error).__module__}.{name}"  # an error of the same name is not a person's no
        result = cls.failed(error_text(error), name)
        result.cause = error
        return result

    def with_reported_failure(self) -> Result:
        """The same, or a failure with the same output if that is an object that says `success: false`."""
        output = self["output"]
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
        """The object that it gave, also where it gave it as JSON text; empty if it gave something else."""
        output = self["output"]
        if isinstance(output, str):
            if self._parsed_output[0] != output:
                self._parsed_output = (output, find_json_object(output))
            return self._parsed_output[1]
        return output if isinstance(output, dict) else {}

    @property
    def success(self) -> bool:
        """Whether the node succeeded."""
        return bool(self["success"])

    @property
    def output(self) -> Any:
        """What the node returned; of a failed one often None."""
        return self["output"]

    @property
    def error(self) -> str:
        """Why it failed, or an empty text."""
        return str(self.get("error", ""))

    @property
    def error_type(self) -> str:
        """The kind of the failure, such as the name of an exception, or an empty text."""
        return str(self.get("error_type", ""))

    @property
    def attributes(self) -> dict[str, Any]:
        """What the node says beside its output, such as `iterations` or `exit_code`."""
        attributes: dict[str, Any] = self["attributes"]
        return attributes


def error_text(error: BaseException) -> str:
    """What an error says; of those that `except Exception` does not take also what they are."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as unsaid:
        text = f"{name}, whose text could not be made: {type(unsaid).__name__}"
    if not text:
        return name
    return text if isinstance(error, Exception) else f"{name}: {text}"


def is_valid_result(result: Result) -> bool:
    """Whether what a Result says has the types that all readers of it rely on."""
    if type(result["attributes"]) is not dict:
        return False
    if result["success"] is True:
        return True
    return result["success"] is False and type(result.get("error")) is type(result.get("error_type")) is str


def is_result_shaped(value: Any) -> bool:
    """Whether a value is a dict that says what a result says, and nothing else."""
    if not isinstance(value, dict) or not RESULT_KEYS.issuperset(value):
        return False
    return "output" in value or "success" in value


def result_output(value: Any) -> Any:
    """The output of a Result; anything else is itself."""
    return value.output if isinstance(value, Result) else value


def restore_results(value: Any) -> Any:
    """What was read as JSON, with Results again where it has the dicts that they were written as."""
    if type(value) is list:
        return [restore_results(part) for part in value]
    if type(value) is not dict:
        return value
    restored = {key: restore_results(part) for key, part in value.items()}
    return Result(restored) if REQUIRED_RESULT_KEYS <= restored.keys() <= RESULT_KEYS else restored


def deep_copy_json(value: Any) -> Any:
    """The value as JSON gives it back, sharing nothing that can change; Results in it stay Results."""
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
    """Who of many parts did what: counts, and the names of those that did not succeed."""
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
    """Whether a step, or its failure, was passed over; attributes alone make no failure a skipped one."""
    if result.settlement == "skipped":
        return True
    return result.success and isinstance(result.attributes.get("skipped"), str)


def is_rejected(result: Result) -> bool:
    """Whether a person said no, here or in a child run: it is not tried again, and unhandled it cancels."""
    return not result["success"] and result.get("error_type") in (
        REJECTED_ERROR_TYPE,
        CHILD_REJECTED_ERROR_TYPE,
    )


def is_final_rejection(result: Result) -> bool:
    """Whether a person said no to this run: nothing that handles errors takes it for one."""
    return not result["success"] and result.get("error_type") == REJECTED_ERROR_TYPE


def first_rejection(results: Iterable[Result]) -> Result | None:
    """The first that a person said no to; one to this run before one to a child."""
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
