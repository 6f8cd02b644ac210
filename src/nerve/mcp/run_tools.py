"""The tools: list, start, follow, stop and answer, each an operation of the API."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import Field

from nerve.api.errors import ApiError
from nerve.api.models import GateResponse, RunResponse
from nerve.client import Client
from nerve.core.events import RUN_END_EVENTS, WorkflowEventType
from nerve.core.gates import select_gates
from nerve.core.json_codec import encode_json
from nerve.mcp.bounded_results import (
    MAX_LINE_CHARS,
    MAX_REPLY_CHARS,
    MAX_TEXT_CHARS,
    limit_list,
    page_of_text,
    shorten_text,
    to_text,
    without_empty,
)
from nerve.mcp.descriptions import (
    describe_gate,
    describe_run,
    describe_run_with_steps,
    describe_workflow,
    needs_attention,
)
from nerve.mcp.host_call import CURRENT_CLIENT, HOST_CALL
from nerve.mcp.tool import Tool
from nerve.ui.event_lines import LogLines, to_workflow_event
from nerve.ui.gate_names import answer_command

DEFAULT_WAIT_S = 45.0
"""Seconds that a call waits for a run; some hosts give up after 60."""
MAX_WAIT_S = 600.0
STATE_EVENTS = frozenset(
    {
        *RUN_END_EVENTS,
        WorkflowEventType.GATE_WAITING,
        WorkflowEventType.PAUSED,
        WorkflowEventType.HELD,
    }
)
"""Events after which a run may need attention."""
ANSWERS_REFUSED = "This MCP server does not answer gates, because an agent must not approve its own work"
ALLOW_ANSWERS_FIX = (
    "A person answers with: {command}. A person who wants agents to answer starts the server with: "
    "nerve mcp --allow-answers"
)

CONFIRMATION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"send": {"type": "boolean", "title": "Send this answer", "default": False}},
    "required": ["send"],
}
"""The form in which the user of a host confirms an answer."""

RunName = Annotated[str, Field(description="The id of a run, a prefix of it, or its label.")]
WaitSeconds = Annotated[
    float,
    Field(
        ge=0,
        le=MAX_WAIT_S,
        description="Seconds to wait until the run ends or needs a person. Call wait_for_run to wait on.",
    ),
]
Offset = Annotated[int, Field(ge=0, description="The next_offset of the previous reply.")]


class RunTools:
    """The tools of one server; each method that `tools` names is one."""

    def __init__(self, *, allow_answers: bool = False) -> None:
        self._allow_answers = allow_answers

    @property
    def client(self) -> Client:
        """The API, for the sender of the current request."""
        return CURRENT_CLIENT.get()

    def tools(self) -> list[Tool]:
        """Return the tools in the order in which a host lists them."""
        read_only: list[Callable[..., Awaitable[dict[str, Any]]]] = [
            self.list_workflows,
            self.show_workflow,
            self.list_runs,
            self.run_status,
            self.wait_for_run,
            self.run_logs,
            self.read_result,
            self.list_artifacts,
            self.read_artifact,
            self.read_changes,
            self.list_gates,
        ]
        return [
            *(Tool(fn, is_read_only=True) for fn in read_only),
            Tool(self.start_run),
            Tool(self.send_message),
            Tool(self.answer_gate, is_destructive=True),
            Tool(self.stop_run, is_destructive=True),
        ]

    # -- workflows and runs ----------------------------------------------------------------------------

    async def list_workflows(self) -> dict[str, Any]:
        """List the workflows of this project with their inputs."""
        page = await self.client.workflows()
        workflows = [describe_workflow(each) for each in page.workflows]
        problems = [str(problem.get("message")) for problem in page.problems[:20]]
        reply = limit_list("workflows", workflows, "Call show_workflow with the name of a workflow.")
        return reply | without_empty({"problems_in_files": problems})

    async def show_workflow(
        self, workflow: Annotated[str, Field(description="The name of the workflow.")]
    ) -> dict[str, Any]:
        """Show a workflow: its inputs with their JSON Schemas, its steps and its source."""
        found = await self.client.workflow(workflow=workflow)
        return describe_workflow(found) | without_empty(
            {
                "input_schema": found.input_schema,
                "params_schema": found.params_schema,
                "output_schema": found.output_schema,
                "source": shorten_text(found.source or "", MAX_TEXT_CHARS),
            }
        )

    async def start_run(
        self,
        workflow: Annotated[str, Field(description="The name of the workflow.")],
        input: Annotated[Any, Field(description="The input of the run: a text or a JSON value.")] = None,
        params: Annotated[
            dict[str, Any] | None, Field(description="Values of the other inputs of the workflow, by name.")
        ] = None,
        label: Annotated[
            str, Field(description="A short name for the run, which no other open run should have.")
        ] = "",
        key: Annotated[
            str,
            Field(description="Idempotency key: a repeated start with the same key returns the same run."),
        ] = "",
        wait: WaitSeconds = 0.0,
    ) -> dict[str, Any]:
        """Start a run of a workflow. It continues when this call has ended; wait_for_run follows it."""
        optional = {"input": input, "params": params, "label": label or None, "key": key or None}
        given = {name: value for name, value in optional.items() if value is not None}
        run = await self.client.start(workflow=workflow, **given)
        return describe_run(await self._wait(run.run_id, wait) if wait else run)

    async def list_runs(
        self,
        workflow: Annotated[str, Field(description="Only runs of this workflow.")] = "",
        state: Annotated[
            str, Field(description="Only runs in this state: running, waiting, completed, failed, held …")
        ] = "",
        label: Annotated[str, Field(description="Only runs with this label.")] = "",
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        before: Annotated[str, Field(description="The last run of the previous reply, for older runs.")] = "",
    ) -> dict[str, Any]:
        """List the runs of this project, newest first."""
        filters = without_empty({"workflow": workflow, "state": state, "label": label, "before": before})
        page = await self.client.runs(limit=limit, largest=MAX_LINE_CHARS, **filters)
        runs = [describe_run(run) for run in page.runs]
        more = {"to_see_more": f"Call list_runs with before={page.runs[-1].run_id}."} if page.more else {}
        return more | limit_list("runs", runs, "Call list_runs with the last run as 'before'.")

    async def run_status(self, run: RunName) -> dict[str, Any]:
        """Show a run: its state, its steps, its open gates and its result."""
        return describe_run_with_steps(await self.client.run(run=run))

    async def wait_for_run(self, run: RunName, wait: WaitSeconds = DEFAULT_WAIT_S) -> dict[str, Any]:
        """Wait until a run ends, or waits for a person; return its state.

        Reports each step as progress. If the time ends before, `state` is that of an open run: call again.
        """
        return describe_run(await self._wait(run, wait))

    async def stop_run(
        self, run: RunName, reason: Annotated[str, Field(description="Recorded in the run.")] = ""
    ) -> dict[str, Any]:
        """Stop a run and everything that it has started. It cannot be continued."""
        return describe_run(await self.client.stop(run=run, reason=reason))

    async def send_message(
        self,
        run: RunName,
        channel: Annotated[str, Field(description="The name of the channel on which the run receives.")],
        value: Annotated[Any, Field(description="A text or a JSON value.")] = None,
    ) -> dict[str, Any]:
        """Put a message into the mailbox of a run whose workflow receives messages."""
        sent = await self.client.send(run=run, channel=channel, value=value)
        return {"run": sent.run_id, "channel": sent.channel}

    async def _wait(self, name: str, wait_s: float) -> RunResponse:
        """Return a run when it needs attention, or after this time; report its log lines as progress."""
        run: RunResponse = await self.client.run(run=name)
        if needs_attention(run):
            return run
        call, log, count = HOST_CALL.get(), LogLines(), 0
        last_seq = getattr(run, "last_seq", 0)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(wait_s),
                contextlib.aclosing(self.client.watch(run.run_id, last_seq)) as events,
            ):
                async for event in events:
                    for line in log.apply_event(to_workflow_event(event)):
                        count += 1
                        await call.report_progress(count, shorten_text(line, MAX_LINE_CHARS))
                    if event.event_type in STATE_EVENTS:
                        run = await self.client.run(run=event.run_id, steps=False)
                        if needs_attention(run):
                            break
        return await self.client.run(run=run.run_id, steps=False)

    # -- what a run has made ---------------------------------------------------------------------------

    async def run_logs(
        self,
        run: RunName,
        after: Annotated[int, Field(ge=0, description="Only lines of events after this number.")] = 0,
        last: Annotated[int, Field(ge=0, le=1000, description="Only the last lines, this many.")] = 0,
        step: Annotated[str, Field(description="Only the step at this path, and what is inside it.")] = "",
    ) -> dict[str, Any]:
        """Read the log of a run: steps, agent output and tool calls."""
        run_id = (await self.client.run(run=run, steps=False)).run_id
        lines: deque[str] = deque(maxlen=last or None)
        log, size, next_after = LogLines(), 0, None
        options = {"path": step} if step else {}
        async with contextlib.aclosing(self.client.history(run_id, after, **options)) as events:
            async for event in events:
                new = [
                    shorten_text(line, MAX_LINE_CHARS) for line in log.apply_event(to_workflow_event(event))
                ]
                lines += new
                size += sum(map(len, new))
                if not last and size > MAX_TEXT_CHARS:
                    next_after = event.seq
                    break
        lines += [shorten_text(line, MAX_LINE_CHARS) for line in log.flush_all()]
        while sum(map(len, lines)) > MAX_REPLY_CHARS:  # the oldest of the last ones
            lines.popleft()
        more = {} if next_after is None else {"to_see_more": f"Call run_logs with after={next_after}."}
        return {"run": run_id, "lines": list(lines)} | more

    async def read_result(self, run: RunName, offset: Offset = 0) -> dict[str, Any]:
        """Read the result of a run that has ended; a long one in parts."""
        found = await self.client.run(run=run)
        fields = {"run": found.run_id, "state": found.state} | without_empty({"error": found.error})
        text = to_text(found.result)
        if offset == 0 and len(text) <= MAX_TEXT_CHARS:
            return fields | {"result": found.result}
        return fields | page_of_text(text, offset)

    async def list_artifacts(
        self,
        run: RunName,
        after: Annotated[str, Field(description="The last name of the previous reply.")] = "",
    ) -> dict[str, Any]:
        """List the files that the steps of a run have put into its artifacts folder."""
        page = await self.client.artifacts(run=run, limit=200, **without_empty({"after": after}))
        files = [each.model_dump(mode="json", exclude={"modified_at"}) for each in page.artifacts]
        more = {} if page.next is None else {"to_see_more": f"Call list_artifacts with after={page.next!r}."}
        return (
            {"run": page.run_id}
            | more
            | limit_list("artifacts", files, "Call it with the last name as 'after'.")
        )

    async def read_artifact(
        self,
        run: RunName,
        name: Annotated[str, Field(description="Its name in the list.")],
        offset: Offset = 0,
    ) -> dict[str, Any]:
        """Read a text file from the artifacts of a run, in parts if it is long.

        Of a file that is not UTF-8 text, return only its size.
        """
        size, start, data = 0, offset, bytearray()
        async with contextlib.aclosing(self.client.read_artifact(run, name)) as chunks:
            async for chunk in chunks:
                data += chunk[max(start - size, 0) :][: MAX_TEXT_CHARS - len(data)]
                size += len(chunk)
        part = bytes(data)
        is_end = start + len(part) >= size
        for cut in range(1 if is_end else 4):  # a part may end inside a character
            with contextlib.suppress(UnicodeDecodeError):
                page = {"name": name, "text": part[: len(part) - cut].decode(), "total_bytes": size}
                return page | ({} if is_end else {"next_offset": start + len(part) - cut})
        return {"name": name, "total_bytes": size, "not_text": True}

    async def read_changes(
        self,
        run: RunName,
        step: Annotated[str, Field(description="Only the step at this path, and what is inside it.")] = "",
        offset: Offset = 0,
    ) -> dict[str, Any]:
        """Read what the steps of a run have changed in workspaces: the files, and a patch."""
        page = await self.client.changes(run=run, **({"path": step} if step else {}))
        steps = [
            without_empty(
                {
                    "step": each.path,
                    "workspace": each.workspace,
                    "files": each.files[:100],
                    "more_files": max(len(each.files) - 100, 0) + each.more_files or None,
                    "diff_left_out": True if each.diff is None else None,
                }
            )
            for each in page.steps
        ]
        diff = "".join(each.diff or "" for each in page.steps)
        reply = {"run": page.run_id} | limit_list("steps", steps, "Call read_changes with a step.")
        return reply | {"diff": page_of_text(diff, offset)}

    # -- gates -----------------------------------------------------------------------------------------

    async def list_gates(self) -> dict[str, Any]:
        """List the open gates: the questions for which runs wait for a person."""
        gates = [describe_gate(gate) for gate in await self.client.all_gates()]
        return limit_list("gates", gates, "Call run_status with a run.")

    async def answer_gate(
        self,
        gate: Annotated[str, Field(description="The id of the gate, or its name if no other has it.")],
        answer: Annotated[Any, Field(description="A choice, a text or a JSON value, as the gate asks for.")],
        reason: Annotated[str, Field(description="Why, recorded with the answer.")] = "",
    ) -> dict[str, Any]:
        """Answer an open gate for the user, if the user has allowed this.

        A gate asks a person. Refused unless the user has started the server with --allow-answers; a host that
        can show a form asks the user first.
        """
        found = await self._find_gate(gate)
        if not self._allow_answers:
            raise ApiError(
                "forbidden", ANSWERS_REFUSED, ALLOW_ANSWERS_FIX.format(command=answer_command(found))
            )
        if (call := HOST_CALL.get()).can_ask_user:
            shown = encode_json([found.hash, answer])
            reply = await call.ask_user(confirmation_text(found, answer), CONFIRMATION_SCHEMA, shown)
            if not (reply.is_accepted and reply.content.get("send") is True):
                raise ApiError("forbidden", "The user did not confirm the answer", "Ask the user what to do.")
            if reply.state != shown:
                raise ApiError("conflict", "The user confirmed another question or answer", "Call it again.")
        given = await self.client.answer(
            run=found.run_id, gate=found.gate_id, answer=answer, reason=reason, hash=found.hash
        )
        return {"run": given.run_id, "gate": given.gate_id, "answer": given.answer, "by": given.by}

    async def _find_gate(self, name: str) -> GateResponse:
        gates = await self.client.all_gates()
        found = select_gates(gates, name)
        if len(found) == 1:
            return found[0]
        known = ", ".join(gate.gate_id for gate in found or gates) or "none"
        problem = "means several gates" if found else "is not open"
        code = "conflict" if found else "not_found"
        raise ApiError(code, f"Gate '{name[:80]}' {problem}", f"Call list_gates. Open: {shorten_text(known)}")


def confirmation_text(gate: GateResponse, answer: Any) -> str:
    """Return the question for the user of the host: what the gate asks, and the answer of the agent."""
    action = to_text(gate.action) if gate.action else ""
    fields = without_empty({"Action": action, "Content": gate.input_preview, "Note": gate.note})
    details = "".join(f"\n\n{name}: {text}" for name, text in fields.items())
    question = shorten_text(f"{gate.prompt}{details}", MAX_TEXT_CHARS)
    return (
        f"The run {gate.label or gate.run_id} of {gate.workflow} asks:\n\n{question}\n\n"
        f"The agent wants to answer: {shorten_text(to_text(answer), MAX_TEXT_CHARS)}"
    )
