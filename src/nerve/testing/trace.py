"""Traces: the leaf calls, gates and answers of a run, as an ordered list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nerve.core.events import STEP_SETTLED_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType

REQUEST_KEYS = frozenset({"prompt", "resume", "model", "cwd", "artifacts"})
"""The keys of an agent request; of these, only the prompt comes from the workflow."""

TraceEntry = dict[str, Any]
ChildEvents = Callable[[str], Iterable[WorkflowEvent]]


def trace(events: Iterable[WorkflowEvent], children: ChildEvents | None = None) -> list[TraceEntry]:
    """Return the leaf calls and gates of a run, in the order in which they started.

    A call is `{"call": name, "input": …, "success": True, "output": …}`, or with `success` false and an
    `error`. A gate is `{"gate": prompt, "answer": …}`. An open entry has no outcome. The trace omits paths,
    control nodes, and the leaves that a notation uses internally. With `children`, which returns the events
    of a run by its id, it includes the calls of child runs in place of the call.
    """
    return TraceBuilder(children).build(events)


class TraceBuilder:
    """One trace; an entry is added when it starts, and completed when it ends."""

    def __init__(self, children: ChildEvents | None) -> None:
        self._children = children

    def build(self, events: Iterable[WorkflowEvent]) -> list[TraceEntry]:
        entries: list[TraceEntry] = []
        open_entries: dict[str, TraceEntry] = {}
        for event in events:
            data = event.data
            if event.event_type in STEP_START_EVENTS:
                if self._children is not None and "child" in data:
                    entries += self.build(self._children(data["child"]))
                elif not (data.get("control") or is_internal_leaf(data["node_id"])):
                    entry = {"call": data["node_id"], "input": leaf_input(data.get("input"))}
                    entries.append(open_entries.setdefault(event.path, entry))
            elif event.event_type in STEP_SETTLED_EVENTS and event.path in open_entries:
                open_entries.pop(event.path).update(call_outcome(data))
            elif event.event_type == WorkflowEventType.GATE_WAITING:
                open_entries[event.path] = {"gate": data["prompt"]}
                entries.append(open_entries[event.path])
            elif event.event_type == WorkflowEventType.GATE_ANSWERED and event.path in open_entries:
                open_entries.pop(event.path)["answer"] = data["answer"]
            elif event.event_type == WorkflowEventType.GATE_TIMEOUT and event.path in open_entries:
                open_entries.pop(event.path)["timed_out"] = True
        return entries


def is_internal_leaf(name: str) -> bool:
    """Return whether a leaf belongs to the notation and not to the author's workflow."""
    return name.startswith("_") or name == "expect"


def leaf_input(input: Any) -> Any:
    """Return the input of a leaf; for an agent request, its prompt."""
    return (
        input["prompt"]
        if isinstance(input, dict) and "prompt" in input and input.keys() <= REQUEST_KEYS
        else input
    )


def call_outcome(data: dict[str, Any]) -> TraceEntry:
    if data.get("success"):
        return {"success": True, "output": (data.get("result") or {}).get("output")}
    return {"success": False, "error": data.get("error")}
