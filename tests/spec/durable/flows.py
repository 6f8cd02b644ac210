"""Random runnable specs: every kind of node, with results that depend on neither time nor order."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import strategies as st

Spec = dict[str, Any]

LEAVES = (
    "work",
    "fail",
    "flaky",
    "prompt",
    "gate",
    "outside",
    "sleep",
    "transform",
    "emit",
    "told",
    "untold",
    "child",
    "late",
    "reduce",
)
CONTROL = (
    "sequence",
    "while",
    "loop",
    "branch",
    "switch",
    "map",
    "parallel",
    "graph",
    "machine",
    "detached",
    "bounded",
    "again",
)
NUMBER = "typeof given === 'number'"


@st.composite
def flows(draw: st.DrawFn) -> Spec:
    """A workflow as the plain data of a spec."""
    return {"name": "main", "body": Drawing(draw).node(3)}


class Drawing:
    """Draws one spec; ids are numbered, so that each is unique."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw, self._ids = draw, count(1)
        self._left = 9
        self.side_by_side = self.in_graph = self.in_map = False

    def pick(self, choices: Any) -> Any:
        return self._draw(st.sampled_from(list(choices)))

    def flip(self, of: int = 2) -> bool:
        return bool(self._draw(st.integers(1, of)) == of)

    def id(self) -> str:
        return f"n{next(self._ids)}"

    def node(self, depth: int) -> Spec:
        self._left -= 1
        kinds = LEAVES if depth == 0 or self._left <= 0 else (*LEAVES, *CONTROL, *CONTROL)
        kind = self.pick(kinds)
        made: Spec = getattr(self, kind)(depth - 1) if kind in CONTROL else getattr(self, kind)()
        if self.flip(6):
            made["when"] = self.pick([f"!({NUMBER}) || given % 2 === 0", "given !== null", "1 > 2"])
        if self.flip(6) and kind not in ("gate", "outside", "untold"):
            made["expect"] = [self.pick([{"condition": "output !== 3"}, {"file": "there.txt"}])]
            made.setdefault("on_error", "skip")
        return made

    # -- leaves --------------------------------------------------------------------------------

    def work(self) -> Spec:
        return {"kind": "call", "id": self.id(), "target": "work"}

    def fail(self) -> Spec:
        instead = self.pick(["skip", {**self.work(), "input": "{{ given }}"}])
        return {"kind": "call", "id": self.id(), "target": "fail", "on_error": instead}

    def flaky(self) -> Spec:
        retry = {"attempts": 4, "delay": 0.0}
        return {"kind": "call", "id": self.id(), "target": "flaky", "retry": retry}

    def late(self) -> Spec:
        return {"kind": "call", "id": self.id(), "target": "never", "timeout": 0.01, "on_error": "skip"}

    def prompt(self) -> Spec:
        id = self.id()
        thread = "fresh" if self.in_graph else self.pick(["shared", "fresh", "coach"])
        made = {"kind": "prompt", "id": id, "text": f"{id}: {{{{ given }}}}", "thread": thread}
        made["workspace"] = "shared"
        return made | ({} if self.side_by_side else {"role": self.pick(["a", "b"])})

    def gate(self) -> Spec:
        id = self.id()
        return {"kind": "gate", "id": id, "prompt": f"{id}?"} | ({"timeout": 60.0} if self.flip() else {})

    def outside(self) -> Spec:
        """A wait for a signal from outside."""
        id = self.id()
        named = {"name": "came", "signal": id, "key": "{{ run.label }}"}
        return {"kind": "wait", "id": id, "any": [named, {"name": "never", "signal": "never"}]}

    def sleep(self) -> Spec:
        return {"kind": "wait", "id": self.id(), "seconds": 0.0}

    def transform(self) -> Spec:
        expression = self.pick([f"{NUMBER} ? given + 1 : 1", "[1, 2, given]", "({n: 1, of: given})"])
        return {"kind": "transform", "id": self.id(), "expression": expression}

    def emit(self) -> Spec:
        return {"kind": "emit", "id": self.id(), "event": "progress", "data": {"given": "{{ given }}"}}

    def told(self) -> Spec:
        """Assert a fact, find it, maybe retract it, and then not find it; map items would race."""
        if self.in_map:
            return self.untold()
        id, own = self.id(), "{{ run.id }}"
        fact = ["note", id, {"run": own, "at": "{{ given }}"}]
        look = {"kind": "wait", "any": [{"fact": ["note", id, {"run": own}]}], "test": True}
        steps: list[Spec] = [
            {"kind": "assert", "id": f"{id}a", "fact": fact},
            {**look, "id": f"{id}b"},
            {"kind": "retract", "id": f"{id}c", "fact": ["note", id, {"run": own}], "when": "given"},
            {**look, "id": f"{id}d"},
            {"kind": "transform", "id": f"{id}e", "expression": f"[results.{id}b, results.{id}d]"},
        ]
        return {"kind": "sequence", "id": id, "steps": steps}

    def untold(self) -> Spec:
        return {"kind": "wait", "id": self.id(), "any": [{"signal": "never"}], "test": True}

    def child(self) -> Spec:
        return {"kind": "workflow", "id": self.id(), "workflow": "child", "params": {"times": 2}}

    def reduce(self) -> Spec:
        over = self.pick(["[1, 2, 3]", "Array.isArray(given) ? given : [5]"])
        return {
            "kind": "reduce",
            "id": self.id(),
            "over": over,
            "initial": [],
            "expression": "[acc, item, index]",
        }

    # -- control -------------------------------------------------------------------------------

    def sequence(self, depth: int) -> Spec:
        return {"kind": "sequence", "id": self.id(), "steps": self.nodes(depth, 3)}

    def nodes(self, depth: int, most: int) -> list[Spec]:
        return [self.node(depth) for _ in range(self._draw(st.integers(1, most)))]

    def while_(self, depth: int) -> Spec:
        body = self.node(depth)
        return {"kind": "while", "id": self.id(), "condition": "iteration < 2", "body": body}

    def loop(self, depth: int) -> Spec:
        made: Spec = {"kind": "loop", "id": self.id(), "body": self.node(depth), "accumulate": self.flip()}
        return made | self.pick([{"times": 2}, {"until": "iteration >= 1"}, {"times": "1 + 1"}])

    def branch(self, depth: int) -> Spec:
        made = {"kind": "branch", "id": self.id(), "condition": NUMBER, "then": self.node(depth)}
        return made | ({"otherwise": self.node(depth)} if self.flip() else {})

    def switch(self, depth: int) -> Spec:
        cases = {"number": self.node(depth), "string": self.node(depth)}
        return {
            "kind": "switch",
            "id": self.id(),
            "key": "typeof given",
            "cases": cases,
            "default": self.work(),
        }

    def map(self, depth: int) -> Spec:
        before, self.in_map = self.in_map, True
        body = self.beside(lambda: self.node(depth))
        self.in_map = before
        return {
            "kind": "map",
            "id": self.id(),
            "over": "[given, 2]",
            "body": body,
            "max_parallel": self.pick([1, 2]),
        }

    def parallel(self, depth: int) -> Spec:
        parts = self.beside(lambda: self.nodes(depth, 3))
        return {"kind": "parallel", "id": self.id(), "branches": parts}

    def graph(self, depth: int) -> Spec:
        before, self.in_graph = self.in_graph, True
        steps = self.beside(lambda: self.nodes(depth, 4))
        self.in_graph = before
        for n, step in enumerate(steps):
            before = [other["id"] for other in steps[:n]]
            if before and self.flip():
                step["depends_on"] = [self.pick(before)]
        return {"kind": "graph", "id": self.id(), "steps": steps}

    def beside(self, make: Any) -> Any:
        before, self.side_by_side = self.side_by_side, True
        try:
            return make()
        finally:
            self.side_by_side = before

    def machine(self, depth: int) -> Spec:
        """A machine that repeats once, ends by a goto or a transition, and may enter a failure state."""
        id = self.id()
        turns = {
            "kind": "transform",
            "id": f"{id}t",
            "expression": f"(steps.{id}t ? results.{id}t : 0) + 1",
        }
        done = f"results.{id}t > 1"
        leave: Spec = {
            "kind": "branch",
            "id": f"{id}b",
            "condition": done,
            "then": {"kind": "goto", "state": "done"},
        }
        first = {"kind": "sequence", "id": f"{id}s", "steps": [turns, leave, self.node(depth)]}
        states = [
            {"name": "first", "body": first, "next": [{"to": "second"}], "on_error": "done"},
            {"name": "second", "body": self.node(depth), "next": [{"when": "1 > 0", "to": "first"}]},
            {"name": "done", "body": self.node(depth), "terminal": True},
        ]
        states[1]["after_failure"] = self.pick(["fail", "go_on", "remember"])
        return {"kind": "machine", "id": id, "states": states, "max_transitions": 20}

    def detached(self, depth: int) -> Spec:
        """A detached prompt with a later wait for its answer, or only joined."""
        id = self.id()
        send = {
            "kind": "prompt",
            "id": id,
            "tag": id,
            "detach": True,
            "text": f"{id}: {{{{ given }}}}",
            "thread": "fresh" if self.in_graph else self.pick(["shared", "fresh", "coach"]),
            "workspace": "shared",
        }
        steps = [send, self.beside(lambda: self.node(depth))]
        if self.flip():
            steps.append({"kind": "wait", "id": f"{id}w", "any": [{"response": id}]})
        return {"kind": "sequence", "id": f"{id}s", "steps": steps}

    def bounded(self, depth: int) -> Spec:
        return {**self.sequence(depth), "timeout": 60.0}

    def again(self, depth: int) -> Spec:
        """A node that fails and is retried before it fails for good."""
        wrong = {"kind": "transform", "id": self.id(), "expression": "given.no.such.thing"}
        made = self.sequence(depth)
        retry = {"attempts": 2, "delay": 0.0}
        return {**made, "steps": [*made["steps"], wrong], "retry": retry, "on_error": "skip"}


setattr(Drawing, "while", Drawing.while_)
