"""A shell command as a leaf."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.nodes.support import event_data, execute_node, execute_with_events, run_node, until
from nerve import BashNode, ExecutionContext, Session
from nerve.core.nodes import Graph, Retry

ECHO = 'cat; printf %s "$NERVE_INPUT" >&2'


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_the_output_is_stdout_and_the_attributes_have_the_exit_code(session: Session) -> None:
    result = await execute_node(BashNode("b", session, "echo out; echo err >&2"))
    assert result == {
        "success": True,
        "output": "out\n",
        "attributes": {"exit_code": 0, "stderr": "err\n"},
    }


@pytest.mark.requirement("S0-71")
async def test_without_a_command_the_input_is_the_command(session: Session) -> None:
    assert (await execute_node(BashNode(id="runner", session=session), "echo $((6 * 7))"))["output"] == "42\n"


@pytest.mark.parametrize("given", [None, True, 5, ["rm", "x"], {"a": 1}])
async def test_only_a_string_is_a_command(session: Session, tmp_path: Path, given: Any) -> None:
    result = await execute_node(BashNode("b", session, cwd=tmp_path), given)
    assert result.error_type == "ValueError"
    assert result.error.startswith(
        "without a command, the input of 'b' is the command and must be a string, got"
    )


async def test_it_runs_in_the_project_of_its_session(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    session = Session(project=tmp_path)
    for cwd, where in [(None, tmp_path), ("sub", tmp_path / "sub"), (Path("/"), Path("/"))]:
        result = await execute_node(BashNode(None, session, "pwd -P", cwd=cwd))
        assert result.output == f"{where.resolve()}\n"


async def test_an_empty_cwd_is_reported_as_missing(session: Session) -> None:
    result = await execute_node(BashNode("b", session, "pwd", cwd=""))
    assert result.error.endswith("No such file or directory: ''")


async def test_a_command_from_the_input_gets_no_stdin(session: Session) -> None:
    result = await execute_node(BashNode("b", session), "cat; echo ${NERVE_INPUT-unset}")
    assert result["output"] == "unset\n"


@pytest.mark.parametrize(
    ("given", "text"), [("text", "text"), (None, ""), ({"a": [1, "é"]}, '{"a":[1,"é"]}'), (5, "5")]
)
async def test_the_input_is_on_stdin_and_in_nerve_input(session: Session, given: Any, text: str) -> None:
    result = await execute_node(BashNode("b", session, f"set -u; {ECHO}"), given)
    assert (result["output"], result["attributes"]["stderr"]) == (text, text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@example("$(touch /tmp/pwned) `id` \"; rm -rf ~; ' \\ \n $NERVE_INPUT ${IFS} !! * \t")
@example("'; exit 7; '")
@example("\r\n\r\n")
@settings(max_examples=25, deadline=None)
async def test_any_input_text_is_passed_unchanged_and_never_executed(text: str) -> None:
    result = await execute_node(BashNode("b", Session(), ECHO), text)
    assert (result["output"], result["attributes"]["stderr"]) == (text, text)


@pytest.mark.parametrize("text", ["a\0b", "x" * 200_000])
async def test_an_input_that_does_not_fit_into_the_environment_is_on_stdin_only(
    session: Session, text: str
) -> None:
    result = await execute_node(BashNode("b", session, "wc -c; echo ${NERVE_INPUT-unset} >&2"), text)
    assert int(result["output"]) == len(text)
    assert result["attributes"]["stderr"] == "unset\n"


async def test_an_unpaired_surrogate_becomes_a_question_mark_both_ways(session: Session) -> None:
    result = await execute_node(BashNode("b", session, ECHO), "a\ud800b")
    assert (result["output"], result["attributes"]["stderr"]) == ("a?b", "a?b")


async def test_env_and_cwd_are_passed_to_the_command(session: Session, tmp_path: Path) -> None:
    node = BashNode("b", session, 'pwd; echo "$COLOUR"', cwd=tmp_path, env={"COLOUR": "sea green"})
    assert (await execute_node(node))["output"] == f"{tmp_path}\nsea green\n"


async def test_secrets_of_the_engine_are_not_passed_to_the_command(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    assert (await execute_node(BashNode("b", session, "echo ${SOME_API_KEY-none}")))["output"] == "none\n"


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("echo half; echo why >&2; exit 3", 3, "exit code 3: why"),
        ("echo half; exit 1", 1, "exit code 1"),
        ("echo half; kill -KILL $$", -9, "killed by signal 9"),
    ],
)
async def test_an_exit_code_that_is_not_zero_is_a_failed_result_with_its_output(
    session: Session, command: str, code: int, error: str
) -> None:
    result = await execute_node(BashNode("b", session, command))
    assert (result["success"], result.get("output")) == (False, "half\n")
    assert (result["error"], result["error_type"]) == (error, "ExitCode")
    assert result["attributes"]["exit_code"] == code


async def test_a_failure_has_the_end_of_a_long_last_line(session: Session) -> None:
    result = await execute_node(BashNode("b", session, "head -c 50000 /dev/zero | tr '\\0' e >&2; exit 1"))
    assert result.error == f"exit code 1: …{'e' * 1000}"
    assert len(result.attributes["stderr"]) == 50_000


async def test_a_missing_directory_is_a_failed_result(session: Session, tmp_path: Path) -> None:
    result = await execute_node(BashNode("b", session, "true", cwd=tmp_path / "none"))
    assert (result["success"], result["error_type"]) == (False, "FileNotFoundError")
    assert str(tmp_path / "none") in result["error"]


async def test_an_input_that_is_not_json_is_a_failed_result(session: Session) -> None:
    result = await execute_node(BashNode("b", session, "cat"), {"when": object()})
    assert (result["success"], result["error_type"]) == (False, "NotJson")
    assert "a value of type object at when" in result["error"]


async def test_a_command_with_a_nul_is_a_failed_result(session: Session) -> None:
    assert (await execute_node(BashNode("b", session), "echo \0"))["success"] is False


@pytest.mark.requirement("S1-31")
async def test_the_output_is_streamed_while_it_arrives(session: Session) -> None:
    first = "echo one; read -r go < <(sleep 600) & wait"
    graph = Graph("g", session).add_step(BashNode("b", session, first))
    session.register_workflow(graph)
    run = await session.start("g")
    await until(lambda: event_data(run.events, "output_chunk"))
    assert event_data(run.events, "output_chunk") == [{"stream": "stdout", "text": "one\n"}]
    assert not run.is_complete
    await run.stop()


async def test_without_a_run_the_output_is_streamed_too(session: Session) -> None:
    _, events = await execute_with_events(BashNode("b", session, "echo out; echo err >&2"))
    assert {data["stream"]: data["text"] for data in event_data(events, "output_chunk")} == {
        "stdout": "out\n",
        "stderr": "err\n",
    }


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_a_timeout_ends_the_whole_tree(session: Session, tmp_path: Path, in_a_run: bool) -> None:
    command = "(setsid sleep 600 & echo $! >> pids; wait) & echo $! >> pids; wait"
    pids: list[int] = []
    for seconds in (1, 4, 16, 64):  # a busy machine may need more time to start both
        graph = Graph(f"g{seconds}", session).add_step(
            BashNode(f"b{seconds}", session, f"rm -f pids; {command}", cwd=tmp_path),
            timeout=seconds,
            on_error="skip",
        )
        if in_a_run:
            await (await run_node(session, graph)).wait()
        else:
            skipped = (await execute_node(graph))["attributes"]["skipped"]
            assert skipped == f"timed out after {seconds} s"
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert not any(alive(pid) for pid in pids)
        if len(pids) == 2:
            break
    assert len(pids) == 2


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_all_attempts_of_a_step_share_an_idempotency_key_and_steps_do_not(
    session: Session, tmp_path: Path, in_a_run: bool
) -> None:
    note = 'echo "$NERVE_IDEMPOTENCY_KEY" >> keys; [ $(wc -l < keys) -ge 4 ]'
    graph = Graph("g", session)
    first = BashNode("a", session, note, cwd=tmp_path, retry=Retry(3, delay=0), on_error="skip")
    graph.chain(first, BashNode("b", session, note, cwd=tmp_path))
    await (await run_node(session, graph)).wait() if in_a_run else await execute_node(graph)
    keys = (tmp_path / "keys").read_text().split()
    assert keys == [keys[0]] * 3 + [keys[3]]
    assert keys[0] != keys[3]


async def test_a_nested_step_has_its_own_idempotency_key(session: Session, tmp_path: Path) -> None:
    note = 'echo "$NERVE_IDEMPOTENCY_KEY" >> keys'
    inner = Graph("inner", session).chain(*(BashNode(n, session, note, cwd=tmp_path) for n in ("a", "b")))
    await execute_node(Graph("outer", session).add_step(inner))
    keys = (tmp_path / "keys").read_text().split("\n")[:2]
    assert len(set(keys)) == 2
    assert all(keys)


async def test_a_context_without_a_run_passes_on_its_idempotency_key(session: Session) -> None:
    context = ExecutionContext(session, run_id="r1")
    node = BashNode("b", session, 'echo "$NERVE_IDEMPOTENCY_KEY $NERVE_RUN_ID"')
    assert (await node.execute(context))["output"] == f"{context.idempotency_key} r1\n"


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_output_prevents_an_idle_timeout(session: Session, in_a_run: bool) -> None:
    talking = BashNode("b", session, "for i in {1..12}; do echo $i; sleep 0.1; done", idle_timeout=1)
    graph = Graph("g", session).add_step(talking)
    output = (
        await (await run_node(session, graph)).wait() if in_a_run else (await execute_node(graph))["output"]
    )
    assert output.split()[-1] == "12"


async def test_endless_output_does_not_fill_the_journal(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.core.nodes.bash.MAX_STREAMED_CHARS", 100_000)
    talking = BashNode("b", session, "head -c 5000000 /dev/zero | tr '\\0' a; echo end")
    run = await run_node(session, Graph("g", session).add_step(talking))
    chunks = [data["text"] for data in event_data(run.events, "output_chunk")]
    assert sum(map(len, chunks)) < 110_000
    assert chunks[-1].endswith("more characters omitted]\n")
    assert (await run.wait()).endswith("aend\n")


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_omitted_output_prevents_an_idle_timeout_too(
    session: Session, in_a_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.core.nodes.bash.MAX_STREAMED_CHARS", 0)
    talking = BashNode("b", session, "for i in {1..12}; do echo $i; sleep 0.1; done", idle_timeout=1)
    graph = Graph("g", session).add_step(talking)
    output = (
        await (await run_node(session, graph)).wait() if in_a_run else (await execute_node(graph))["output"]
    )
    assert output.split()[-1] == "12"


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_silence_expires_an_idle_timeout(session: Session, in_a_run: bool) -> None:
    silent = BashNode("b", session, "echo hello; sleep 600", idle_timeout=0.3)
    graph = Graph("g", session).add_step(silent)
    error = (
        (await run_node(session, graph)).to_info().error if in_a_run else (await execute_node(graph))["error"]
    )
    assert error == "step 'b' failed: silent for 0.3 s"


async def test_cancelling_ends_the_tree(session: Session, tmp_path: Path) -> None:
    task = asyncio.create_task(execute_node(BashNode("b", session, "echo $$ > pid; sleep 600", cwd=tmp_path)))
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int((tmp_path / "pid").read_text()))


def test_the_helper_detects_a_running_process() -> None:
    assert alive(os.getpid())
