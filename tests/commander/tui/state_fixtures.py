"""Hand-made states, and a controller that only records its calls."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from nerve.api.models import EventResponse, GateResponse, InputResponse, RunResponse, WorkflowResponse
from nerve.commander.controller import CommanderController
from nerve.commander.core.completion import Completion, find_completions
from nerve.commander.core.name_resolution import collect_completion_names
from nerve.commander.core.state import CommanderState

BEGAN = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=42)
FLOWS = [
    WorkflowResponse(
        id="code_review", kind="python", description="Review a change, then ask", steps=["read", "review"]
    ),
    WorkflowResponse(
        id="research_agent",
        kind="yaml",
        description="Search until the answer is good",
        inputs=[InputResponse(name="max_rounds", type="integer", default=5)],
    ),
    WorkflowResponse(id="deploy", kind="lisp", description="Build, ask, release"),
]


class Scripted(CommanderController):
    """A controller without a server."""

    def __init__(self, state: CommanderState) -> None:
        super().__init__(None, state=state)  # type: ignore[arg-type]
        self.entered: list[str] = []
        self.entered_for: list[str | None] = []
        self.answers: list[tuple[str, Any]] = []
        self.stopped_runs: list[str | None] = []
        self.followed: list[str] = []
        self.refusal = ""

    async def open(self) -> None:
        self.state.is_connected = True
        self.state.raise_flags("connected")

    async def close(self) -> None:
        pass

    async def submit(self, text: str, opened: str | None = None) -> None:
        self.entered.append(text)
        self.entered_for.append(opened)
        self.state.add_block("input", text)

    async def answer_gate(self, gate: GateResponse, text: Any) -> str:
        self.answers.append((gate.gate_id, text))
        if not self.refusal:
            self.state.gates = [other for other in self.state.gates if other.gate_id != gate.gate_id]
            self.state.raise_flags("gates")
        return self.refusal

    async def stop_run(self, run_id: str | None = None) -> None:
        self.stopped_runs.append(run_id)

    async def follow(self, run: str) -> None:
        self.followed.append(run)
        self.state.focus_run(run)

    def unqueue(self) -> str:
        text = self.state.queue.pop()
        self.state.raise_flags("queue")
        return text

    def complete(self, text: str, cursor: int) -> list[Completion]:
        return find_completions(text, cursor, collect_completion_names(self.state, ("nord",)))


class Script:
    """Applies the events of one run in order."""

    def __init__(
        self,
        state: CommanderState,
        run_id: str,
        workflow: str,
        began: datetime = BEGAN,
        label: str | None = None,
    ) -> None:
        self.state, self.run_id, self.workflow, self.label = state, run_id, workflow, label
        self.seq, self.at = 0, began

    def follow(self) -> Script:
        run = RunResponse(
            run_id=self.run_id, workflow=self.workflow, state="running", started_at=self.at, label=self.label
        )
        self.state.merge_runs([run])
        self.state.show_run(self.run_id)
        return self

    def say(self, type: str, path: str = "", after: float = 0.0, **data: Any) -> Script:
        self.seq += 1
        self.at += timedelta(seconds=after)
        self.state.apply_event(
            EventResponse(
                seq=self.seq,
                run_id=self.run_id,
                workflow_id=self.workflow,
                event_type=type,
                path=path,
                timestamp=self.at,
                data=data,
            )
        )
        return self

    def started(self, *steps: str) -> Script:
        return self.say("workflow_started", steps=list(steps), label=self.label)

    def began(self, path: str, **data: Any) -> Script:
        return self.say("node_started", path, node_id=path.rsplit("/", 1)[-1], **data)

    def done(self, path: str, output: Any = "", after: float = 1.0, **attributes: Any) -> Script:
        result = {"success": True, "output": output, "attributes": attributes}
        name = path.rsplit("/", 1)[-1]
        ms = after * 1000
        return self.say(
            "node_completed", path, after, node_id=name, success=True, result=result, duration_ms=ms
        )

    def output(self, path: str, text: str, stream: str = "assistant") -> Script:
        return self.say("output_chunk", path, stream=stream, text=text)


ANSWER = """The change is **good**, with two remarks:

1. `parse()` swallows the error; raise it instead.
2. The test is missing.

```python
def parse(text: str) -> Tree:
    return Tree.of(text)
```
"""
CHANGE = {
    "file_path": "src/app.py",
    "old_string": "debug = True\nport = 80\n",
    "new_string": "debug = False\nport = 80\n",
}


def make_state(**more: Any) -> CommanderState:
    return CommanderState(project="/home/me/shop", is_connected=True, workflows=list(FLOWS), **more)


def review(on: CommanderState) -> Script:
    """Add a run that is in progress."""
    on.add_block("input", "%code_review --strict look at the last commit")
    run = Script(on, "run_01review", "code_review", label="last commit").follow()
    run.started("read", "review_loop", "summary")
    run.began("/read").done("/read", "42 files", 0.4)
    run.began("/review_loop", control=True)
    run.say("loop_iteration", "/review_loop", iteration=1, max=5)
    run.began("/review_loop/reviewer")
    run.say("tool_call", "/review_loop/reviewer", id="t1", name="Read", input={"file_path": "src/app.py"})
    run.say("tool_call", "/review_loop/reviewer", id="t1", status="completed", text="line\n" * 12)
    run.say("tool_call", "/review_loop/reviewer", id="t2", name="Edit", input=CHANGE)
    run.output("/review_loop/reviewer", ANSWER)
    run.at = BEGAN + timedelta(seconds=30)
    return run


def finished(on: CommanderState) -> Script:
    on.add_block("input", "%research_agent why is the sky blue?")
    run = Script(on, "run_00research", "research_agent", BEGAN - timedelta(minutes=9)).follow()
    run.started("search", "reply").began("/search").done("/search", "3 sources", 12.0)
    run.began("/reply")
    usage = {"input_tokens": 900, "output_tokens": 340, "tokens": 1240, "cost": 0.021}
    run.done("/reply", "Rayleigh scattering.", 3.2, usage=usage)
    run.say("workflow_completed", result="**Rayleigh scattering**: short waves are scattered most.")
    return run


def gate(id: str = "g1", run_id: str = "run_02deploy", **more: Any) -> GateResponse:
    fields: dict[str, Any] = {
        "gate_id": id,
        "run_id": run_id,
        "path": "/ask/answer",
        "node_id": "ask",
        "prompt": "Release **v2.1** to production?\n\n- 3 commits\n- all tests pass",
        "choices": ["approve", "reject", "later"],
    }
    return GateResponse.model_validate(fields | more)


def permission() -> GateResponse:
    action = {"tool": "Edit", "input": CHANGE, "cwd": "/home/me/shop", "hash": "0"}
    prompt = (
        "reviewer wants to use Edit(src/app.py):\n\n    file_path: src/app.py\n\nThe agent says: debug is on"
    )
    return gate(
        "g2",
        path="/build/permission",
        prompt=prompt,
        choices=["allow", "deny"],
        action=action,
        node_id="reviewer",
    )


def waiting(on: CommanderState, *gates: GateResponse) -> Script:
    run = Script(on, "run_02deploy", "deploy", BEGAN - timedelta(seconds=90), "friday").follow()
    run.started("build", "ask", "release").began("/build").done("/build", "built", 20.0)
    for each in gates or (gate(),):
        data = each.model_dump(exclude={"run_id", "path", "created_at"}, exclude_none=True)
        run.say("gate_waiting", each.path, **({"choices": None, "options": None} | data))
    return run


def crowd(on: CommanderState, count: int = 200) -> None:
    """Add many runs that are not followed."""
    states = ("completed", "failed", "running", "cancelled", "completed")
    on.merge_runs(many(count, states))


def many(count: int, states: Iterable[str]) -> list[RunResponse]:
    kinds = list(states)
    return [
        RunResponse(
            run_id=f"run_{9000 - n}",
            workflow=FLOWS[n % 3].id,
            state=kinds[n % len(kinds)],
            label=f"number {n}" if n % 2 else None,
            started_at=BEGAN - timedelta(minutes=n),
            ended_at=None if kinds[n % len(kinds)] == "running" else BEGAN - timedelta(minutes=n, seconds=-7),
        )
        for n in range(count)
    ]
