"""The tools and resources of the MCP server, used by the official client in both protocols."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp.client.client import Client as McpClient
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from client.app import TOKEN, Served, serving
from nerve import BashNode, Session
from nerve.api import Api
from nerve.client import Client
from nerve.mcp.bounded_results import MAX_TEXT_CHARS
from nerve.mcp.server import ProjectMcpServer
from nerve.mcp.workflow_tools import MAX_TOOL_NAME_CHARS, tool_name

CHANGE = """
name: change
body:
  kind: sequence
  workspace: worktree
  steps:
    - {kind: bash, id: edit, command: "echo changed > file.txt"}
"""


class Order(BaseModel):
    item: str
    count: int = 1


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    commit = ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"]
    for arguments in (["init", "--quiet"], commit):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
async def session(repository: Path) -> AsyncIterator[Session]:
    session = Session(project=repository)
    BashNode("count", session, "for n in $(seq 3000); do echo line $n; done")

    @session.workflow
    async def hello(ctx):
        """Say hello."""
        return f"hello {ctx.input}"

    @session.workflow
    async def buy(ctx, order: Order, fast: bool, note: str = ""):
        return {"item": order.item, "fast": fast}

    @session.workflow
    async def ask(ctx):
        return await ctx.gate("Deploy?", choices=["yes", "no"])

    @session.workflow
    async def listen(ctx):
        return await ctx.receive("orders")

    @session.workflow
    async def long(ctx):
        await ctx.run("count")
        return "x" * (MAX_TEXT_CHARS + 5)

    session.load(CHANGE)

    @session.workflow
    async def fail(ctx):
        raise ValueError("broken")

    yield session
    await session.close()


@pytest.fixture(params=["in process", "http"], ids=["in process", "over http"])
async def api_client(request, session: Session) -> AsyncIterator[Client]:
    if request.param == "in process":
        yield Client(Api(session), via="mcp")
        return
    async with serving(Served(Api(session))) as url, Client(url, token=TOKEN, via="mcp") as client:
        yield client


Connect = Callable[..., contextlib.AbstractAsyncContextManager["Host"]]


class Host:
    """A program with an MCP client; `user` answers its forms."""

    def __init__(self, client: McpClient) -> None:
        self.client = client
        self.progress: list[str] = []

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds, and return its data, which is the same for models and for programs."""
        result = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        [content] = result.content
        assert isinstance(content, mcp_types.TextContent)
        data: dict[str, Any] = json.loads(content.text)
        assert not result.is_error, data
        assert result.structured_content == data
        return data

    async def fail(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that fails, and return the error."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        error: dict[str, Any] = result.structured_content["error"]
        return error

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(message or "")


@pytest.fixture
def connect(request, api_client: Client) -> Connect:
    """Connect a host with the protocol of 2025 to an API in process, and one with that of 2026 over HTTP."""
    mode = {"in process": "legacy", "http": "2026-07-28"}[request.node.callspec.params["api_client"]]

    @contextlib.asynccontextmanager
    async def connected(user: Any = None, **options: Any) -> AsyncIterator[Host]:
        server = ProjectMcpServer(api_client, **options).create_server()
        async with McpClient(server, mode=mode, elicitation_callback=user) as client:
            yield Host(client)

    return connected


def user_replies(action: str, content: dict[str, Any] | None, shown: list[str]) -> Any:
    async def reply(context: Any, params: mcp_types.ElicitRequestFormParams) -> mcp_types.ElicitResult:
        shown.append(params.message)
        return mcp_types.ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    return reply


async def test_an_agent_finds_starts_and_follows_a_workflow(connect: Connect) -> None:
    async with connect() as host:
        workflows = (await host.call("list_workflows"))["workflows"]
        assert {"name": "hello", "description": "Say hello."} in workflows
        run = await host.call("start_run", workflow="hello", input="Ann", label="first", wait=30)
        assert (run["state"], run["result"], run["label"]) == ("completed", "hello Ann", "first")
        assert (await host.call("run_status", run="first"))["run"] == run["run"]
        assert [each["run"] for each in (await host.call("list_runs"))["runs"]] == [run["run"]]
        assert (await host.call("read_result", run="first"))["result"] == "hello Ann"
        assert (await host.call("run_logs", run="first"))["lines"][0] == "[workflow] hello started"


async def test_a_run_says_who_started_it_and_how(connect: Connect, session: Session) -> None:
    async with connect() as host:
        run = await host.call("start_run", workflow="hello", key="once", wait=30)
        assert (await host.call("start_run", workflow="hello", key="once"))["run"] == run["run"]
    [stored] = (await Client(Api(session)).runs()).runs
    assert stored.started_via in ("mcp", "http")


async def test_waiting_reports_steps_and_ends_at_a_gate(connect: Connect) -> None:
    async with connect() as host:
        run = await host.call("start_run", workflow="ask", wait=30)
        assert run["state"] == "waiting"
        [gate] = run["gates"]
        assert (gate["prompt"], gate["choices"]) == ("Deploy?", ["yes", "no"])
        assert gate["answer_with"] == f"nerve answer {run['run']} yes --gate {gate['gate']}"
        assert (await host.call("list_gates"))["gates"] == [gate]
        long = await host.call("start_run", workflow="long", wait=30)
        assert long["state"] == "completed"
    assert "[count] line 7" in host.progress


async def test_a_wait_is_bounded_and_can_be_repeated(connect: Connect) -> None:
    async with connect() as host:
        run = await host.call("start_run", workflow="listen")
        waited = await host.call("wait_for_run", run=run["run"], wait=0.1)
        assert (waited["state"], "result" in waited) == ("waiting", False)
        waiting = asyncio.create_task(host.call("wait_for_run", run=run["run"], wait=30))
        assert await host.call("send_message", run=run["run"], channel="orders", value={"item": "tea"})
        assert (await waiting)["result"] == {"item": "tea"}


async def test_a_cancelled_wait_leaves_the_run_alone(connect: Connect) -> None:
    async with connect() as host:
        run = await host.call("start_run", workflow="listen")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await host.call("wait_for_run", run=run["run"], wait=600)
        assert (await host.call("run_status", run=run["run"]))["state"] == "waiting"
        stopped = await host.call("stop_run", run=run["run"], reason="enough")
        assert (stopped["state"], stopped["error"]) == ("cancelled", "enough")


async def test_gates_are_not_answered_unless_the_user_allows_it(connect: Connect) -> None:
    async with connect() as host:
        run = await host.call("start_run", workflow="ask", wait=30)
        [gate] = run["gates"]
        error = await host.fail("answer_gate", gate=gate["gate"], answer="yes")
        assert error["code"] == "forbidden"
        assert "an agent must not approve its own work" in error["message"]
        assert gate["answer_with"] in error["fix"]
        assert "nerve mcp --allow-answers" in error["fix"]
        assert (await host.call("run_status", run=run["run"]))["state"] == "waiting"


async def test_an_answer_is_given_if_the_user_has_allowed_it(connect: Connect) -> None:
    async with connect(allow_answers=True) as host:
        run = await host.call("start_run", workflow="ask", wait=30)
        gate = run["gates"][0]["gate"]
        assert (await host.fail("answer_gate", gate=gate, answer="maybe"))["code"] == "refused"
        answered = await host.call("answer_gate", gate=gate, answer="yes", reason="tested")
        assert answered["answer"] == "yes"
        assert (await host.call("wait_for_run", run=run["run"]))["result"] == "yes"
        assert (await host.fail("answer_gate", gate=gate, answer="no"))["code"] == "not_found"


async def test_a_host_that_can_show_a_form_asks_its_user_first(connect: Connect) -> None:
    shown: list[str] = []
    async with connect(user_replies("accept", {"send": True}, shown), allow_answers=True) as host:
        run = await host.call("start_run", workflow="ask", wait=30)
        await host.call("answer_gate", gate=run["gates"][0]["gate"], answer="yes")
        assert (await host.call("wait_for_run", run=run["run"]))["result"] == "yes"
    [message] = shown
    assert "Deploy?" in message
    assert "The agent wants to answer: yes" in message


@pytest.mark.parametrize(
    ("action", "content"), [("decline", None), ("cancel", None), ("accept", {"send": False}), ("accept", {})]
)
async def test_an_answer_that_the_user_does_not_confirm_is_not_given(
    action: str, content: dict[str, Any] | None, connect: Connect
) -> None:
    async with connect(user_replies(action, content, []), allow_answers=True) as host:
        run = await host.call("start_run", workflow="ask", wait=30)
        error = await host.fail("answer_gate", gate=run["gates"][0]["gate"], answer="yes")
        assert (error["code"], error["message"]) == ("forbidden", "The user did not confirm the answer")
        assert (await host.call("run_status", run=run["run"]))["state"] == "waiting"


async def test_a_confirmation_counts_for_the_answer_that_was_shown(api_client: Client) -> None:
    server = ProjectMcpServer(api_client, allow_answers=True).create_server()
    user = user_replies("accept", {"send": True}, [])
    async with McpClient(server, mode="2026-07-28", elicitation_callback=user) as client:
        run = await api_client.start(workflow="ask", wait=True)
        arguments = {"gate": run.gates[0].gate_id, "answer": "no"}
        asked = await client.session.call_tool("answer_gate", arguments, allow_input_required=True)
        assert isinstance(asked, mcp_types.InputRequiredResult)
        reply = mcp_types.ElicitResult(action="accept", content={"send": True})
        result = await client.session.call_tool(
            "answer_gate",
            arguments | {"answer": "yes"},
            input_responses={"answer": reply},
            request_state=asked.request_state,
        )
        assert result.structured_content["error"]["code"] == "conflict"
        assert (await api_client.run(run=run.run_id)).state == "waiting"


async def test_errors_are_those_of_the_api(connect: Connect) -> None:
    async with connect() as host:
        missing = await host.fail("start_run", workflow="gone")
        assert (missing["code"], missing["message"]) == ("not_found", "Workflow 'gone' not found")
        wrong = await host.fail("start_run", workflo="hello")
        assert (wrong["code"], "Did you mean 'workflow'?" in wrong["message"]) == ("bad_request", True)
        assert (await host.fail("wait_for_run", run="gone"))["code"] == "not_found"
        assert (await host.fail("wait_for_run", run="gone", wait=1e6))["code"] == "bad_request"
        assert (await host.fail("answer_gate", gate="gone", answer=1))["code"] == "not_found"
        assert (await host.fail("start_run", workflow="buy", input={"item": "tea"}))["code"] == "refused"
        failed = await host.call("start_run", workflow="fail", wait=30)
        assert (failed["state"], failed["error"], failed["error_type"]) == ("failed", "broken", "ValueError")


async def test_long_logs_and_results_are_read_in_parts(connect: Connect) -> None:
    async with connect() as host:
        run = (await host.call("start_run", workflow="long", wait=60))["run"]
        first = await host.call("read_result", run=run)
        assert (len(first["text"]), first["next_offset"]) == (MAX_TEXT_CHARS, MAX_TEXT_CHARS)
        second = await host.call("read_result", run=run, offset=first["next_offset"])
        assert (second["text"], "next_offset" in second) == ("xxxxx", False)
        lines, after = [], 0
        while after is not None:
            page = await host.call("run_logs", run=run, after=after)
            lines += page["lines"]
            after = int(page["to_see_more"].split("=")[1][:-1]) if "to_see_more" in page else None
        assert [line for line in lines if line.startswith("[count] line")] == [
            f"[count] line {n + 1}" for n in range(3000)
        ]
        assert (await host.call("run_logs", run=run, last=1))["lines"] == ["[workflow] completed"]


async def test_artifacts_are_listed_and_read(connect: Connect, session: Session) -> None:
    async with connect() as host:
        run = (await host.call("start_run", workflow="hello", wait=30))["run"]
        folder = session.project / ".nerve/artifacts" / run
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("grün" * MAX_TEXT_CHARS)
        (folder / "b.bin").write_bytes(b"\xff\x00")
        listed = (await host.call("list_artifacts", run=run))["artifacts"]
        assert [each["name"] for each in listed] == ["a.txt", "b.bin"]
        text, offset = "", 0
        while offset is not None:
            page = await host.call("read_artifact", run=run, name="a.txt", offset=offset)
            text += page["text"]
            offset = page.get("next_offset")
        assert text == "grün" * MAX_TEXT_CHARS
        binary = await host.call("read_artifact", run=run, name="b.bin")
        assert binary == {"name": "b.bin", "total_bytes": 2, "not_text": True}
        assert (await host.fail("read_artifact", run=run, name="../x"))["code"] == "not_found"


async def test_the_changes_of_a_run_are_read_as_a_patch(connect: Connect) -> None:
    async with connect() as host:
        run = (await host.call("start_run", workflow="change", wait=60))["run"]
        changes = await host.call("read_changes", run=run)
        [step] = changes["steps"]
        assert step["files"] == ["file.txt"]
        assert "+changed" in changes["diff"]["text"]


async def test_runs_and_workflows_are_resources(connect: Connect) -> None:
    async with connect() as host:
        run = (await host.call("start_run", workflow="hello", label="mine", wait=30))["run"]
        listed = {each.uri: each.name for each in (await host.client.list_resources()).resources}
        assert listed[f"nerve://runs/{run}"] == "mine"
        assert "nerve://workflows/hello" in listed
        templates = (await host.client.list_resource_templates()).resource_templates
        for template in templates:
            uri = template.uri_template.replace("{run}", "mine").replace("{workflow}", "hello")
            [content] = (await host.client.read_resource(uri)).contents
            assert isinstance(content, mcp_types.TextResourceContents)
            assert json.loads(content.text)
        for uri in listed:
            assert (await host.client.read_resource(uri)).contents
        with pytest.raises(MCPError, match="Resource 'nerve://other' not found"):
            await host.client.read_resource("nerve://other")
        with pytest.raises(MCPError, match="Workflow run 'gone' not found"):
            await host.client.read_resource("nerve://runs/gone")


async def test_each_workflow_can_be_a_tool_with_its_schema(connect: Connect) -> None:
    async with connect() as host:
        names = {tool.name for tool in (await host.client.list_tools()).tools}
        assert "run_workflow_hello" not in names
    async with connect(workflow_tools=True) as host:
        tools = {tool.name: tool for tool in (await host.client.list_tools()).tools}
        buy = tools["run_workflow_buy"].input_schema
        assert buy["required"] == ["input", "params"]
        assert buy["properties"]["input"]["properties"]["count"]["type"] == "integer"
        assert buy["properties"]["params"]["required"] == ["fast"]
        assert tools["run_workflow_hello"].input_schema["required"] == []
        run = await host.call("run_workflow_buy", input={"item": "tea"}, params={"fast": True})
        assert (run["state"], run["result"]) == ("completed", {"item": "tea", "fast": True})
        assert (await host.fail("run_workflow_buy", input={}, params={"fast": True}))["code"] == "refused"
        assert (await host.fail("run_workflow_gone"))["code"] == "not_found"


def test_the_name_of_a_tool_is_accepted_by_all_hosts() -> None:
    names = [tool_name(each) for each in ("a b", "ä.b", "x" * 200, "x" * 201)]
    assert len({*names}) == 4
    assert all(len(name) <= MAX_TOOL_NAME_CHARS for name in names)
    assert all(name.replace("-", "").replace("_", "").isalnum() and name.isascii() for name in names)


async def test_read_only_tools_say_so(connect: Connect) -> None:
    async with connect() as host:
        tools = {tool.name: tool.annotations for tool in (await host.client.list_tools()).tools}
    changing = {name for name, hints in tools.items() if hints is None or not hints.read_only_hint}
    assert changing == {"start_run", "send_message", "answer_gate", "stop_run"}
