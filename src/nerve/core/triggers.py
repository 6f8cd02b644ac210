"""Triggers: what starts runs on its own, as data, and the reader of their definitions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, Literal, get_args

from nerve.core.json_codec import encode_json
from nerve.core.schedule import (
    MIN_INTERVAL_S,
    Schedule,
    parse_cron,
    parse_duration,
    parse_excluded,
    parse_instant,
    parse_local_time,
    parse_timezone,
)
from nerve.core.suggest import did_you_mean_hint
from nerve.core.tags import validate_tags
from nerve.core.validation import describe_value
from nerve.lazy_dataclass import dataclass
from nerve.text.source import Diagnostics, InvalidDefinition, LocatedList, LocatedMap, Position

Kind = Literal["schedule", "webhook", "files", "fact", "run", "mail"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Overlap = Literal["skip", "queue", "cancel", "allow"]
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
"""What happens if a run of the trigger is still open when the next one is due."""
SIGNATURES = ("github", "gitlab", "slack", "stripe", "standard", "telegram", "generic")
RUN_STATES = ("completed", "failed", "cancelled")
COMMON_KEYS = ("name", "workflow", "input", "params", "label", "tags", "queue", "when", "enabled", *KINDS)
NAMES_BY_KIND: dict[Kind, tuple[str, ...]] = {
    "schedule": (),
    "webhook": ("headers", "body", "query"),
    "files": ("file",),
    "fact": ("fact", "captures"),
    "run": ("run",),
    "mail": ("mail",),
}
"""What expressions of a trigger can read besides `trigger` and `time`."""
DEFAULT_CATCH_UP_S = 3600.0
DEFAULT_DEBOUNCE_S = 1.0
DEFAULT_MAX_BYTES = 1 << 20
MAX_BODY_BYTES = 16 << 20
START_PREFIX, DELIVERY_PREFIX = "trigger:", "delivery:"
"""How the start keys of triggers begin, and in them the occurrences that are deliveries."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """When a schedule starts a run, and what happens if it cannot do so in time."""

    times: Schedule
    overlap: Overlap = "skip"
    catch_up: float = DEFAULT_CATCH_UP_S
    """Seconds for which a time that was missed is started later."""
    jitter: float = 0.0
    """Seconds by which a start may be late, so that many triggers do not start at the same moment."""


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is; the secret itself is never part of a definition."""

    env: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """How requests to a webhook are signed, and how large they may be."""

    signature: str
    secrets: tuple[SecretReference, ...]
    tolerance: float = 300.0
    """Seconds by which a signed time may differ from the clock."""
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Which files of the project start a run when they are created or changed."""

    paths: tuple[str, ...]
    """Patterns relative to the project, such as `inbox/**/*.csv`."""
    events: tuple[str, ...] = ("created", "changed")
    debounce: float = DEFAULT_DEBOUNCE_S
    """Seconds for which a file must not have changed."""


@dataclass(frozen=True, slots=True)
class EndedRunOptions:
    """Which runs start another one when they end."""

    workflow: str
    states: tuple[str, ...] = ("completed",)


@dataclass(frozen=True, slots=True)
class Trigger:
    """What starts runs of a workflow; exactly one of the fields named as kinds is set."""

    name: str
    kind: Kind
    workflow: str
    schedule: ScheduleOptions | None = None
    webhook: WebhookOptions | None = None
    files: FileOptions | None = None
    fact: Any = None
    """The pattern of the facts, as text or JSON."""
    run: EndedRunOptions | None = None
    has_input: bool = False
    input: Any = None
    """The input of its runs, in which texts may contain `{{ expressions }}`."""
    params: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)
    queue: str | None = None
    when: str | None = None
    """An expression; nothing is started if it is false."""
    enabled: bool = True
    source: str = "python"
    """The file of the definition, or `python` or `api`."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The definition as it was written."""

    @property
    def hash(self) -> str:
        """The identity of what decides when it starts runs."""
        text = encode_json([self.kind, self.data.get(self.kind)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def start_key(self, occurrence: str) -> str:
        """Return the idempotency key of the start for an occurrence."""
        return f"{START_PREFIX}{self.name}:{occurrence}"


def is_delivery_key(key: str | None) -> bool:
    """Whether a start key is that of a delivery, which its sender can repeat at any time."""
    _, _, occurrence = (key or "").removeprefix(START_PREFIX).partition(":")
    return key is not None and key.startswith(START_PREFIX) and occurrence.startswith(DELIVERY_PREFIX)


def check_trigger_name(name: Any) -> str:
    """Return a name that can be part of a URL and a file name; ValueError for any other value."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            "The name of a trigger must be 1 to 64 letters, digits, '_', '-' or '.', got"
            f" {describe_value(name)}"
        )
    return name


def make_trigger(name: str, definition: Mapping[str, Any], source: str) -> Trigger:
    """Return the trigger of a definition from Python or the API; ValueError with the first problem."""
    try:
        return TriggerReader(f"trigger '{name}'").read(name, to_located(definition), source)
    except InvalidDefinition as error:
        # A misspelled key is the reason that another one is missing.
        first = min(error.problems, key=lambda problem: not problem.message.startswith("Unknown key"))
        raise ValueError(f"Trigger '{name}': {first.message}{'. ' if first.fix else ''}{first.fix}") from None


def to_located(value: Any) -> Any:
    """Return plain data as a reader of a file returns it, without positions."""
    if isinstance(value, Mapping):
        return LocatedMap({str(key): to_located(item) for key, item in value.items()})
    return LocatedList(map(to_located, value)) if isinstance(value, list | tuple) else value


def to_plain(value: Any) -> Any:
    """Return data of a reader as plain objects and lists."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list) else value


class TriggerReader(Diagnostics):
    """Reads one definition, and collects its problems with their positions."""

    def read(self, name: str, source: Any, origin: str) -> Trigger:
        """Return the trigger; InvalidDefinition with all problems."""
        if not isinstance(source, LocatedMap):
            self.fail(Position(), "A trigger must be an object", "Write: workflow: NAME, schedule: CRON.")
        self.check_keys(source, COMMON_KEYS, "a trigger")
        kinds = [kind for kind in KINDS if kind in source]
        if len(kinds) != 1:
            found = f"both {kinds[0]} and {kinds[1]}" if kinds else "none of them"
            self.add(source, f"A trigger needs one of {', '.join(KINDS)}, got {found}")
        kind: Kind = kinds[0] if kinds else "schedule"
        values: dict[str, Any] = {}
        if kinds:
            self.read_value(source, kind, values, getattr(self, f"read_{kind}"))
        self.read_value(source, "workflow", values, partial(require_text, "workflow"))
        if "workflow" not in source:
            self.add(source, "The workflow is missing", "Write: workflow: NAME.")
        names = ("trigger", "time", *NAMES_BY_KIND[kind])
        for key in ("input", "params", "label", "tags"):
            if key in source:
                self.check_templates(source, key, names)
        self.read_value(source, "params", values, require_object("params"))
        self.read_value(source, "tags", values, require_tags)
        for key in ("label", "queue"):
            self.read_value(source, key, values, partial(require_text, key))
        self.read_value(source, "when", values, lambda value: check_expression(value, names))
        self.read_value(source, "enabled", values, require_flag("enabled"))
        self.read_value(source, "name", {}, check_trigger_name)
        if "name" in source:
            name = source["name"]
        try:
            check_trigger_name(name)
        except ValueError as error:
            self.add(source, str(error), "Rename the file, or write: name: NAME.")
        self.raise_if_any()
        values.pop(kind) if kind == "mail" else None
        return Trigger(
            name,
            kind,
            has_input="input" in source,
            input=to_plain(source.get("input")),
            source=origin,
            data=to_plain(source),
            **values,
        )

    def check_keys(self, source: LocatedMap, keys: tuple[str, ...], what: str) -> None:
        for key in source:
            if key not in keys:
                message = f"Unknown key '{key}' in {what}{did_you_mean_hint(key, keys)}"
                self.add(source.key_positions.get(key), message, f"Valid keys: {', '.join(keys)}.")

    def read_value(
        self, source: LocatedMap, key: str, values: dict[str, Any], parse: Callable[[Any], Any]
    ) -> None:
        """Set the parsed value of a key that is given; report a wrong one at its position."""
        if key not in source:
            return
        try:
            values[key] = parse(source[key])
        except InvalidDefinition:
            raise
        except ValueError as error:
            self.add(source.position_of_value(key), str(error))

    def read_object(
        self, source: Any, what: str, parsers: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        if not isinstance(source, LocatedMap):
            raise ValueError(f"{what} must be an object, got {describe_value(to_plain(source))}")
        self.check_keys(source, tuple(parsers), what)
        values: dict[str, Any] = {}
        for key, parse in parsers.items():
            self.read_value(source, key, values, parse)
        return values

    def check_templates(self, source: LocatedMap, key: str, names: tuple[str, ...]) -> None:
        """Report the wrong expressions in the texts of a value."""
        from nerve.expr import ExprError, compile_template

        def check(value: Any, position: Position | None) -> None:
            if isinstance(value, str):
                try:
                    compile_template(value, names)
                except ExprError as error:
                    self.add(position, f"{key}: {error}")
            elif isinstance(value, LocatedMap):
                for name, item in value.items():
                    check(item, value.position_of_value(name))
            elif isinstance(value, LocatedList):
                for index, item in enumerate(value):
                    check(item, getattr(item, "position", None) or value.value_positions.get(index))

        check(source[key], source.position_of_value(key))

    # -- kinds ---------------------------------------------------------------------------------

    def read_schedule(self, source: Any) -> ScheduleOptions:
        if isinstance(source, str):
            return ScheduleOptions(Schedule(cron=parse_cron(source)))
        values = self.read_object(
            source,
            "schedule",
            {
                "cron": parse_cron,
                "every": parse_interval,
                "start": lambda value: value,
                "dates": parse_list("dates", parse_local_time),
                "timezone": parse_timezone,
                "exclude": parse_list("exclude", parse_excluded),
                "overlap": require_choice("overlap", OVERLAPS),
                "catch_up": lambda value: parse_duration(value, "catch_up"),
                "jitter": lambda value: parse_duration(value, "jitter"),
            },
        )
        given = [key for key in ("cron", "every", "dates") if key in source]
        if len(given) != 1:
            raise ValueError("A schedule needs one of cron, every or dates")
        if "start" in values:
            if "every" not in given:
                raise ValueError("start is for a schedule with every")
            values["start"] = parse_instant(values["start"], values.get("timezone", "UTC"))
        times = {key: values.pop(key) for key in (*given, "start", "timezone", "exclude") if key in values}
        if "dates" in times:
            times["dates"] = tuple(sorted(times["dates"]))
        return ScheduleOptions(Schedule(**times), **values)

    def read_webhook(self, source: Any) -> WebhookOptions:
        values = self.read_object(
            source,
            "webhook",
            {
                "signature": require_choice("signature", SIGNATURES),
                "secret": parse_secrets,
                "tolerance": lambda value: parse_duration(value, "tolerance"),
                "max_bytes": parse_max_bytes,
            },
        )
        for key in ("signature", "secret"):
            if key not in source:
                raise ValueError(
                    f"The {key} of the webhook is missing. Write: signature: github, secret: {{env: NAME}}"
                )
        return WebhookOptions(values.pop("signature", ""), values.pop("secret", ()), **values)

    def read_files(self, source: Any) -> FileOptions:
        if isinstance(source, str):
            return FileOptions((parse_pattern(source),))
        values = self.read_object(
            source,
            "files",
            {
                "paths": parse_list("paths", parse_pattern),
                "events": parse_list("events", require_choice("events", ("created", "changed"))),
                "debounce": lambda value: parse_duration(value, "debounce"),
            },
        )
        if not source.get("paths"):
            raise ValueError("The paths of the files are missing. Write: paths: ['inbox/*.csv']")
        return FileOptions(**values)

    def read_fact(self, source: Any) -> Any:
        if not isinstance(source, str | list) or not source:
            raise ValueError(
                f"fact must be a pattern such as '(order :status \"new\")', got {describe_value(source)}"
            )
        return to_plain(source)

    def read_run(self, source: Any) -> EndedRunOptions:
        if isinstance(source, str):
            return EndedRunOptions(source)
        values = self.read_object(
            source,
            "run",
            {
                "workflow": partial(require_text, "workflow"),
                "state": lambda value: parse_list("state", require_choice("state", RUN_STATES))(
                    value if isinstance(value, list) else [value]
                ),
            },
        )
        if "workflow" not in source:
            raise ValueError("The workflow of the runs is missing. Write: run: {workflow: NAME}")
        states = values.pop("state", None)
        return EndedRunOptions(values.get("workflow", ""), **({} if states is None else {"states": states}))

    def read_mail(self, source: Any) -> None:
        if source is not True and source != {}:
            raise ValueError(f"mail must be true, got {describe_value(to_plain(source))}")


# -- values ----------------------------------------------------------------------------------------------


def require_text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be a text, got {describe_value(to_plain(value))}")
    return value.strip()


def require_object(what: str) -> Callable[[Any], dict[str, Any]]:
    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{what} must be an object, got {describe_value(value)}")
        plain: dict[str, Any] = to_plain(value)
        return plain

    return check


def require_tags(value: Any) -> dict[str, str]:
    return validate_tags(require_object("tags")(value))


def require_flag(what: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{what} must be true or false, got {describe_value(value)}")
        return value

    return check


def require_choice(what: str, choices: tuple[str, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in choices:
            hint = did_you_mean_hint(value, choices) if isinstance(value, str) else ""
            raise ValueError(
                f"{what} must be one of {', '.join(choices)}, got {describe_value(to_plain(value))}{hint}"
            )
        return value

    return check


def parse_list(what: str, parse: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{what} must be a list with one entry or more, got {describe_value(value)}")
        return tuple(map(parse, value))

    return check


def parse_interval(value: Any) -> float:
    seconds = parse_duration(value, "every")
    if seconds < MIN_INTERVAL_S:
        raise ValueError(f"every must be at least 1 s, got {describe_value(value)}")
    return seconds


def parse_max_bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_BODY_BYTES:
        raise ValueError(
            f"max_bytes must be an integer from 1 to {MAX_BODY_BYTES}, got {describe_value(value)}"
        )
    return value


def parse_secrets(value: Any) -> tuple[SecretReference, ...]:
    """Return where the secrets are: one reference, or two while one secret replaces the other."""
    references = value if isinstance(value, list) and value else [value]
    secrets = []
    for reference in references:
        # The message does not show the value, which may be the secret itself.
        if not isinstance(reference, Mapping) or len(reference) != 1:
            raise ValueError("secret must say where the secret is: {env: VARIABLE} or {file: PATH}")
        kind, place = next(iter(reference.items()))
        if kind not in ("env", "file") or not isinstance(place, str) or not place.strip():
            raise ValueError("secret must say where the secret is: {env: VARIABLE} or {file: PATH}")
        if kind == "env" and not _SECRET_NAME.fullmatch(place):
            raise ValueError("env of the secret must be the name of a variable, not its value")
        secrets.append(SecretReference(**{kind: place.strip()}))
    return tuple(secrets)


def parse_pattern(value: Any) -> str:
    """Return a pattern of files inside the project."""
    text = require_text("A pattern of files", value)
    parts = text.replace("\\", "/").split("/")
    if ".." in parts or parts[0] in ("", "~") or ":" in parts[0]:
        raise ValueError(f"The pattern '{text[:80]}' must be relative to the project and stay inside it")
    return "/".join(part for part in parts if part not in (".", ""))


def check_expression(value: Any, names: tuple[str, ...]) -> str:
    from nerve.expr import ExprError
    from nerve.expr import compile as compile_expression

    text = require_text("when", value)
    try:
        compile_expression(text, names)
    except ExprError as error:
        raise ValueError(f"when: {error}") from None
    return text
