"""The dataspace of a session: facts that runs wait for, and facts that define and start workflows."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.conftest import until
from nerve import FunctionNode, Session, WorkflowContext
from nerve.core.workflow import WorkflowState
from nerve.dataspace import Lagged, Record
from nerve.errors import NotJson, WorkflowFailed
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

WAITING = """(workflow waits
  (state start (wait (signal go :key @workflow-id)) (goto done))
  (state done (log "went on") (terminal)))"""


def instance(**named: Any) -> Record:
    return Record("workflow-instance", (), {"definition": "waits", "label": "one", **named})


def definition(source: str = WAITING, **named: Any) -> Record:
    return Record("workflow-definition", (), {"id": "waits", "notation": "lisp", "source": source, **named})


def on(file: Path | None = None) -> Session:
    """A session with a Python workflow that waits for a signal."""
    session = Session("s", file, providers={"claude": ScriptedProvider([])})
    FunctionNode("echo", session, lambda context: context.input)

    @session.workflow
    async def listens(ctx: WorkflowContext) -> Any:
        value = await ctx.wait_signal("go", key=ctx.params.get("key"), timeout=ctx.params.get("timeout"))
        return (await ctx.run("echo", value))["output"]

    @session.workflow
    async def tells(ctx: WorkflowContext) -> Any:
        await ctx.assert_fact('(note "a" :of 1)')
        await ctx.assert_fact(["note", "b", {"of": 1}])
        await ctx.assert_fact(Record("note", ("b",), {"of": 1}))
        count = await ctx.retract_fact('(note "a" ...)')
        return [count, await ctx.gate("Go on?")]

    return session


async def ended(run: Any) -> Any:
    async with asyncio.timeout(60):
        return await run.wait()


def states(session: Session, run: Any) -> list[Any]:
    (fact,) = session.dataspace.facts(["workflow/state", {"run": run.run_id}])
    return [fact.record.get("status"), fact.record.get("awaits")]


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-04")
async def test_a_signal_settles_a_wait_whether_it_comes_before_or_after() -> None:
    session = on()
    await session.signal("go", value=1)
    assert await ended(await session.start("listens")) == 1
    await session.dataspace.retract("(signal go)")
    run = await session.start("listens")
    await until(lambda: run.state is WorkflowState.WAITING)
    await session.signal("go", value=2)
    assert await ended(run) == 2


@pytest.mark.requirement("S4-07")
async def test_a_signal_matches_by_key_and_a_wait_without_a_key_matches_all() -> None:
    session = on()
    keyed, any_key = await session.start("listens", params={"key": "a"}), await session.start("listens")
    await until(lambda: keyed.state is any_key.state is WorkflowState.WAITING)
    await session.signal("go", key="b", value=1)
    assert await ended(any_key) == 1
    assert keyed.state is WorkflowState.WAITING
    await session.signal("go", key="a", value=2)
    assert await ended(keyed) == 2


async def test_a_newer_signal_replaces_the_older_and_waits_do_not_consume_it() -> None:
    session = on()
    await session.signal("go", value=1)
    await session.signal("go", value=2)
    runs = [await session.start("listens") for _ in range(2)]
    assert [await ended(run) for run in runs] == [2, 2]
    assert [fact.record.get("value") for fact in session.dataspace.facts("signal")] == [2]


async def test_one_signal_wakes_all_waiting_runs() -> None:
    session = on()
    runs = [await session.start("listens") for _ in range(3)]
    await until(lambda: all(run.state is WorkflowState.WAITING for run in runs))
    await session.signal("go", value=7)
    assert [await ended(run) for run in runs] == [7, 7, 7]


async def test_a_wait_for_a_signal_times_out() -> None:
    run = await on().start("listens", params={"timeout": 0.01})
    with pytest.raises(TimeoutError):
        await ended(run)


@pytest.mark.requirement("S4-14")
async def test_facts_survive_a_restart_and_wake_a_run_that_waited_before_it(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        run = await session.start("listens")
        await until(lambda: run.state is WorkflowState.WAITING)
        await session.dataspace.assert_fact("(note kept)")
    async with on(tmp_path / "nerve.db") as session:
        await session.recover()
        assert [str(fact.record) for fact in session.dataspace.facts("note")] == ["(note kept)"]
        await session.signal("go", value=3)
        again = session.get_workflow_run(run.run_id)
        assert await ended(again) == 3


async def test_a_fact_asserted_before_recovery_settles_the_wait(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        run = await session.start("listens")
        await until(lambda: run.state is WorkflowState.WAITING)
    async with on(tmp_path / "nerve.db") as session:
        await session.signal("go", value=4)
    async with on(tmp_path / "nerve.db") as session:
        (again,) = await session.recover()
        assert await ended(again) == 4


async def test_evicted_runs_are_woken_by_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerve.engine.idle_runs.MAX_IDLE_RUNS", 1)
    async with on(tmp_path / "nerve.db") as session:
        runs = [await session.start("listens") for _ in range(4)]
        await until(lambda: len(session.engine.executors) == 1)
        await session.signal("go", value=5)
        assert [await ended(run) for run in runs] == [5] * 4


@pytest.mark.parametrize("restart", [False, True])
async def test_a_paused_run_keeps_a_signal_until_it_resumes(tmp_path: Path, restart: bool) -> None:
    session = on(tmp_path / "nerve.db")
    run: Any = await session.start("listens")
    await until(lambda: run.state is WorkflowState.WAITING)
    await run.pause()
    if restart:
        await session.close()
        session = on(tmp_path / "nerve.db")
        (run,) = await session.recover()
    async with session:
        await session.signal("go", value=6)
        await session.dataspace.retract("(signal go)")
        assert run.state is WorkflowState.PAUSED
        await run.resume()
        assert await ended(run) == 6


async def test_the_subscriptions_of_a_run_are_removed_with_it() -> None:
    session = on()
    run = await session.start("listens")
    await until(lambda: run.state is WorkflowState.WAITING)
    await run.stop()
    assert session.engine.dataspace._watches == {}


async def test_a_workflow_function_asserts_and_retracts_once(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        run = await session.start("tells")
        await run.next_gate()
        assert [str(fact.record) for fact in session.dataspace.facts("note")] == ["(note b :of 1)"]
        await session.dataspace.retract("(note ...)")
    async with on(tmp_path / "nerve.db") as session:
        (run,) = await session.recover()
        await run.answer("yes")
        assert await ended(run) == [1, "yes"]
        assert session.dataspace.facts("note") == []


# -- observers -------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-14")
async def test_an_observer_receives_existing_facts_and_then_each_change_once() -> None:
    space = on().dataspace
    await space.assert_fact("(note a)")
    seen = space.observe("(note ?name)")
    await space.assert_fact("(note b)")
    await space.assert_fact("(note b)")
    await space.retract("(note a)")
    changes = [await anext(seen) for _ in range(3)]
    assert [(change.kind, change.captures["name"], change.present) for change in changes] == [
        ("asserted", "a", True),
        ("asserted", "b", False),
        ("retracted", "a", False),
    ]
    seen.close()


async def test_an_observer_that_does_not_keep_up_gets_an_error() -> None:
    session = on()
    seen = session.engine.dataspace.space.observe("(note ?n)", buffer=2)
    for n in range(4):
        await session.dataspace.assert_fact(["note", n])
    with pytest.raises(Lagged):
        [change async for change in seen]


async def test_observers_end_with_the_session() -> None:
    session = on()
    seen = session.dataspace.observe("(note ?n)")
    await session.close()
    async with asyncio.timeout(60):
        assert [change async for change in seen] == []


@pytest.mark.parametrize("text", ["(note", "note)", "(note :a)", "(note ?x)", '(note "a) '])
async def test_an_invalid_fact_is_an_error_with_a_position(text: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        on().dataspace.assert_fact(text)
    assert len(refused.value.problems) == 1
    assert str(refused.value).startswith("<fact>:1:")


# -- definitions -----------------------------------------------------------------------------------


@pytest.mark.requirement("S4-02")
@pytest.mark.requirement("S4-10")
async def test_asserting_a_definition_defines_it_also_after_a_restart(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        await session.dataspace.assert_fact(definition())
        assert session.get_workflow("waits") is not None
    async with on(tmp_path / "nerve.db") as session:
        await session.recover()
        assert session.get_workflow("waits") is not None
        (fact,) = session.dataspace.facts('(workflow-definition :id "waits")')
        assert fact.record.get("source") == WAITING


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (definition("(workflow waits (state start (goto nowhere)))"), "nowhere"),
        (definition("(workflow"), "waits:1:"),
        (definition(id="other"), "has the source of 'waits'"),
        (Record("workflow-definition", (), {"id": "waits"}), "needs a :source"),
        (definition("examples/workflows/lisp/debate.lisp"), "waits:1:1"),
        (definition(WAITING.replace("waits", "listens"), id="listens"), "conflicts with existing workflow"),
    ],
)
async def test_an_invalid_definition_is_rejected_and_not_asserted(record: Record, message: str) -> None:
    session = on()
    with pytest.raises(ValueError, match=message):
        await session.dataspace.assert_fact(record)
    assert session.get_workflow("waits") is None
    assert session.engine.dataspace.asserted_facts("workflow-definition") == []


async def test_an_unreadable_definition_does_not_prevent_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with on(tmp_path / "nerve.db") as session:
        run = await session.start("listens")
        await session.engine.dataspace.change(
            [Record("workflow-definition", (), {"id": "x", "source": "(no"})]
        )
        await session.engine.dataspace.change([instance(definition="x")])
    async with on(tmp_path / "nerve.db") as session:
        assert [again.run_id for again in await session.recover()] == [run.run_id]
    assert caplog.text.count("skipped ") == 2


async def test_a_loaded_workflow_takes_precedence_over_an_older_fact(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        await session.dataspace.assert_fact(definition())
    newer = WAITING.replace("went on", "newer")
    async with on(tmp_path / "nerve.db") as session:
        session.load(newer, "lisp")
        await session.recover()
        assert session.get_workflow("waits").definition()[1] == newer
        (fact,) = session.dataspace.facts('(workflow-definition :id "waits")')
        assert fact.record.get("source") == newer


async def test_retracting_a_definition_removes_it_and_open_runs_continue() -> None:
    session = on()
    await session.dataspace.assert_fact(definition())
    run = await session.start("waits", label="one")
    await session.dataspace.retract('(workflow-definition :id "waits")')
    assert session.get_workflow("waits") is None
    await session.signal("go", key="one")
    await ended(run)


@pytest.mark.requirement("S4-10")
async def test_every_workflow_is_a_fact_also_one_that_is_loaded_during_an_observation() -> None:
    session = on()
    seen = session.dataspace.observe("(workflow-definition :id ?id :notation ?notation)")
    session.load(WAITING, "lisp")
    changes = [await anext(seen) for _ in range(3)]
    told = {(change.captures["id"], change.captures["notation"]) for change in changes}
    assert told == {("listens", "python"), ("tells", "python"), ("waits", "lisp")}
    seen.close()


# -- instances -------------------------------------------------------------------------------------


@pytest.mark.requirement("S4-10")
@pytest.mark.requirement("S4-11")
async def test_asserting_an_instance_starts_its_run_once_and_retracting_it_stops_it() -> None:
    session = on()
    session.load(WAITING, "lisp")
    await session.dataspace.assert_fact(instance(branch="side", context={"input": 5, "colour": "red"}))
    await session.dataspace.assert_fact(instance(branch="side", context={"input": 5, "colour": "red"}))
    (info,) = session.list_workflow_runs("waits")
    run = session.get_workflow_run(info.run_id)
    assert run is not None
    assert (run.label, run.branch, run.input, run.params) == ("one", "side", 5, {"colour": "red"})
    (gone,) = await session.dataspace.retract('(workflow-instance :label "one")')
    assert run.state is WorkflowState.CANCELLED
    assert run.to_info().error == "its workflow-instance was retracted"
    assert gone.record.get("run") is None, "what was asserted stays as it was asserted"


async def test_a_retracted_instance_can_be_asserted_again() -> None:
    session = on()
    session.load(WAITING, "lisp")
    for _ in range(2):
        await session.dataspace.assert_fact(instance())
        await session.dataspace.retract('(workflow-instance :label "one")')
    assert [info.state for info in session.list_workflow_runs("waits")] == [WorkflowState.CANCELLED] * 2


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"definition": "wait"}, "Workflow 'wait' not found. Did you mean 'waits'"),
        ({"context": [1]}, "must be an object"),
        ({"label": 3}, "must be a string"),
    ],
)
async def test_an_instance_that_cannot_start_is_not_asserted(named: dict[str, Any], message: str) -> None:
    session = on()
    session.load(WAITING, "lisp")
    with pytest.raises(ValueError, match=message):
        await session.dataspace.assert_fact(instance(**named))
    assert session.engine.dataspace.asserted_facts("workflow-instance") == []


async def test_an_instance_with_wrong_inputs_is_not_asserted() -> None:
    session = on()
    body = '{"kind": "gate", "id": "g"}'
    session.load(f'{{"name": "typed", "inputs": {{"n": {{"type": "integer"}}}}, "body": {body}}}', "json")
    with pytest.raises(ValueError, match="'n' must be an integer"):
        await session.dataspace.assert_fact(instance(definition="typed", context={"n": "x"}))
    assert session.engine.dataspace.asserted_facts("workflow-instance") == []


async def test_a_second_instance_of_a_label_is_rejected_while_the_first_exists() -> None:
    session = on()
    session.load(WAITING, "lisp")
    await session.dataspace.assert_fact(instance())
    with pytest.raises(ValueError, match="Retract it first"):
        await session.dataspace.assert_fact(instance(context={"other": 1}))


async def test_instances_without_a_label_are_distinguished_by_value() -> None:
    session = on()
    for n in (1, 2, 1):
        await session.dataspace.assert_fact(
            ["workflow-instance", {"definition": "listens", "context": {"key": str(n)}}]
        )
    assert len(session.list_workflow_runs("listens")) == 2
    assert len(session.dataspace.facts("workflow-instance")) == 2


async def test_an_instance_asserted_right_before_a_crash_is_started_on_recovery(tmp_path: Path) -> None:
    async with on(tmp_path / "nerve.db") as session:
        await session.engine.dataspace.change([instance(definition="listens")])
    for count in (1, 0):
        async with on(tmp_path / "nerve.db") as session:
            runs = await session.recover()
            assert len(session.list_workflow_runs("listens")) == 1
            assert [run.label for run in runs] == ["one"]
            assert len(runs) == count or runs[0].state is WorkflowState.WAITING


@pytest.mark.requirement("S4-11")
async def test_every_run_is_a_projected_instance_and_retracting_it_stops_the_run(
    tmp_path: Path,
) -> None:
    async with on(tmp_path / "nerve.db") as session:
        kept = await session.start("listens", label="kept")
        await session.start("listens", label="stopped")
        assert len(session.dataspace.facts("(workflow-instance :definition listens :run ?run)")) == 2
        assert session.engine.store.facts("s") == []
    async with on(tmp_path / "nerve.db") as session:
        assert len(await session.recover()) == 2
        assert len(session.list_workflow_runs("listens")) == 2
        await session.dataspace.retract('(workflow-instance :label "stopped")')
        states = {info.run_id: info.state for info in session.list_workflow_runs("listens")}
        assert states.pop(kept.run_id) is WorkflowState.WAITING
        assert list(states.values()) == [WorkflowState.CANCELLED]
        assert session.engine.store.facts("s") == []


# -- facts projected from runs ---------------------------------------------------------------------


@pytest.mark.requirement("S4-11")
async def test_state_facts_show_what_each_run_waits_for() -> None:
    session = on()

    @session.workflow
    async def asks(ctx: WorkflowContext) -> Any:
        async with ctx.timeout(60):
            answer = await ctx.gate("Go on?")
        await ctx.sleep(0.01)
        await ctx.run("echo")  # on disk before it runs: the state "running" is one of its own
        return answer

    session.dataspace.facts()
    asking, listening = await session.start("asks"), await session.start("listens", params={"key": "k"})
    await asking.next_gate()
    await until(lambda: listening.state is WorkflowState.WAITING)
    status, (gate,) = states(session, asking)
    assert (status, gate["prompt"], gate["path"]) == ("waiting", "Go on?", "/gate")
    assert states(session, listening) == ["waiting", [{"signal": "go", "key": "k"}]]
    await listening.pause()
    assert states(session, listening)[0] == "paused"
    await listening.resume()
    assert states(session, listening)[0] == "waiting"
    await listening.stop("enough")
    assert states(session, listening) == ["cancelled", None]
    seen = session.dataspace.observe(["workflow/state", {"run": asking.run_id, "status": "?status"}])
    await asking.answer("yes")
    await ended(asking)
    told = []
    async with asyncio.timeout(60):
        async for change in seen:
            if change.kind == "asserted" and change.captures["status"] not in told[-1:]:
                told.append(change.captures["status"])
            if told[-1:] == ["completed"]:
                break
    assert told == ["waiting", "running", "waiting", "running", "completed"]


async def test_state_facts_show_failed_runs_and_parents_of_waiting_runs() -> None:
    session = on()

    @session.workflow
    async def parent(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("listens")

    @session.workflow
    async def breaks(ctx: WorkflowContext) -> Any:
        raise ValueError("no")

    session.dataspace.facts()
    run, broken = await session.start("parent"), await session.start("breaks")
    await until(lambda: states(session, run)[1])
    status, (child,) = states(session, run)
    assert (status, child["path"]) == ("waiting", "/listens")
    with pytest.raises(ValueError, match="no"):
        await ended(broken)
    assert states(session, broken) == ["failed", None]
    await session.signal("go")
    await ended(run)
    assert states(session, run) == ["completed", None]


async def test_a_run_with_only_a_timeout_guard_is_running() -> None:
    session = on()
    going, go_on = asyncio.Event(), asyncio.Event()

    async def work(context: Any) -> None:
        going.set()
        await go_on.wait()

    FunctionNode("work", session, work)

    @session.workflow
    async def bounded(ctx: WorkflowContext) -> Any:
        async with ctx.timeout(60):
            await ctx.run("work")

    session.dataspace.facts()
    run = await session.start("bounded")
    await going.wait()
    await until(lambda: session.dataspace.facts(["workflow/state", {"run": run.run_id, "step": "work"}]))
    assert states(session, run) == ["running", None]
    go_on.set()
    await ended(run)


@pytest.mark.requirement("S4-11")
async def test_the_log_of_a_run_is_facts_with_its_errors() -> None:
    session = on()
    session.load(WAITING, "lisp")
    run = await session.start("waits", label="one")
    seen = session.dataspace.observe(["workflow/log", {"run": run.run_id, "message": "?said"}])
    await session.signal("go", key="one")
    await ended(run)
    said = []
    while "completed" not in said:
        said.append((await anext(seen)).captures["said"])
    assert "went on" in said


@pytest.mark.requirement("S4-11")
async def test_the_log_has_the_error_of_a_failed_step() -> None:
    session = on()
    session.load('(workflow fails (state work (bash "exit 3") (terminal)))', "lisp")
    run = await session.start("fails")
    with pytest.raises(WorkflowFailed):
        await ended(run)
    lines = session.dataspace.facts(["workflow/log", {"level": "error"}])
    assert [fact.record.get("message") for fact in lines] == [
        "/work failed: exit code 3",
        "failed: state 'work' failed: exit code 3",
    ]


@pytest.mark.parametrize(
    "record", ['(workflow/state :run "x" :status "done")', '(workflow/log :run "x" :seq 1)']
)
async def test_projected_facts_cannot_be_asserted(record: str) -> None:
    session = on()
    run = await session.start("listens")
    with pytest.raises(ValueError, match="read from the journals"):
        await session.dataspace.assert_fact(record)
    await session.dataspace.retract("(workflow/state ...)")
    assert states(session, run)[0] in ("running", "waiting")


async def test_only_a_limited_number_of_ended_runs_are_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nerve.engine.run_fact_projection.MAX_ENDED_RUNS", 3)
    monkeypatch.setattr("nerve.engine.run_fact_projection.MAX_LOG_FACTS", 5)
    session = on()
    session.dataspace.facts()
    await session.signal("go")
    for _ in range(8):
        await ended(await session.start("listens"))
    counts = [len(session.dataspace.facts(name)) for name in ("workflow/state", "workflow-instance")]
    assert counts == [3, 3]
    assert len(session.dataspace.facts("workflow/log")) == 5
    assert len(session.engine.dataspace._projection._states) == 3


FLOW = """
name: flow
body:
  kind: sequence
  steps:
    - {kind: bash, id: first, command: "true"}
    - kind: machine
      id: round
      states:
        - {name: begin, body: {kind: transform, expression: "1"}, next: [{to: inner}]}
        - name: inner
          body:
            kind: sequence
            steps: [{kind: bash, id: deep, command: "true"}]
    - {kind: wait, id: listen, any: [{signal: go}], timeout: 0.01}
"""


async def test_a_state_fact_has_the_machine_state_or_the_top_level_step() -> None:
    session = on()
    session.load(FLOW)
    seen = session.dataspace.observe("(workflow/state :workflow flow :step ?step)")
    run = await session.start("flow")
    with pytest.raises(Exception, match="No matching fact"):
        await run.wait()
    steps = []
    async for change in seen:
        steps.append(change.fact.record.get("step"))
        if change.fact.record.get("status") == "failed":
            break
    assert list(dict.fromkeys(steps)) == ["first", "begin", "inner", "listen"]


async def test_a_wait_that_timed_out_is_in_the_log() -> None:
    session = on()
    session.load(FLOW)
    run = await session.start("flow")
    with pytest.raises(Exception, match="No matching fact"):
        await run.wait()
    told = [fact.record.get("message") for fact in session.dataspace.facts("workflow/log")]
    assert "/listen/fact received nothing in time" in told


# -- values that facts cannot represent ------------------------------------------------------------


def nested(deep: int) -> Any:
    return [] if deep == 1 else [nested(deep - 1)]


@pytest.mark.parametrize("deep", [61, 62, 64, 99])
async def test_a_run_with_an_input_that_facts_cannot_represent_is_still_a_fact(deep: int) -> None:
    session = on()

    @session.workflow
    async def gives(ctx: WorkflowContext) -> Any:
        return ctx.input

    session.dataspace.facts()
    given = nested(deep)
    runs = await asyncio.gather(*(session.start("gives", each) for each in (given, "a", given, "b")))
    assert [await ended(run) for run in runs] == [given, "a", given, "b"]
    told = {fact.record.get("run"): fact.record for fact in session.dataspace.facts("workflow-instance")}
    assert list(told) == [run.run_id for run in runs]
    inputs = [told[run.run_id].get("context")["input"] for run in runs]
    assert inputs[1::2] == ["a", "b"]
    assert inputs[0] == (
        given if deep == 61 else "(The value is nested more than 64 levels deep; make it flatter)"
    )
    assert [states(session, run)[0] for run in runs] == ["completed"] * 4


async def test_a_run_with_an_input_that_facts_cannot_represent_hides_no_other_after_a_restart(
    tmp_path: Path,
) -> None:
    async with on(tmp_path / "nerve.db") as session:
        ids = [(await session.start("listens", each)).run_id for each in (nested(70), "a")]
    async with on(tmp_path / "nerve.db") as session:
        found = session.dataspace.facts("workflow-instance")
        assert [fact.record.get("run") for fact in found] == ids


async def test_a_damaged_journal_does_not_prevent_facts_of_other_runs(tmp_path: Path) -> None:
    file = tmp_path / "nerve.db"
    async with on(file) as session:
        ids = [(await session.start("listens", each)).run_id for each in "ab"]
    db = apsw.Connection(str(file))
    journal = "(SELECT id FROM journals WHERE run = ?)"
    db.execute(f"UPDATE events SET data = '{{}}' WHERE journal = {journal} AND seq = 1", (ids[0],))
    db.close()
    async with on(file) as session:
        for _ in range(2):
            found = session.dataspace.facts("workflow-instance")
            assert [fact.record.get("run") for fact in found] == ids[1:]


async def test_a_child_run_accepts_a_number_that_facts_cannot_represent() -> None:
    session = on()

    @session.workflow
    async def parent(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("child", 2**60)

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        return ctx.input

    session.dataspace.facts()
    assert await ended(await session.start("parent")) == 2**60
    (fact,) = session.dataspace.facts("(workflow-instance :definition child)")
    assert "beyond ±2^53" in fact.record.get("context")["input"]


async def test_a_wait_pattern_can_be_nested_as_deep_as_a_file() -> None:
    session = on()
    wait = {"kind": "wait", "any": [{"fact": ["note", nested(59)]}]}
    session.load(json.dumps({"name": "patient", "body": wait}), "json")
    session.dataspace.facts()
    run = await session.start("patient")
    await until(lambda: run.state is WorkflowState.WAITING)
    await session.dataspace.assert_fact(["note", nested(59)])
    await ended(run)
    assert states(session, run)[0] == "completed"


@pytest.mark.parametrize("number", [2**60, -(2**53) - 1])
async def test_a_run_is_not_started_with_an_unsafe_integer(number: int) -> None:
    session = on()
    said = f"the integer {number} is beyond ±2\\^53, where JSON readers are not exact; pass it as a string"
    for given in ({"input": [number]}, {"params": {"key": {"x": number}}}):
        with pytest.raises(NotJson, match=said):
            await session.start("listens", **given)
    run = await session.start("listens", 2**53)
    with pytest.raises(NotJson, match=said):
        await session.fork(run.run_id, input=number)
    assert len(session.list_workflow_runs()) == 1


def test_the_first_fact_and_signal_do_not_import_workflow_readers() -> None:
    """The models of the spec take half a second to import, which would block the event loop."""
    code = """
import asyncio, sys
from nerve import Session

async def main():
    async with Session() as session:
        @session.workflow
        async def waits(ctx):
            return await ctx.wait_signal("go")
        run = await session.start("waits")
        await session.signal("go", None, "now")
        assert await run.wait() == "now"
        await session.dataspace.assert_fact(["note", 1])
        await session.dataspace.retract(["note", 1])
        assert session.dataspace.facts()

asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith(("nerve.spec.", "nerve.expr", "pydantic"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
