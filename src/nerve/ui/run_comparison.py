"""Comparison of two runs: their steps side by side, with differences of outputs, time and cost."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import field
from typing import Any, Literal

from nerve.core.events import STEP_SETTLED_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.core.run_view import NodeView
from nerve.journal.run_view import RunViewBuilder
from nerve.lazy_dataclass import dataclass
from nerve.ui.display_values import pretty_json
from nerve.ui.usage_charts import cost_of

MAX_DIFF_LINES = 400
"""Lines of a difference that are returned."""
MAX_COMPARED_CHARS = 100_000
"""Characters of a value that are compared line by line; more would take long."""
MAX_COMPARED_LINES = 4000

Change = Literal["same", "changed", "only_a", "only_b"]


@dataclass(frozen=True, slots=True)
class TextDiff:
    """The difference of two values."""

    lines: list[str] = field(default_factory=list)
    """A unified diff without file names; empty for equal values."""
    left_out: int = 0
    """Lines that are not returned."""
    is_truncated: bool = False
    """Whether only the beginnings of the values were compared."""

    @property
    def is_equal(self) -> bool:
        return not self.lines and not self.is_truncated


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """A step at one path of two runs; the values of a run without the step are None."""

    path: str
    name: str
    depth: int
    change: Change
    """Whether state, input or output differ."""
    state_a: str | None
    state_b: str | None
    seconds_a: float | None
    seconds_b: float | None
    cost_a: float | None
    cost_b: float | None
    input: TextDiff
    output: TextDiff


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs side by side."""

    steps: list[ComparedStep]
    input: TextDiff
    result: TextDiff
    state_a: str
    state_b: str
    seconds_a: float | None
    seconds_b: float | None
    usage_a: dict[str, float]
    usage_b: dict[str, float]

    @property
    def counts(self) -> dict[str, int]:
        """The number of steps by change."""
        counts: dict[str, int] = {}
        for step in self.steps:
            counts[step.change] = counts.get(step.change, 0) + 1
        return counts


class RunOutline:
    """What a comparison needs of a run; `apply_event` takes its events in order."""

    def __init__(self, events: Iterable[WorkflowEvent] = ()) -> None:
        self._builder = RunViewBuilder()
        self.input: Any = None
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        for event in events:
            self.apply_event(event)

    def apply_event(self, event: WorkflowEvent) -> None:
        self._builder.add_event(event)
        data, path = event.data, event.path
        match event.event_type:
            case WorkflowEventType.STARTED:
                self.input = data.get("input")
            case type if type in STEP_START_EVENTS:
                self.inputs[path] = data.get("input")
            case type if type in STEP_SETTLED_EVENTS:
                result = data.get("result")
                output = result.get("output") if isinstance(result, dict) else None
                self.outputs[path] = output if data.get("success") else data.get("error") or output
            case WorkflowEventType.GATE_ANSWERED:
                self.outputs[path.rpartition("/")[0] or path] = data.get("answer")

    @property
    def view(self) -> Any:
        return self._builder.view

    @property
    def seconds(self) -> float | None:
        view = self._builder.view
        if view.started_at is None or view.ended_at is None:
            return None
        return (view.ended_at - view.started_at).total_seconds()

    def flat_steps(self) -> dict[str, tuple[NodeView, int]]:
        """Return the steps with their depths by path, in the order of the tree."""
        steps: dict[str, tuple[NodeView, int]] = {}
        stack = [(node, 0) for node in reversed(self._builder.view.tree)]
        while stack:
            node, depth = stack.pop()
            steps[node.path] = node, depth
            stack += [(child, depth + 1) for child in reversed(node.children)]
        return steps


def compare_runs(a: RunOutline, b: RunOutline) -> RunComparison:
    """Return the steps of two runs, aligned by path; those of `b` alone follow their predecessors."""
    steps_a, steps_b = a.flat_steps(), b.flat_steps()
    usage_a, usage_b = a.view.ledger.by_step(), b.view.ledger.by_step()
    compared = []
    for path in merge_orders(list(steps_a), list(steps_b)):
        node_a, node_b = steps_a.get(path), steps_b.get(path)
        node, depth = node_a or node_b or (NodeView(path, path), 0)
        input = diff_values(a.inputs.get(path), b.inputs.get(path)) if node_a and node_b else TextDiff()
        output = diff_values(a.outputs.get(path), b.outputs.get(path)) if node_a and node_b else TextDiff()
        states = node_a[0].state if node_a else None, node_b[0].state if node_b else None
        is_same = states[0] == states[1] and input.is_equal and output.is_equal
        change: Change = "only_b" if node_a is None else "only_a" if node_b is None else "changed"
        compared.append(
            ComparedStep(
                path,
                node.name,
                depth,
                "same" if is_same else change,
                *states,
                node_a[0].seconds if node_a else None,
                node_b[0].seconds if node_b else None,
                cost_of(usage_a.get(path)),
                cost_of(usage_b.get(path)),
                input,
                output,
            )
        )
    return RunComparison(
        compared,
        diff_values(a.input, b.input),
        diff_values(a.view.result, b.view.result),
        a.view.state,
        b.view.state,
        a.seconds,
        b.seconds,
        a.view.usage.to_dict(),
        b.view.usage.to_dict(),
    )


def merge_orders(a: list[str], b: list[str]) -> list[str]:
    """Return all paths in the order of `a`; each path of `b` alone follows the one before it in `b`."""
    known = set(a)
    followers: dict[str, list[str]] = {}
    previous = ""
    for path in b:
        if path not in known:
            followers.setdefault(previous, []).append(path)
        else:
            previous = path
    merged = list(followers.get("", ()))
    for path in a:
        merged += [path, *followers.get(path, ())]
    return merged


def diff_values(a: Any, b: Any) -> TextDiff:
    """Return the unified diff of two values: of texts by line, of other values as JSON."""
    if a == b and type(a) is type(b):
        return TextDiff()
    are_texts = isinstance(a, str) and isinstance(b, str)
    texts = [value if are_texts else pretty_json(value) for value in (a, b)]
    is_truncated = any(len(text) > MAX_COMPARED_CHARS for text in texts)
    lines = [text[:MAX_COMPARED_CHARS].splitlines() for text in texts]
    if any(len(each) > MAX_COMPARED_LINES for each in lines):
        is_truncated, lines = True, [each[:MAX_COMPARED_LINES] for each in lines]
    diff = list(difflib.unified_diff(lines[0], lines[1], lineterm="", n=2))[2:]
    if not diff and not is_truncated and texts[0] != texts[1]:
        diff = [f"-{texts[0]!r}", f"+{texts[1]!r}"]  # they differ only in line ends
    return TextDiff(diff[:MAX_DIFF_LINES], max(0, len(diff) - MAX_DIFF_LINES), is_truncated)
