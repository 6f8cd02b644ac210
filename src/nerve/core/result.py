"""Result: what executing a node gives, a dict with one shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from nerve.core.checks import a_mapping
from nerve.core.misfits import key_text, readable
from nerve.core.values import decode, encode, object_in
from nerve.errors import Rejected

RESULT_KEYS = frozenset({"success", "output", "error", "error_type", "attributes"})

REPORTED = "the answer says success: false"

ALWAYS = frozenset({"success", "output", "attributes"})

Settled = Literal["completed", "error", "timeout", "skipped"]
Outcome = Literal["ok", "failed", "skipped", "timed_out", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
REJECTED = "Rejected"
"""The error type of a gate whose answer was a no: it ends the run, and no handler of errors sees it."""
CHILD_REJECTED = "ChildRejected"
"""The error type of a called workflow that ended so: `on_error` of the caller handles it."""
UNCHANGING = frozenset({str, int, float, bool, type(None)})
"""The types of values that can be shared as they are."""


class Result(dict[str, Any]):
    """`success`, `output`, `attributes`, and when it failed `error` and `error_type`."""

    settled: Settled = "completed"
    """How the call ended: the node returned, raised, ran out of time, or was never executed."""
    cause: BaseException | None = None
    """The exception itself, in the process where it was raised."""
    allowed: float | None = None
    """The seconds that it ran out of, if it did."""
    _looked: tuple[str, dict[str, Any]] = ("", {})
    """The text that was looked into last, and the object in it."""

    def ended_as(self, other: Result) -> Result:
        """This result, said to have come about as another one did."""
        self.settled, self.cause, self.allowed = other.settled, other.cause, other.allowed
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
            error=readable(error),
            error_type=readable(error_type),
            attributes=dict(attributes or {}),
        )

    @classmethod
    def of(cls, value: Any) -> Result:
        """What a function returned, as a result: a result-shaped dict is one, anything else is the output.

        An object that says `success: false` is a failure, whatever else is in it.
        """
        if type(value) is cls and value.keys() >= ALWAYS and is_sound(value):
            return value
        if not isinstance(value, dict):
            return cls(success=True, output=value, attributes={})
        if not is_shaped(value) and not (type(value) is cls and value.keys() >= ALWAYS):
            return cls.ok(value).as_reported()
        made = cls._shaped(value)
        return made.ended_as(value) if isinstance(value, Result) else made

    @classmethod
    def _shaped(cls, value: dict[str, Any]) -> Result:
        attributes = value.get("attributes")
        if attributes is not None:
            a_mapping("attributes of a result", attributes)
        if value.get("success", not value.get("error")):
            return cls.ok(value.get("output"), attributes)
        return cls.failed(
            str(value.get("error") or "failed"),
            str(value.get("error_type") or "Failed"),
            value.get("output"),
            attributes,
        )

    @classmethod
    def raised(cls, error: BaseException) -> Result:
        """A failed result for an exception, which `cause` keeps."""
        name = type(error).__name__
        if name in (REJECTED, CHILD_REJECTED) and not isinstance(error, Rejected):
            name = f"{type(error).__module__}.{name}"  # an error of the same name is not a person's no
        result = cls.failed(text_of(error), name)
        result.cause = error
        return result

    def as_reported(self) -> Result:
        """The same, or a failure with the same output if that is an object that says `success: false`."""
        output = self["output"]
        if not self["success"] or not isinstance(output, dict) or output.get("success") is not False:
            return self
        error = output.get("error")
        return Result.failed(
            error if isinstance(error, str) and error else REPORTED, "Failed", output, self["attributes"]
        )

    @property
    def data(self) -> dict[str, Any]:
        """The object that it gave, also where it gave it as JSON text; empty if it gave something else."""
        output = self["output"]
        if isinstance(output, str):
            if self._looked[0] != output:
                self._looked = (output, object_in(output))
            return self._looked[1]
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


def text_of(error: BaseException) -> str:
    """What an error says; of those that `except Exception` does not take also what they are."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as unsaid:
        text = f"{name}, whose text could not be made: {type(unsaid).__name__}"
    if not text:
        return name
    return text if isinstance(error, Exception) else f"{name}: {text}"


def is_sound(result: Result) -> bool:
    """Whether what a Result says has the types that all readers of it rely on."""
    if type(result["attributes"]) is not dict:
        return False
    if result["success"] is True:
        return True
    return result["success"] is False and type(result.get("error")) is type(result.get("error_type")) is str


def is_shaped(value: Any) -> bool:
    """Whether a value is a dict that says what a result says, and nothing else."""
    if not isinstance(value, dict) or not RESULT_KEYS.issuperset(value):
        return False
    return "output" in value or "success" in value


def output_of(value: Any) -> Any:
    """The output of a Result; anything else is itself."""
    return value.output if isinstance(value, Result) else value


def revived(value: Any) -> Any:
    """What was read as JSON, with Results again where it has the dicts that they were written as."""
    if type(value) is list:
        return [revived(part) for part in value]
    if type(value) is not dict:
        return value
    made = {key: revived(part) for key, part in value.items()}
    return Result(made) if ALWAYS <= made.keys() <= RESULT_KEYS else made


def own(value: Any) -> Any:
    """The value as JSON gives it back, sharing nothing that can change; Results in it stay Results."""
    if type(value) in UNCHANGING:
        return value
    if isinstance(value, list | tuple):
        return [part if type(part) in UNCHANGING else own(part) for part in value]
    if not isinstance(value, dict):
        return decode(encode(value))
    made = {
        key if type(key) is str else key_text(key): part if type(part) in UNCHANGING else own(part)
        for key, part in value.items()
    }
    if not isinstance(value, Result):
        return made
    return Result(made).ended_as(value)


def census(results: Mapping[str, Result] | Sequence[Result]) -> dict[str, Any]:
    """Who of many parts did what: counts, and the names of those that did not succeed."""
    named = results.items() if isinstance(results, Mapping) else ((str(i), r) for i, r in enumerate(results))
    parts: dict[str, list[str]] = {kind: [] for kind in OUTCOMES}
    for name, result in named:
        parts[outcome(result)].append(name)
    counts: dict[str, Any] = {kind: len(names) for kind, names in parts.items()}
    counts["not_ok"] = {kind: names for kind, names in parts.items() if names and kind != "ok"}
    return counts


def was_skipped(result: Result) -> bool:
    """Whether a step, or its failure, was passed over; attributes alone make no failure a skipped one."""
    if result.settled == "skipped":
        return True
    return result.success and isinstance(result.attributes.get("skipped"), str)


def is_rejected(result: Result) -> bool:
    """Whether a person said no, here or in a child run: it is not tried again, and unhandled it cancels."""
    return not result["success"] and result.get("error_type") in (REJECTED, CHILD_REJECTED)


def is_final(result: Result) -> bool:
    """Whether a person said no to this run: nothing that handles errors takes it for one."""
    return not result["success"] and result.get("error_type") == REJECTED


def first_rejection(results: Iterable[Result]) -> Result | None:
    """The first that a person said no to; one to this run before one to a child."""
    rejected = [result for result in results if is_rejected(result)]
    return next(filter(is_final, rejected), rejected[0] if rejected else None)


def outcome(result: Result) -> Outcome:
    if was_skipped(result):
        return "skipped"
    if result.success:
        return "ok"
    if result.settled == "timeout" or result.error_type == "TimeoutError":
        return "timed_out"
    return "cancelled" if result.error_type == "CancelledError" else "failed"
