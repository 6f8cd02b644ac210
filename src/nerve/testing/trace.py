"""Traces: what a run did, as the ordered list of its leaf calls, its gates and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nerve.core.event import WorkflowEvent

STARTS = ("node_started", "step_started")
ENDS = ("node_completed", "node_error", "node_timeout", "step_completed", "step_failed")
REQUEST = frozenset({"prompt", "resume", "model", "cwd", "artifacts"})
"""The keys of what an agent is asked; only the prompt is the workflow's own affair."""

Entry = dict[str, Any]
Children = Callable[[str], Iterable[WorkflowEvent]]


def trace(events: Iterable[WorkflowEvent], children: Children | None = None) -> list[Entry]:
    """The calls of leaves and the gates of a run, in the order in which they were begun.

    A call is `{"call": name, "input": …, "success": True, "output": …}`, or with `success` false and an
    `error`. A gate is `{"gate": prompt, "answer": …}`. What is still open has no outcome. There are no paths,
    no control nodes, and none of the leaves that a notation needs for itself. With `children`, which gives
    the events of a run by its id, the calls of child runs stand where the child was called.
    """
    return Tracing(children).trace(events)


class Tracing:
    """One trace; entries are added when something begins, and filled in when it ends."""

    def __init__(self, children: Children | None) -> None:
        self._children = children

    def trace(self, events: Iterable[WorkflowEvent]) -> list[Entry]:
        found: list[Entry] = []
        begun: dict[str, Entry] = {}
        for event in events:
            data = event.data
            if event.event_type in STARTS:
                if self._children is not None and "child" in data:
                    found += self.trace(self._children(data["child"]))
                elif not (data.get("control") or internal(data["node_id"])):
                    entry = {"call": data["node_id"], "input": asked(data.get("input"))}
                    found.append(begun.setdefault(event.path, entry))
            elif event.event_type in ENDS and event.path in begun:
                begun.pop(event.path).update(outcome(data))
            elif event.event_type == "gate_waiting":
                begun[event.path] = {"gate": data["prompt"]}
                found.append(begun[event.path])
            elif event.event_type == "gate_answered" and event.path in begun:
                begun.pop(event.path)["answer"] = data["answer"]
            elif event.event_type == "gate_timeout" and event.path in begun:
                begun.pop(event.path)["timed_out"] = True
        return found


def internal(name: str) -> bool:
    """Whether a leaf is the notation's own affair and not the author's."""
    return name.startswith("_") or name == "expect"


def asked(input: Any) -> Any:
    """What a leaf was given; of a request to an agent, its prompt."""
    return (
        input["prompt"]
        if isinstance(input, dict) and "prompt" in input and input.keys() <= REQUEST
        else input
    )


def outcome(data: dict[str, Any]) -> Entry:
    if data.get("success"):
        return {"success": True, "output": (data.get("result") or {}).get("output")}
    return {"success": False, "error": data.get("error")}
