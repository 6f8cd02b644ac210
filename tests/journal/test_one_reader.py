"""Only the journal and the store look at the JSON of an event, and code compares types, not names.

The plugin of mypy in `tools/journal_plugin.py`, part of `make check`, finds reads of the JSON by their type.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import mypy.api
import pytest

from nerve.core.events import WorkflowEventType
from nerve.project.notify_settings import NOTIFIED_EVENTS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "nerve"
PLUGIN = ROOT / "tools" / "journal_plugin.py"
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
    assert list(find_event_names(tree)) == []


MODULES = {
    "nerve/store/port.py": """
        from typing import NamedTuple

        class EventRow(NamedTuple):
            seq: int
            data: str

        class WaitRow(NamedTuple):
            data: str
    """,
    "nerve/journal/events.py": """
        from nerve.store.port import EventRow

        def size(row: EventRow) -> int:
            return len(row.data)
    """,
    "nerve/engine/reads.py": """
        from collections.abc import Iterable
        from nerve.store.port import EventRow, WaitRow

        def sizes(each: Iterable[EventRow]) -> list[int]:
            return [len(e.data) for e in each]  # reported

        def is_guard(given: list[EventRow]) -> bool:
            return '"guard":true' in given[0].data  # reported

        def seqs(each: Iterable[EventRow], waits: list[WaitRow]) -> list[object]:
            return [[e.seq for e in each], [wait.data for wait in waits]]
    """,
}


def test_reads_of_the_json_of_an_event_are_found_by_their_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in MODULES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nplugins = {PLUGIN}\n")
    monkeypatch.chdir(tmp_path)
    reported, _, status = mypy.api.run(["nerve"])
    lines = MODULES["nerve/engine/reads.py"].splitlines()
    expected = [number for number, line in enumerate(lines, 1) if line.endswith("# reported")]
    found = re.findall(
        r"^nerve/engine/reads\.py:(\d+): error: The JSON of an event is read", reported, re.MULTILINE
    )
    assert ([int(line) for line in found], status) == (expected, 1), reported
    assert "Found 2 errors in 1 file" in reported


def test_the_plugin_is_part_of_the_check_of_types() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert ROOT / settings["plugins"][0] == PLUGIN
