"""The shape of the dialects: located values looked at, and problems collected."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from nerve.core.suggest import suggest
from nerve.spec.meant import meant, unknown_key
from nerve.spec.source import Map, Place, Problem, Seq

WORKFLOW_KEYS = ("name", "description", "provider", "model", "inputs", "limits", "context", "metadata")
NODE_KEYS = ("description", "when", "retry", "timeout", "idle_timeout", "on_error", "effect", "expect")
AGENT_KEYS = (
    *("provider", "model", "agent", "role", "thread", "args", "output_schema", "permissions"),
    *("tools", "max_turns", "fallback", "limits"),
)
TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
DEFAULT_PROVIDER = "claude"


class Reading:
    """One document while it is read, and what is wrong with it so far."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def tell(self, place: Place | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, place or Place(), message, fix))

    def keys(self, source: Map, known: Collection[str], hints: dict[str, str] | None = None) -> None:
        """Tell of every key that is not known here, and read on as if it were the one that was meant."""
        for key in [key for key in source if key not in known]:
            place, hint = source.keys_at.get(key), (hints or {}).get(key)
            if hint is not None:
                self.tell(place, f"unknown key '{key}'", hint)
                continue
            self.tell(place, *unknown_key(key, known))
            if (word := meant(key, known)) is not None and word not in source:
                put(source, word, source[key], source, key)
                del source[key]

    def text(self, source: Map, key: str, fix: str) -> str | None:
        """A text that must be there and not be empty."""
        value = source.get(key)
        if key not in source:
            self.tell(source.place, f"'{key}' is missing", fix)
        elif not isinstance(value, str):
            self.tell(at(source, key), f"'{key}' must be a text, not {shown(value)}", fix)
        elif not value.strip():
            self.tell(at(source, key), f"'{key}' is empty", fix)
        else:
            return value
        return None


def at(source: Map, key: str) -> Place | None:
    """Where the value of a key stands."""
    return getattr(source.get(key), "place", None) or source.values_at.get(key) or source.place


def carry(source: Map, target: Map, keys: Iterable[str]) -> None:
    """Take values over as they are, with their places."""
    for key in keys:
        if key in source:
            put(target, key, source[key], source, key)


def put(target: Map, key: str, value: Any, source: Map, origin: str) -> None:
    """Set a value that was made of what the source has as `origin`."""
    target.put(key, value, source.values_at.get(origin) or at(source, origin))
    if origin in source.keys_at:
        target.keys_at[key] = source.keys_at[origin]


def shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def header(reading: Reading, source: Map) -> Map:
    """What every workflow says of itself."""
    data = Map((), source.place)
    reading.text(source, "name", "Add a name: letters, digits, '-' and '_'.")
    reading.text(source, "description", "Say what the workflow does, and when to use it.")
    for key in ("provider", "model"):
        if source.get(key) is not None:
            reading.text(source, key, f"Name a {key}, or leave the line out.")
    kept = [key for key in WORKFLOW_KEYS if key != "inputs" and source.get(key) is not None]
    carry(source, data, kept)
    data.setdefault("provider", DEFAULT_PROVIDER)
    if source.get("inputs") is not None:
        put(data, "inputs", declared(reading, source), source, "inputs")
    return data


def declared(reading: Reading, source: Map) -> Any:
    """The declared inputs; one may be declared by its type alone."""
    given = source["inputs"]
    if not isinstance(given, Map):
        fix = "Write 'name: string', one a line, or 'name:' with type, description, required and default."
        reading.tell(at(source, "inputs"), f"'inputs' must be a mapping, not {shown(given)}", fix)
        return Map()
    found = Map((), given.place)
    for name, value in given.items():
        made = value
        if value is None or (isinstance(value, str) and value in TYPES):
            made = Map({} if value is None else {"type": value}, at(given, name))
        elif not isinstance(value, Map):
            close = suggest(value, TYPES) if isinstance(value, str) else ""
            said = f"the input '{name}' must be a type or a mapping, not {shown(value)}{close}"
            reading.tell(at(given, name), said, "" if close else f"Types: {', '.join(TYPES)}.")
        put(found, name, made, given, name)
    return found


def policies(reading: Reading, source: Map, target: Map) -> None:
    """What every step may carry, with the short forms written out."""
    for key in NODE_KEYS:
        value = source.get(key)
        if value is None or key == "on_error":
            continue
        match key, value:
            case "retry", int() if not isinstance(value, bool):
                value = Map({"attempts": value}, at(source, key))
            case "retry", _ if not isinstance(value, Map):
                said = f"'retry' must be a number of attempts or a mapping, not {shown(value)}"
                reading.tell(at(source, key), said, "Write 'retry: 3'.")
                continue
            case "when", bool():
                value = str(value).lower()
            case "expect", _:
                value = expected(reading, source)
        put(target, key, value, source, key)


def expected(reading: Reading, source: Map) -> Seq:
    """What must be there after a step; a text is a file in the artifacts of the run."""
    given = source["expect"]
    place = at(source, "expect")
    items = given if isinstance(given, Seq) else Seq().push(given, place)
    found = Seq((), place)
    for number, item in enumerate(items):
        where = getattr(item, "place", None) or items.values_at.get(number) or place
        if isinstance(item, str):
            if why := outside(item):
                reading.tell(where, f"the file {item!r} {why}", "Name a file in the artifacts of the run.")
            item = Map({"file": "{{ run.artifacts }}/" + item}, where)
        elif not isinstance(item, Map):
            fix = "Write a file name, or a mapping with file, command, condition or schema."
            reading.tell(where, f"'expect' has a file or a check, not {shown(item)}", fix)
        found.push(item, where)
    return found


def outside(name: str) -> str:
    """Why a relative file name would not stay in its folder, or nothing."""
    parts = re.split(r"[/\\]", name)
    if not name.strip() or len(name) > 512:
        return "has no sensible length"
    if name[0] in "/\\~" or ".." in parts or re.match(r"[A-Za-z]:", name):
        return "leads out of the artifacts"
    return ""


def slug(name: str) -> str:
    """A name as an id: letters, digits, '_' and '-', and a letter first."""
    made = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return made if made[:1].isalpha() else f"step-{made}".rstrip("-")


Item = Callable[[Any, Place | None], Map]


def workflow(reading: Reading, source: Map, key: str, kind: str, item: Item, fix: str) -> Map:
    """The workflow that a file stands for whose body is the list under a key."""
    data = header(reading, source)
    body = Map({"kind": kind}, source.keys_at.get(key) or source.place)
    put(body, "steps", items(reading, source, key, item, fix), source, key)
    return data.put("body", body, body.place)


def items(reading: Reading, source: Map, key: str, item: Item, fix: str) -> Seq:
    """What the list under a key stands for; `fix` says how to begin one."""
    given, place = source.get(key), at(source, key)
    found = Seq((), place)
    if isinstance(given, Map) and given:
        first = next(iter(given)).lstrip("-")
        said = f"'{key}' must be a list, not a mapping"
        reading.tell(place, said, f"Write '- {first}', with a dash and a blank before each.")
        return found
    if not isinstance(given, Seq) or not given:
        what = "is empty" if given in (None, []) else f"must be a list, not {shown(given)}"
        reading.tell(place, f"'{key}' {what if key in source else 'is missing'}", fix)
        return found
    for number, each in enumerate(given):
        where = getattr(each, "place", None) or given.values_at.get(number)
        found.push(item(each, where), where)
    return found
