"""Only the journal and the store look at the JSON of an event, and code compares types, not names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nerve.core.events import WorkflowEventType
from nerve.project.notify_settings import NOTIFIED_EVENTS

SOURCE = Path(__file__).parents[2] / "src" / "nerve"
READERS = ("journal/", "store/", "testing/store_contract.py")
"""The code that encodes, decodes and stores event data."""
ROW_NAME = re.compile(r"(\w+_)?(rows?|record|recorded|first|last|start)")
"""Names of variables that are rows of a journal."""
EVENT_NAMES = frozenset(WorkflowEventType)
COMMON_WORDS = frozenset({"usage", "plan", "log", "skipped", "permission", "steered"})
"""Event names that are also words with another meaning; some places show that they are event names."""
EMITTING_CALLS = frozenset({"emit", "is_a", "last_event", "last_recorded", "record"})
"""Functions that take the type of an event."""
OTHER_WORDS = (
    "core/events.py",
    "store/",
    "testing/store_contract.py",
    "agents/acp/updates.py",
    "agents/llm_provider.py",
)
"""The table of the names, the names on disk, and the words of other protocols."""
RULE_MODULES = (
    "notifications/event_kinds.py",
    "notifications/http_channels.py",
    "notifications/messages.py",
    "project/notify_settings.py",
)
"""The code with the names that rules of notifications use, some of which are also event names."""


def last_name(node: ast.expr) -> str:
    """Return the name under which a value is read: `rows` for `self.rows[0]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return last_name(value)
    return ""


def find_row_reads(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that read the data of a row."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="data", value=value, ctx=ast.Load()) if ROW_NAME.fullmatch(
                last_name(value)
            ):
                yield node.lineno
            case ast.Call(func=ast.Name(id="decode_json"), args=[ast.Attribute(attr="data"), *_]):
                yield node.lineno


def constants_of(node: ast.expr) -> Iterator[ast.Constant]:
    elements = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
    yield from (element for element in elements if isinstance(element, ast.Constant))


def find_event_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the event names that are written as text, and their lines."""
    event_types: set[ast.Constant] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                compared = [left, *others]
                if any(last_name(value) == "event_type" for value in compared):
                    event_types.update(name for value in compared for name in constants_of(value))
            case ast.Match(subject=subject, cases=cases) if last_name(subject) == "event_type":
                patterns = (part for case in cases for part in ast.walk(case.pattern))
                values = (part.value for part in patterns if isinstance(part, ast.MatchValue))
                event_types.update(name for value in values for name in constants_of(value))
            case ast.Call(func=func, args=arguments) if last_name(func) in EMITTING_CALLS:
                event_types.update(name for value in arguments for name in constants_of(value))
    for node in ast.walk(tree):
        is_name = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in EVENT_NAMES
        if is_name and (node in event_types or node.value not in COMMON_WORDS):
            yield node.lineno, node.value


def find_written_json(tree: ast.Module) -> Iterator[int]:
    """Yield the lines with texts from which code puts JSON together."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        )
        if is_text and re.search(r'"\w*":', node.value):
            yield node.lineno


def modules(exempt: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(exempt):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def test_only_the_journal_and_the_store_read_the_data_of_a_row() -> None:
    found = [f"{name}:{line}" for name, tree in modules(READERS) for line in find_row_reads(tree)]
    assert found == []


def test_code_names_event_types_by_members() -> None:
    found = [
        f"{name}:{line}: {event_name}"
        for name, tree in modules(OTHER_WORDS)
        for line, event_name in find_event_names(tree)
        if name not in RULE_MODULES or event_name not in NOTIFIED_EVENTS
    ]
    assert found == []


def test_the_engine_leaves_the_json_of_events_to_their_classes() -> None:
    # The summary of a run is JSON of its row, and no event.
    engine_modules = [
        (name, tree) for name, tree in modules(("engine/run_summary.py",)) if name.startswith("engine/")
    ]
    assert len(engine_modules) > 20
    assert [f"{name}:{line}" for name, tree in engine_modules for line in find_written_json(tree)] == []


def test_json_that_code_puts_together_is_found() -> None:
    tree = ast.parse("journal.append(f'{{\"gate_id\":{text}}}')")
    assert list(find_written_json(tree)) == [1]


@pytest.mark.parametrize(
    "code",
    [
        "decode_json(event.data)",
        "start = row.data.startswith('{')",
        "x = '\"guard\":true' in rows[0].data",
        "len(self.store.last_row.data)",
    ],
)
def test_a_read_of_a_row_is_found(code: str) -> None:
    assert list(find_row_reads(ast.parse(code))) == [1]


@pytest.mark.parametrize(
    "code",
    [
        "row.type == 'gate_waiting'",
        "kind in ('x', 'gate_waiting')",
        "match event.event_type:\n    case 'usage' | 'x': ...",
        "START_EVENTS = frozenset({'gate_waiting'})",
        "HANDLERS = {'gate_waiting': handle}",
        "EVENTS = (*STARTS, 'gate_waiting')",
        "journal.append('gate_waiting', path, data)",
        "context.emit('log', {'message': 'x'})",
        "event.event_type in ('usage', 'x')",
    ],
)
def test_an_event_name_is_found(code: str) -> None:
    assert len(list(find_event_names(ast.parse(code)))) == 1


def test_other_words_and_the_data_of_public_events_are_not_found() -> None:
    tree = ast.parse("event.data.get('x')\nkind == 'log'\n'usage' in attributes\nresult.data\nread('plan')\n")
    assert list(find_row_reads(tree)) == []
    assert list(find_event_names(tree)) == []
