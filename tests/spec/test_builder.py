"""Every kind of node, built from a spec and run."""

from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.core.nodes import FunctionNode
from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider
from spec.support import loaded, outcome


@pytest.fixture
def session() -> Session:
    session = Session(providers={"claude": ScriptedProvider(lambda call: f"<{call.prompt}>")})
    FunctionNode("upper", session, lambda context: str(context.input).upper())
    FunctionNode("echo", session, lambda context: context.input)

    def broken(context: Any) -> Any:
        raise RuntimeError("it broke")

    FunctionNode("broken", session, broken)
    return session


def transform(expression: str, **more: Any) -> dict[str, Any]:
    return {"kind": "transform", "expression": expression, **more}


def call(target: str, **more: Any) -> dict[str, Any]:
    return {"kind": "call", "target": target, **more}


def sequence(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "sequence", "steps": list(steps), **more}


async def test_a_call_receives_the_previous_output(session: Session) -> None:
    assert await outcome(session, call("upper"), "hi") == "HI"


async def test_the_input_of_a_call_can_contain_templates(session: Session) -> None:
    body = call("echo", input={"text": "{{ input }}!", "n": "{{ 1 + 1 }}", "plain": 3})
    assert await outcome(session, body, "hi") == {"text": "hi!", "n": 2, "plain": 3}


async def test_a_sequence_passes_each_output_to_the_next_step(session: Session) -> None:
    assert await outcome(session, sequence(call("upper"), transform("given + '!'")), "hi") == "HI!"


async def test_a_failed_step_ends_the_sequence_and_the_run(session: Session) -> None:
    with pytest.raises(WorkflowFailed, match="it broke"):
        await outcome(session, sequence(call("broken"), call("upper")))


async def test_later_steps_see_how_earlier_ones_ended(session: Session) -> None:
    body = sequence(
        call("upper", id="first"),
        transform("[steps.first.status, steps.first.output, results.first, context.first.success]"),
    )
    assert await outcome(session, body, "a") == ["completed", "A", "A", True]


async def test_a_step_with_a_false_condition_is_skipped_and_emits_an_event(session: Session) -> None:
    body = sequence(call("broken", id="maybe", when="input === 'yes'"), transform("steps.maybe.status"))
    assert await outcome(session, body, "no") == "skipped"


async def test_a_skipped_step_passes_its_input_through(session: Session) -> None:
    assert await outcome(session, sequence(call("upper", when="false"), transform("given")), "x") == "x"


async def test_a_failure_can_be_skipped(session: Session) -> None:
    body = sequence(call("broken", id="risky", on_error="skip"), transform("steps.risky.status"))
    assert await outcome(session, body) == "skipped"


async def test_a_skipped_failure_is_seen_as_a_failure(session: Session) -> None:
    told = "[steps.ID.success, steps.ID.error, context.ID.success, context.ID.error, results.ID]"
    body = sequence(call("broken", id="risky", on_error="skip"), transform(told.replace("ID", "risky")))
    assert await outcome(session, body) == [False, "it broke", False, "it broke", None]
    body = sequence(call("upper", id="idle", when="false"), transform(told.replace("ID", "idle")))
    assert await outcome(session, body, "in") == [True, None, True, None, "in"]


async def test_another_node_can_handle_a_failure(session: Session) -> None:
    body = sequence(call("broken", id="risky", on_error=transform("'saved'")), transform("results.risky"))
    assert await outcome(session, body) == "saved"


@pytest.mark.parametrize(
    ("step", "ends"),
    [
        ({"kind": "wait", "seconds": 60}, "late"),
        (call("broken"), "failed"),
        (sequence({"kind": "wait", "seconds": 60}) | {"timeout": 0.01}, "failed"),
    ],
    ids=["its own time", "a failure", "the time of a part"],
)
async def test_a_sequence_has_a_handler_for_its_own_timeout(
    session: Session, step: dict[str, Any], ends: str
) -> None:
    handlers = {"on_timeout": transform("'late'"), "on_error": transform("'failed'")}
    timed = sequence(step) | {"timeout": 0.2, **handlers}
    assert await outcome(session, timed) == ends


async def test_a_timeout_can_be_skipped(session: Session) -> None:
    timed = sequence({"kind": "wait", "seconds": 60}) | {"id": "t", "timeout": 0.01, "on_timeout": "skip"}
    body = sequence(timed, transform("[steps.t.status, steps.t.error]"))
    assert await outcome(session, body) == ["skipped", "timed out after 0.01 s"]


async def test_a_step_is_retried_as_often_as_it_says(session: Session) -> None:
    tries: list[int] = []

    def flaky(context: Any) -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return "done"

    FunctionNode("flaky", session, flaky)
    assert await outcome(session, call("flaky", retry={"attempts": 3, "delay": 0})) == "done"
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("message", "retry", "attempts"),
    [
        ("HTTP 503", {"on_text": ["503", "timeout"]}, 3),
        ("read TimeOut", {"on_text": ["503", "timeout"]}, 3),
        ("HTTP 404", {"on_text": ["503", "timeout"]}, 1),
        ("HTTP 503 Forbidden", {"on_text": ["503"], "not_on_text": ["forbidden"]}, 1),
        ("HTTP 404", {"not_on_text": ["forbidden"]}, 3),
        ("HTTP 503", {"on_text": ["503"], "on": ["TimeoutError"]}, 1),
        ("HTTP 503", {"on_text": ["503"], "on": ["RuntimeError"]}, 3),
    ],
)
async def test_the_text_of_an_error_decides_whether_a_step_is_retried(
    session: Session, message: str, retry: dict[str, Any], attempts: int
) -> None:
    tries: list[int] = []

    def failing(context: Any) -> str:
        tries.append(1)
        raise RuntimeError(message)

    FunctionNode("failing", session, failing)
    with pytest.raises(WorkflowFailed):
        await outcome(session, call("failing", retry={"attempts": 3, "delay": 0, **retry}))
    assert len(tries) == attempts


@pytest.mark.parametrize(("text", "lines"), [("gone", "x\nx\n"), ("went", "x\n")])
async def test_the_standard_error_of_a_command_decides_whether_it_is_retried(
    session: Session, tmp_path: Path, text: str, lines: str
) -> None:
    command = f"echo x >> {tmp_path}/count; echo gone >&2; echo 'the last line' >&2; exit 1"
    retry = {"attempts": 2, "delay": 0, "on_text": [text]}
    with pytest.raises(WorkflowFailed):
        await outcome(session, {"kind": "bash", "command": command, "retry": retry})
    assert (tmp_path / "count").read_text() == lines


async def test_a_whole_sequence_is_retried_when_it_carries_the_retry(session: Session) -> None:
    tries: list[int] = []

    def flaky(context: Any) -> str:
        tries.append(1)
        return "ok" if len(tries) > 1 else {"success": False, "error": "not yet"}  # type: ignore[return-value]

    FunctionNode("flaky", session, flaky)
    body = sequence(call("upper"), call("flaky"), retry={"attempts": 2, "delay": 0})
    assert await outcome(session, body, "x") == "ok"


async def test_a_bash_command_gets_values_through_its_environment(session: Session) -> None:
    body = {"kind": "bash", "command": "printf %s {{ input }}"}
    assert await outcome(session, body, "$(id) 'quoted' *") == "$(id) 'quoted' *"


async def test_a_prompt_goes_to_the_provider_and_the_next_one_resumes_its_thread(session: Session) -> None:
    body = sequence(
        {"kind": "prompt", "id": "plan", "text": "Plan $USER_MESSAGE"},
        {"kind": "prompt", "id": "code", "text": "Code {{ results.plan }}"},
        {"kind": "prompt", "id": "test", "text": "Test", "thread": "fresh"},
    )
    assert await outcome(session, body, "tea") == "<Test>"
    calls = session.providers["claude"].calls  # type: ignore[attr-defined]
    assert [call.prompt for call in calls] == ["Plan tea", "Code <Plan tea>", "Test"]
    assert calls[0].resume is None
    assert calls[1].resume is not None
    assert calls[2].resume is None


async def test_a_prompt_for_a_node_of_the_session_is_its_text(session: Session) -> None:
    assert await outcome(session, {"kind": "prompt", "agent": "upper", "text": "say {{ input }}"}, "it") == (
        "SAY IT"
    )


async def test_a_gate_gives_the_answer_and_whether_it_approves(session: Session) -> None:
    body = sequence(
        {"kind": "gate", "id": "ok", "prompt": "Ship {{ input }}?", "choices": ["yes", "no"]},
        transform("[steps.ok.output, steps.ok.attributes.approved]"),
    )
    run = await session.start(loaded(session, body).name, "it")
    gate = await run.next_gate()
    assert (gate.prompt, gate.choices) == ("Ship it?", ["yes", "no"])
    await run.answer("yes")
    assert await run.wait() == ["yes", True]


async def test_a_gate_uses_its_default_after_a_timeout(session: Session) -> None:
    body = {"kind": "gate", "choices": ["yes", "no"], "timeout": 0, "default": "no"}
    assert await outcome(session, body) == "no"


async def test_a_wait_for_seconds_ends_after_that_time(session: Session) -> None:
    assert (
        await outcome(session, sequence({"kind": "wait", "seconds": "0.001 * 1"}, transform("given")), 7) == 7
    )


async def test_a_while_repeats_while_its_condition_holds(session: Session) -> None:
    body = {"kind": "while", "condition": "given < 5", "body": transform("given + 1")}
    assert await outcome(session, body, 0) == 5


async def test_a_while_that_reaches_its_bound_has_failed(session: Session) -> None:
    body = {"kind": "while", "condition": "true", "body": transform("given + 1"), "max_iterations": 3}
    with pytest.raises(WorkflowFailed, match="max_iterations=3"):
        await outcome(session, body, 0)


async def test_a_loop_repeats_until_its_condition_holds(session: Session) -> None:
    body = {"kind": "loop", "id": "grow", "until": "given >= 3", "body": transform("given + 1")}
    assert await outcome(session, body, 0) == 3


@pytest.mark.parametrize(
    "kind", [{"kind": "loop", "times": 3}, {"kind": "while", "condition": "iteration < 3"}]
)
async def test_the_body_of_a_loop_can_read_the_iteration(session: Session, kind: dict[str, Any]) -> None:
    pairs = {"kind": "map", "over": "[7]", "body": transform("given + '.' + iteration")}
    inner = {"kind": "loop", "times": 2, "body": transform("given + iteration")}
    beside = {"kind": "parallel", "branches": [transform("iteration", when="iteration > 0", id="a")]}
    assert await outcome(session, {**kind, "body": beside}) == {"a": 2}
    seen = sequence(transform("given + iteration + ','", id="t"), inner, transform("given + ';' + iteration"))
    assert await outcome(session, {**kind, "body": seen}, "") == "0,01;01,01;12,01;2"
    assert await outcome(session, {**kind, "body": pairs}) == ["7.2"]
    again = sequence(transform("[...(given || []), iteration]"), call("flaky"))
    turns: list[Any] = []

    def flaky(context: Any) -> Any:
        turns.append(context.input)
        if len(turns) == 2:
            raise RuntimeError("once")
        return context.input

    FunctionNode("flaky", session, flaky)
    retried = {**kind, "body": again, "retry": {"attempts": 2, "delay": 0}}
    assert await outcome(session, retried) == [0, 1, 2]


async def test_a_goto_leaves_a_loop_in_a_loop(session: Session) -> None:
    leave = {"kind": "branch", "condition": "iteration === 1", "then": {"kind": "goto", "state": "done"}}
    inner = {"kind": "loop", "until": "false", "body": sequence(transform("iteration"), leave)}
    loop = {"kind": "loop", "until": "false", "body": inner}
    states = [{"name": "work", "body": loop}, {"name": "done", "body": transform("'left'")}]
    assert await outcome(session, {"kind": "machine", "states": states}) == "left"


async def test_the_times_of_a_loop_can_be_computed(session: Session) -> None:
    body = {"kind": "loop", "times": "inputs.n * 2", "body": transform("given + 1")}
    inputs = {"n": {"type": "integer", "default": 2}}
    assert await outcome(session, body, 0, inputs=inputs) == 4


async def test_a_branch_runs_one_of_two_nodes(session: Session) -> None:
    ways = {"then": transform("'big'"), "otherwise": transform("'small'")}
    body = {"kind": "branch", "condition": "input > 1", **ways}
    assert [await outcome(session, body, n) for n in (1, 2)] == ["small", "big"]


async def test_a_switch_takes_the_case_of_its_key(session: Session) -> None:
    body = {"kind": "switch", "key": "input", "cases": {"2": transform("'two'")}, "default": transform("'?'")}
    assert [await outcome(session, body, n) for n in (2, 3)] == ["two", "?"]


async def test_a_map_runs_its_body_for_every_item_in_a_separate_scope(session: Session) -> None:
    body = {
        "kind": "map",
        "over": "input",
        "body": sequence(call("upper", id="up"), transform("results.up + index + item")),
    }
    assert await outcome(session, body, ["a", "b"]) == ["A0a", "B1b"]


async def test_a_reduce_folds_a_list_with_an_expression(session: Session) -> None:
    body = {"kind": "reduce", "over": "[3, 4]", "initial": 1, "expression": "acc + item * index"}
    assert await outcome(session, body) == 5


async def test_a_parallel_gives_the_outputs_of_its_branches_by_their_ids(session: Session) -> None:
    body = {"kind": "parallel", "branches": [call("upper", id="up"), transform("1", id="one")]}
    assert await outcome(session, body, "x") == {"up": "X", "one": 1}


async def test_a_parallel_is_a_success_when_enough_branches_are(session: Session) -> None:
    branches = [call("broken", id="bad"), call("upper", id="good")]
    body = sequence(
        {"kind": "parallel", "id": "both", "branches": branches, "require": 1}, transform("given")
    )
    assert await outcome(session, body, "x") == {"bad": None, "good": "X"}


async def test_a_failed_parallel_names_itself_and_not_a_branch(session: Session) -> None:
    branches = [call("broken", id="bad"), call("upper", id="good")]
    with pytest.raises(WorkflowFailed, match="'both': 1 of 2 succeeded"):
        await outcome(session, {"kind": "parallel", "id": "both", "branches": branches}, "x")


async def test_a_graph_runs_its_steps_in_order_of_what_they_depend_on(session: Session) -> None:
    steps = [
        transform("steps.a.output + given", id="b", depends_on=["a"]),
        call("upper", id="a"),
    ]
    assert await outcome(session, {"kind": "graph", "steps": steps}, "x") == "XX"


async def test_a_machine_follows_its_transitions(session: Session) -> None:
    states = [
        {"name": "count", "body": transform("given + 1", id="n"),
         "next": [{"when": "results.n < 3", "to": "count"}, {"to": "tell"}]},
        {"name": "tell", "body": transform("'reached ' + given")},
    ]  # fmt: skip
    assert await outcome(session, {"kind": "machine", "states": states}, 0) == "reached 3"


async def test_a_failed_state_follows_on_error(session: Session) -> None:
    states = [
        {"name": "try", "body": call("broken"), "on_error": "mend", "next": [{"to": "never"}]},
        {"name": "mend", "body": transform("'mended'")},
        {"name": "never", "body": call("broken"), "next": [{"to": "mend"}]},
    ]
    assert await outcome(session, {"kind": "machine", "states": states}) == "mended"


async def test_a_remembered_failure_is_the_result_of_the_machine(session: Session) -> None:
    told: list[Any] = []
    FunctionNode("tell", session, lambda context: told.append(context.input))
    states = [
        {"name": "try", "body": call("broken"), "after_failure": "remember", "next": [{"to": "report"}]},
        {"name": "report", "body": call("tell", input="all")},
    ]
    with pytest.raises(WorkflowFailed, match="it broke"):
        await outcome(session, {"kind": "machine", "states": states})
    assert told == ["all"]


async def test_a_goto_leaves_loops_and_branches_for_its_state(session: Session) -> None:
    leave = {"kind": "branch", "condition": "given >= 2", "then": {"kind": "goto", "state": "done"}}
    loop = {"kind": "loop", "until": "false", "body": sequence(transform("given + 1"), leave)}
    states = [{"name": "work", "body": loop}, {"name": "done", "body": transform("'left at ' + given")}]
    assert await outcome(session, {"kind": "machine", "states": states}, 0) == "left at 2"


async def test_an_emit_node_emits_an_event_and_passes_its_input_through(session: Session) -> None:
    body = sequence({"kind": "emit", "event": "progress", "data": {"at": "{{ input }}"}}, transform("given"))
    run = await session.start(loaded(session, body).name, 5)
    assert await run.wait() == 5
    assert [event.data for event in run.events if event.event_type == "progress"] == [{"at": 5}]


async def test_a_workflow_is_called_as_a_child_with_its_parameters(session: Session) -> None:
    loaded(session, transform("inputs.x + given"), inputs={"x": {"type": "integer"}})
    child = {"kind": "workflow", "workflow": "flow", "input": 1, "params": {"x": 2}}
    run = await session.start(loaded(session, sequence(child, transform("given")), name="parent").name)
    assert await run.wait() == 3


async def test_expectations_are_checked_before_a_step_succeeds(session: Session, tmp_path: Any) -> None:
    session.project = tmp_path
    write = {"kind": "bash", "command": "printf x > made.txt", "expect": [{"file": "made.txt"}]}
    assert await outcome(session, write) == ""
    claim = {"kind": "bash", "command": "true", "expect": [{"file": "not.txt"}]}
    with pytest.raises(WorkflowFailed, match=r"Expected file not.txt, but it does not exist"):
        await outcome(session, claim)


async def test_a_condition_on_the_output_can_be_expected_too(session: Session) -> None:
    with pytest.raises(WorkflowFailed, match="Expected output === 'HO', but it is false"):
        await outcome(session, call("upper", expect=[{"condition": "output === 'HO'"}]), "hi")


SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


async def test_an_output_can_be_expected_to_fit_a_schema(session: Session) -> None:
    good = transform("({ok: true})") | {"expect": [{"schema": SCHEMA}]}
    assert await outcome(session, good) == {"ok": True}
    bad = transform("({ok: 1})") | {"expect": [{"schema": SCHEMA}]}
    told = r"The output does not match its schema: 1 is not of type 'boolean' at \['ok'\]"
    with pytest.raises(WorkflowFailed, match=told):
        await outcome(session, bad)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"ok": true}', ""),
        (
            '{"ok": 1}',
            "Expected file made.json, but it does not match its schema: 1 is not of type 'boolean'",
        ),
        ("{", "Expected file made.json, but it is not valid JSON"),
        ("", "Expected file made.json, but it is empty"),
    ],
)
async def test_the_json_in_a_file_can_be_expected_to_fit_a_schema(
    session: Session, tmp_path: Any, written: str, told: str
) -> None:
    session.project = tmp_path
    checks = [{"file": "made.json", "schema": SCHEMA}]
    write = {"kind": "bash", "command": f"printf '{written}' > made.json", "expect": checks}
    if not told:
        assert await outcome(session, write) == ""
        return
    with pytest.raises(WorkflowFailed, match=told):
        await outcome(session, write)


async def test_a_schema_cannot_reference_other_documents(session: Session) -> None:
    body = transform("1") | {"expect": [{"schema": {"$ref": "http://127.0.0.1:9/schema.json"}}]}
    with pytest.raises(WorkflowFailed, match="the schema contains an unresolvable reference"):
        await outcome(session, body)


@pytest.mark.parametrize("check", [{"condition": "output > 1"}, {"schema": {"type": "number", "minimum": 2}}])
async def test_a_run_that_failed_at_a_check_can_be_retried(session: Session, check: dict[str, Any]) -> None:
    tries: list[str] = []
    FunctionNode("first", session, lambda context: tries.append("first"))
    FunctionNode("count", session, lambda context: tries.append("count") or tries.count("count"))
    workflow = loaded(session, sequence(call("first"), call("count", expect=[check])))
    failed = await session.start(workflow.id)
    with pytest.raises(
        WorkflowFailed, match=r"Expected output > 1, but it is false|The output does not match its schema"
    ):
        await failed.wait()
    assert await (await session.retry(failed.run_id)).wait() == 2
    assert tries == ["first", "count", "count"]


async def test_a_retry_repeats_the_step_and_its_checks(session: Session) -> None:
    tries: list[int] = []
    FunctionNode("count", session, lambda context: tries.append(1) or len(tries))
    body = call("count", expect=[{"condition": "output > 1"}], retry={"attempts": 3, "delay": 0})
    assert await outcome(session, body) == 2


async def test_an_expression_that_cannot_be_evaluated_fails_its_step_and_points_at_it(
    session: Session,
) -> None:
    with pytest.raises(WorkflowFailed, match=r"\^"):
        await outcome(session, transform("given.a.b"), {})


async def test_a_prompt_for_another_provider_starts_a_new_conversation() -> None:
    claude, codex = ScriptedProvider(lambda call: "c"), ScriptedProvider(lambda call: "x")
    session = Session(providers={"claude": claude, "codex": codex})
    names = ["codex", "claude", "codex", "claude"]
    steps = [{"kind": "prompt", "text": f"{n}", "provider": name} for n, name in enumerate(names)]
    await outcome(session, sequence(*steps))
    for provider in (claude, codex):
        first, second = provider.calls
        assert first.resume is None
        assert second.resume == first.thread


async def test_a_provider_is_found_by_its_registered_name() -> None:
    provider = ScriptedProvider(["hi"])
    session = Session(providers={"claude-code": provider})
    assert await outcome(session, {"kind": "prompt", "agent": "claude-code", "text": "x"}) == "hi"
