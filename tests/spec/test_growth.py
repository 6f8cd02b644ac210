"""The time of a check grows linearly with the number of steps."""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from nerve.notations import read_source
from nerve.spec.checker import check_document

Writer = Callable[[int], tuple[str, str]]


def chain(n: int) -> tuple[str, str]:
    steps = [{"id": f"s{i}", "type": "transform", "transform": "1", "next": f"s{i + 1}"} for i in range(n)]
    steps[-1].pop("next")
    return "json", json.dumps({"id": "chain", "steps": steps})


def nodes(n: int, line: Callable[[int], str]) -> tuple[str, str]:
    return "yaml", "name: b\ndescription: d\nnodes:\n" + "".join(f"  - {{{line(i)}}}\n" for i in range(n))


def graph(n: int) -> tuple[str, str]:
    return nodes(n, lambda i: f'id: n{i}, bash: "true"' + (f", depends_on: [n{i - 1}]" if i else ""))


def prompts(n: int) -> tuple[str, str]:
    return nodes(n, lambda i: f"id: n{i}, prompt: go" + (f", depends_on: [n{i - 1}]" if i else ""))


def fan(n: int) -> tuple[str, str]:
    return nodes(n, lambda i: f"id: n{i}, prompt: go" + (", depends_on: [n0]" if i else ""))


def states(n: int) -> tuple[str, str]:
    return "lisp", "(workflow b " + " ".join(f'(state s{i} (log "x"))' for i in range(n)) + ")"


def gotos(n: int) -> tuple[str, str]:
    made = [{"name": f"s{i}", "body": {"kind": "goto", "state": f"s{(i + 1) % n}"}} for i in range(n)]
    return full({"kind": "machine", "states": made})


def lost(n: int) -> tuple[str, str]:
    made = [{"name": f"s{i}", "body": {"kind": "goto", "state": f"t{i}"}} for i in range(n)]
    return full({"kind": "machine", "states": made})


def references(n: int) -> tuple[str, str]:
    return full({"kind": "graph", "steps": [reading(n, i, i - 1) for i in range(n)]})


def aside(n: int) -> tuple[str, str]:
    return full({"kind": "parallel", "branches": [reading(n, i, i - 1) for i in range(n)]})


def nowhere(n: int) -> tuple[str, str]:
    return full({"kind": "graph", "steps": [reading(n, i, n + i) for i in range(n)]})


def reading(n: int, own: int, other: int) -> dict[str, Any]:
    """A step that reads another one; sizes share no expression, because compiled ones are cached."""
    made: dict[str, Any] = {"kind": "transform", "id": f"n{own}of{n}", "expression": "1"}
    if own:
        made["expression"] = f"results.n{other}of{n}"
        if other < own:
            made["depends_on"] = [f"n{other}of{n}"]
    return made


def full(body: dict[str, Any]) -> tuple[str, str]:
    return "json", json.dumps({"name": "w", "body": body}, indent=0)


def work(given: tuple[str, str]) -> int:
    """The number of Python lines executed during a check."""
    notation, text = given
    document = read_source(text, notation=notation)
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        check_document(document)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "write", [chain, graph, prompts, fan, states, gotos, lost, references, aside, nowhere]
)
def test_the_work_grows_linearly_with_the_steps(write: Writer) -> None:
    work(write(10))
    assert work(write(800)) < 2.3 * work(write(400))
