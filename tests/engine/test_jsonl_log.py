"""The JSONL log: complete lines, in order, without gaps, and never blocking a run."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve import FunctionNode, Graph, Session, WorkflowEvent, WorkflowRun
from nerve.agents import AgentNode
from nerve.core.nodes.control import LoopNode
from nerve.core.step_names import step_name
from nerve.core.workflow import Workflow
from nerve.engine.jsonl_log import JsonlLog, log_file_path
from nerve.testing import ScriptedProvider

pytestmark = pytest.mark.local("looks at log files, which only the local engine writes")

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


@pytest.fixture
def session():
    return Session(name="test")


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".archon" / "logs" / "run-1.jsonl"


def event(seq, type, path="", **data):
    return WorkflowEvent("run-1", "feature", type, data, AT, seq=seq, path=path)


RUN = [
    event(1, "workflow_started", input="Add é"),
    event(2, "node_started", "/plan", node_id="plan"),
    event(3, "output_chunk", "/plan", stream="assistant", text="A plan"),
    event(4, "tool_call", "/plan", name="Read", input={"file": "a.py"}),
    event(5, "node_completed", "/plan", node_id="plan", success=True),
    event(6, "node_started", "/build", node_id="build"),
    event(7, "node_error", "/build", node_id="build", success=False, error="no disk"),
    event(8, "workflow_failed", error="build: no disk"),
]


def written(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def fields(path, *names):
    return [tuple(line.get(name) for name in names) for line in written(path)]


async def ran(session, workflow, log, given="Add login"):
    run = WorkflowRun(workflow, given, event_sink=log)
    await run.start()
    await asyncio.gather(run.wait(), return_exceptions=True)
    return run


@pytest.mark.requirement("S3-22")
@pytest.mark.requirement("S3-23")
def test_a_run_is_logged_in_the_documented_format(path):
    log = JsonlLog(path, "feature-development")
    for one in RUN:
        log.emit(one)
    common = {"workflow_id": "run-1", "ts": "2026-01-02T03:04:05.678Z"}
    plan, build = {"step": "plan", "step_index": 0}, {"step": "build", "step_index": 1}
    assert written(path) == [
        {
            "type": "workflow_start",
            "workflow_name": "feature-development",
            "content": "Add é",
            "seq": 1,
            **common,
        },
        {"type": "step_start", **plan, "seq": 2, **common},
        {"type": "assistant", **plan, "content": "A plan", "seq": 3, **common},
        {"type": "tool", **plan, "tool_name": "Read", "tool_input": {"file": "a.py"}, "seq": 4, **common},
        {"type": "step_complete", **plan, "seq": 5, **common},
        {"type": "step_start", **build, "seq": 6, **common},
        {"type": "step_error", **build, "error": "no disk", "seq": 7, **common},
        {"type": "workflow_error", "error": "build: no disk", "seq": 8, **common},
    ]


@pytest.mark.requirement("S3-23")
@pytest.mark.requirement("D3-8")
async def test_a_real_run_of_agents_is_logged_and_complete_when_waited_for(session, path):
    answers = {
        "plan": ["Thinking", {"tool": "Read", "input": {"file": "x"}}, "Done"],
        "build": OSError("full"),
    }
    AgentNode("plan", session, ScriptedProvider(answers))
    AgentNode("build", session, ScriptedProvider(answers))

    async def body(ctx):
        await ctx.run("plan", "plan it")
        await ctx.run("build", "build it")

    run = await ran(session, Workflow("feature", session, body), JsonlLog(path))
    assert fields(path, "type", "step", "step_index") == [
        ("workflow_start", None, None),
        ("step_start", "plan", 0),
        ("assistant", "plan", 0),
        ("tool", "plan", 0),
        ("assistant", "plan", 0),
        ("step_complete", "plan", 0),
        ("step_start", "build", 1),
        ("step_error", "build", 1),
        ("workflow_error", None, None),
    ]
    assert written(path)[0]["content"] == "Add login"
    assert written(path)[0]["workflow_name"] == "feature"
    assert "full" in written(path)[-2]["error"]
    assert {line["workflow_id"] for line in written(path)} == {run.run_id}
    assert [line["seq"] for line in written(path)] == sorted({line["seq"] for line in written(path)})


@pytest.mark.requirement("S3-22")
async def test_a_step_is_logged_under_its_own_name_not_its_agents(tmp_path):
    folder = tmp_path / ".archon"
    (folder / "workflows").mkdir(parents=True)
    steps = "{id: plan, prompt: Plan}, {id: implement, prompt: Do, depends_on: [plan]}"
    (folder / "workflows/feature.yaml").write_text(f"name: feature\ndescription: d\nnodes: [{steps}]\n")
    session = Session(providers={"claude": ScriptedProvider(["a plan", "done"])}, project=tmp_path)
    session.load(folder / "workflows/feature.yaml")
    run = await session.start("feature")
    await run.wait()
    assert fields(folder / f"logs/{run.run_id}.jsonl", "type", "step", "step_index")[1:-1] == [
        (type, step, index)
        for index, step in enumerate(["plan", "implement"])
        for type in ("step_start", "assistant", "step_complete")
    ]


async def test_a_fork_has_its_own_log_from_its_start(tmp_path):
    folder = tmp_path / ".archon"
    (folder / "workflows").mkdir(parents=True)
    steps = "{id: plan, prompt: Plan}, {id: implement, prompt: Do, depends_on: [plan]}"
    (folder / "workflows/feature.yaml").write_text(f"name: feature\ndescription: d\nnodes: [{steps}]\n")
    session = Session(providers={"claude": ScriptedProvider(["a plan", "done", "again"])}, project=tmp_path)
    session.load(folder / "workflows/feature.yaml")
    run = await session.start("feature")
    await run.wait()
    fork = await session.fork(run.run_id, at="/implement")
    assert await fork.wait() == "again"
    told = fields(folder / f"logs/{fork.run_id}.jsonl", "type", "step")
    assert told[0][0] == "workflow_start"
    assert [step for type, step in told if type == "step_complete"] == ["plan", "implement"]
    assert told[-1][0] == "workflow_complete"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/plan", "plan"),
        ("/loop/loop[2]/work[3]", "work"),
        ("/upload[fallback]", "upload"),
        ("/plan~expect", "plan"),
        ("/plan~again[2]", "plan"),
    ],
)
def test_the_name_of_a_step_is_the_last_of_its_path(path, name):
    assert step_name(path) == name


async def test_checks_are_not_logged_as_steps_and_fail_their_step(tmp_path):
    folder = tmp_path / ".archon"
    (folder / "workflows").mkdir(parents=True)
    first = "{id: plan, prompt: Plan, expect: [plan.md], retry: {attempts: 2, delay: 0}}"
    last = "{id: build, prompt: Build, expect: [{command: 'true'}], depends_on: [plan]}"
    (folder / "workflows/x.yaml").write_text(f"name: x\ndescription: d\nnodes: [{first}, {last}]\n")

    def answer(call):
        if len(provider.calls) == 2:
            file = folder / "artifacts" / run.run_id / "plan.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("a plan")
        return "said"

    provider = ScriptedProvider(answer)
    session = Session(providers={"claude": provider}, project=tmp_path)
    session.load(folder / "workflows/x.yaml")
    run = await session.start("x")
    await run.wait()
    assert fields(folder / f"logs/{run.run_id}.jsonl", "type", "step", "step_index")[1:-1] == [
        ("step_start", "plan", 0),
        ("assistant", "plan", 0),
        ("step_complete", "plan", 0),
        ("step_error", "plan", 0),
        ("step_start", "plan", 0),
        ("assistant", "plan", 0),
        ("step_complete", "plan", 0),
        ("step_start", "build", 1),
        ("assistant", "build", 1),
        ("step_complete", "build", 1),
    ]


async def test_control_nodes_are_not_logged_and_steps_inside_them_have_no_index(session, path):
    def echo(context):
        return context.input

    graph = Graph("chain", session)
    graph.chain(
        FunctionNode("first", session, echo),
        LoopNode("again", session, FunctionNode("inner", session, echo), times=2),
        FunctionNode("last", session, echo),
    )
    run = await ran(session, Workflow("graph", session, body=graph), JsonlLog(path))
    assert fields(path, "type", "step", "step_index") == [
        ("workflow_start", None, None),
        ("step_start", "first", 0),
        ("step_complete", "first", 0),
        ("step_start", "again", None),
        ("step_complete", "again", None),
        ("step_start", "again", None),
        ("step_complete", "again", None),
        ("step_start", "last", 1),
        ("step_complete", "last", 1),
        ("workflow_complete", None, None),
    ], run.events


async def test_command_output_and_emitted_events_are_not_logged(path):
    log = JsonlLog(path)
    log.emit(event(1, "workflow_started", input=None))
    log.emit(event(2, "output_chunk", "/make", stream="stdout", text="cc"))
    log.emit(event(3, "custom", "/make", text="cc"))
    log.emit(event(4, "gate_waiting", "/gate", prompt="?"))
    assert fields(path, "type", "content") == [("workflow_start", "")]


@pytest.mark.parametrize(("reason", "error"), [("not wanted", "not wanted"), ("", "cancelled")])
async def test_a_cancelled_run_is_an_error_with_the_reason(session, path, reason, error):
    async def body(ctx):
        await ctx.gate("Go on?")

    run = WorkflowRun(Workflow("asking", session, body), {"a": 1}, event_sink=JsonlLog(path))
    await run.start()
    await run.next_gate()
    await run.stop(reason)
    assert fields(path, "type", "content", "error") == [
        ("workflow_start", '{"a":1}', None),
        ("workflow_error", None, error),
    ]


@pytest.mark.parametrize(
    ("end", "type", "error"),
    [
        (event(3, "node_completed", "/a", success=True), "step_complete", None),
        (event(3, "node_completed", "/a", success=False, error="exit code 1"), "step_error", "exit code 1"),
        (event(3, "node_timeout", "/a", success=False, error="timed out"), "step_error", "timed out"),
        (event(3, "node_cancelled", "/a"), "step_error", "cancelled"),
        (event(3, "step_completed", "/a", success=True), "step_complete", None),
        (event(3, "step_failed", "/a", success=False, error="no"), "step_error", "no"),
    ],
)
@pytest.mark.requirement("D3-8")
def test_every_outcome_of_a_step_is_logged_by_its_kind(path, end, type, error):
    log = JsonlLog(path)
    log.emit(event(1, "workflow_started"))
    log.emit(event(2, "node_started", "/a", node_id="a"))
    log.emit(end)
    assert (written(path)[-1]["type"], written(path)[-1].get("error")) == (type, error)


def test_a_line_is_one_line_whatever_the_text(path):
    text = "a\nb\r\x0b\x0c\x1c\x85\u2028\u2029\ud800 \"'\\é😀"
    JsonlLog(path).emit(event(1, "workflow_started", input=text))
    assert written(path)[0]["content"] == text.replace("\ud800", "?")
    assert path.read_bytes().count(b"\n") == 1


@settings(max_examples=60)
@given(st.integers(0, len(RUN)), st.binary(max_size=20), st.booleans())
def test_after_a_crash_at_any_point_catching_up_gives_the_same_file(tmp_path_factory, count, rest, tidy):
    folder = tmp_path_factory.mktemp("logs")
    whole, broken = JsonlLog(folder / "whole"), JsonlLog(folder / "broken")
    whole.catch_up(RUN)
    for one in RUN[:count]:
        broken.emit(one)
    with (folder / "broken").open("ab") as file:
        file.write(b"{" + rest.replace(b"\n", b" ") + (b"\n" if tidy else b""))
    again = JsonlLog(folder / "broken")
    again.catch_up(RUN)
    assert (folder / "broken").read_bytes() == (folder / "whole").read_bytes()
    assert again.last_seq == len(RUN)


@pytest.mark.parametrize("count", range(1, len(RUN)))
def test_a_reopened_log_continues_after_the_last_number_without_earlier_events(path, tmp_path, count):
    first = JsonlLog(path)
    for one in RUN[:count]:
        first.emit(one)
    with path.open("a") as file:
        file.write('{"type": "step_st')
    again = JsonlLog(path)
    for one in RUN[max(0, count - 2) :]:
        again.emit(one)
    whole = JsonlLog(tmp_path / "whole")
    whole.catch_up(RUN)
    assert written(path) == written(tmp_path / "whole")


def test_catching_up_twice_changes_nothing(path):
    log = JsonlLog(path)
    log.catch_up(RUN)
    before = path.read_bytes()
    log.catch_up(RUN)
    for one in RUN:
        log.emit(one)
    JsonlLog(path).catch_up(RUN)
    assert path.read_bytes() == before


def test_foreign_lines_are_kept(path):
    path.parent.mkdir(parents=True)
    path.write_text('{"type": "note"}\n')
    JsonlLog(path).catch_up(RUN[:1])
    assert fields(path, "type") == [("note",), ("workflow_start",)]


async def test_a_run_that_resumes_after_a_restart_has_one_complete_log(tmp_path, path):
    async def body(ctx):
        one = await ctx.run("work", 1)
        await ctx.gate("Go on?")
        return [one["output"], (await ctx.run("work", 2))["output"]]

    def work(context):
        return context.input

    async with Session("test", tmp_path / "nerve.db") as session:
        FunctionNode("work", session, work)
        run = WorkflowRun(Workflow("body", session, body), "hello", event_sink=JsonlLog(path))
        await run.start()
        await run.next_gate()
    path.write_bytes(path.read_bytes()[:-7])
    async with Session("test", tmp_path / "nerve.db") as session:
        FunctionNode("work", session, work)
        Workflow("body", session, body)
        (run,) = await session.recover()
        log = JsonlLog(path)
        log.catch_up(run.events)
        run.sinks.append(log)
        await run.answer("yes")
        assert await run.wait() == [1, 2]
    assert fields(path, "type", "step_index") == [
        ("workflow_start", None),
        ("step_start", 0),
        ("step_complete", 0),
        ("step_start", 1),
        ("step_complete", 1),
        ("workflow_complete", None),
    ]


def blocked_by_a_file(tmp_path):
    (tmp_path / "logs").write_text("")
    return tmp_path / "logs" / "run-1.jsonl"


def a_folder(tmp_path):
    (tmp_path / "run-1.jsonl").mkdir()
    return tmp_path / "run-1.jsonl"


def a_link(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "run-1.jsonl").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "run-1.jsonl"


def a_pipe(tmp_path):
    os.mkfifo(tmp_path / "run-1.jsonl")
    return tmp_path / "run-1.jsonl"


@pytest.mark.requirement("S3-23")
@pytest.mark.parametrize("trouble", [blocked_by_a_file, a_folder, a_link, a_pipe])
async def test_a_log_that_cannot_be_written_is_reported_once_and_the_run_continues(
    session, tmp_path, caplog, trouble
):
    path = trouble(tmp_path)
    log = JsonlLog(path)
    FunctionNode("work", session, lambda context: context.input)

    async def body(ctx):
        return [(await ctx.run("work", n))["output"] for n in range(3)]

    run = await ran(session, Workflow("body", session, body), log)
    assert await run.wait() == [0, 1, 2]
    assert log.is_behind
    assert caplog.text.count("cannot write the log") == 1
    assert (
        "precious" in "".join(file.read_text() for file in tmp_path.glob("elsewhere"))
        or trouble is not a_link
    )


def test_a_log_that_could_not_be_written_has_no_gap_and_can_catch_up(path, caplog):
    path.parent.parent.mkdir()
    path.parent.write_text("in the way")
    log = JsonlLog(path)
    for one in RUN[:3]:
        log.emit(one)
    path.parent.unlink()
    for one in RUN[3:]:
        log.emit(one)
    assert not path.exists()
    log.catch_up(RUN)
    assert not log.is_behind
    assert [line["seq"] for line in written(path)] == list(range(1, 9))


def test_a_truncated_log_is_not_continued_with_a_gap(path):
    log = JsonlLog(path)
    for one in RUN[:4]:
        log.emit(one)
    path.write_text("")
    log.emit(RUN[4])
    assert log.is_behind
    log.catch_up(RUN)
    assert [line["seq"] for line in written(path)] == list(range(1, 9))


def test_an_event_that_cannot_be_logged_does_not_affect_the_run(path):
    log = JsonlLog(path)
    log.emit(event(1, "workflow_started", input=object()))
    assert log.is_behind


WRITER = """
import sys
from nerve import WorkflowEvent
from nerve.engine.jsonl_log import JsonlLog
log = JsonlLog(sys.argv[1])
for n in range(200):
    log.emit(WorkflowEvent("run-1", "w", "output_chunk", {"stream": "assistant", "text": "x" * 5000}))
"""


@pytest.mark.requirement("S3-23")
def test_lines_of_several_processes_and_threads_are_never_mixed(path):
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) for _ in range(3)]
    log = JsonlLog(path)

    def write():
        for _ in range(200):
            log.emit(event(0, "output_chunk", stream="assistant", text="y" * 3000))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    sizes = sorted(len(line["content"]) for line in written(path))
    assert sizes == [3000] * 600 + [5000] * 600


def test_two_logs_of_one_run_write_every_event_once(path):
    one, other = JsonlLog(path), JsonlLog(path)
    for happened in RUN:
        one.emit(happened)
        other.emit(happened)
    assert [line["seq"] for line in written(path)] == list(range(1, 9))


@pytest.mark.requirement("D3-1")
@pytest.mark.parametrize(
    "run_id",
    ["", ".", "..", "../x", "a/b", "/etc/x", "a\0b", "-rf", ".hidden", "a" * 129, "ä", "a\n", "CON:"],
)
def test_a_run_id_that_is_not_a_plain_name_never_becomes_a_file(tmp_path, run_id):
    with pytest.raises(ValueError, match="cannot name a log file"):
        log_file_path(tmp_path, run_id)


def test_a_plain_run_id_names_the_file(tmp_path):
    assert log_file_path(tmp_path, "019a-b.c_d") == tmp_path / "019a-b.c_d.jsonl"


def test_a_log_is_readable_only_by_its_owner(path):
    log = JsonlLog(path)
    log.emit(event(1, "workflow_started", input="a secret"))
    assert path.stat().st_mode & 0o777 == 0o600
