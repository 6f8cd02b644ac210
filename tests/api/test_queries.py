"""Every query of the API, and hostile values for its parameters."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from api.support import refusal, with_workflows
from nerve import Result, Session
from nerve.api import OPERATIONS, Api, ApiError
from nerve.api.errors import DEFAULT_FIXES, STATUS_BY_CODE, to_api_error
from nerve.client import Client
from nerve.core import json_codec
from nerve.errors import (
    Conflict,
    EngineUnavailable,
    NotJson,
    RunHeld,
    StoreBusy,
    StoreFull,
    StoreUnreachable,
)
from nerve.store.statements import SQL

INJECTIONS = [
    "' OR '1'='1",
    "'; DROP TABLE runs; --",
    '" UNION SELECT 1,2,3 --',
    "%",
    "*",
    "?",
    ":states",
    "1); DELETE FROM events; --",
    "\x00",
    "\\",
    "[0-9]*",
]


async def test_workflows_are_listed_and_one_is_shown_with_its_source(api: Api) -> None:
    listed = {each.id: each for each in (await api.workflows()).workflows}
    assert list(listed) == ["hello", "ask", "open_question", "basket", "nested", "broken"]
    assert (listed["hello"].description, listed["hello"].kind, listed["hello"].source) == (
        "Greets.",
        "python",
        None,
    )
    one = await api.workflow(workflow="hello")
    assert "Greets." in one.source
    assert one.hash == listed["hello"].hash
    assert (await refusal(api.workflow(workflow="nobody"))).code == "not_found"


async def test_runs_are_listed_newest_first_page_by_page(api: Api) -> None:
    ids = [(await api.start(workflow="hello", input=n, wait=True)).run_id for n in range(5)]
    seen, before = [], None
    while True:
        page = await api.runs(limit=2, **({"before": before} if before else {}))
        seen += [run.run_id for run in page.runs]
        if not page.more:
            break
        before = seen[-1]
    assert seen == ids[::-1]
    assert (await refusal(api.runs(limit=0))).code == "bad_request"
    assert (await refusal(api.runs(before="nobody"))).code == "not_found"


async def test_a_list_shows_runs_outside_memory_the_same_without_reading_their_journals(
    file: Path,
) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        ended = [
            await api.start(workflow="hello", input="you", label="first", wait=True),
            await api.start(workflow="broken", input="bad", wait=True),
            await api.stop(run=(await api.start(workflow="ask", wait=True)).run_id, reason="enough"),
            await api.stop(run=(await api.start(workflow="ask", wait=True)).run_id),
        ]
        waits = await api.start(workflow="ask", wait=True)
        before = (await api.runs()).runs
        gates = (await api.gates()).gates
    assert [run.state for run in ended] == ["completed", "failed", "cancelled", "cancelled"]
    async with Session(store=file) as session:
        api, read = with_workflows(session), list[str]()
        journals = session.engine.store._reader.execute("SELECT id, run FROM journals")  # type: ignore[attr-defined]
        names = dict(journals.fetchall())

        def trace(_: Any, sql: str, values: Any) -> bool:
            if sql == SQL["select_events"] and values[1] == 0 and values[2] > 1:
                read.append(names[values[0]])  # a list reads the input from the first event
            return True

        session.engine.store._reader.set_exec_trace(trace)  # type: ignore[attr-defined]
        listed = (await api.runs()).runs
        assert listed[1:] == before[1:]
        assert (listed[0].run_id, listed[0].state) == (waits.run_id, "waiting")
        assert [gate.gate_id for gate in (await api.gates()).gates] == [gate.gate_id for gate in gates]
        assert not read


async def test_a_modified_journal_does_not_hide_other_runs(file: Path) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        runs = [await api.start(workflow=name, wait=True) for name in ("hello", "ask", "hello", "ask")]
    db = apsw.Connection(str(file))
    for run in runs[:2]:
        [journal] = db.execute("SELECT id FROM journals WHERE run = ?", (run.run_id,)).fetchone() or ()
        db.execute("UPDATE events SET data = '{}' WHERE journal = ? AND seq IN (2, 3)", (journal,))
    db.close()
    async with Session(store=file) as session:
        api = with_workflows(session)
        listed = {run.run_id: run for run in (await api.runs()).runs}
        assert [listed[run.run_id].state for run in runs] == ["held", "held", "completed", "waiting"]
        assert [bool(listed[run.run_id].error) for run in runs] == [True, True, False, False]
        assert [gate.run_id for gate in (await api.gates()).gates] == [runs[3].run_id]
        assert (await refusal(api.run(run=runs[1].run_id))).code == "internal"


async def test_runs_are_found_by_their_fields(api: Api) -> None:
    one = await api.start(workflow="hello", label="a", conversation="c", wait=True)
    two = await api.start(workflow="ask", label="b", wait=True)

    async def found(**given: Any) -> list[str]:
        return [run.run_id for run in (await api.runs(**given)).runs]

    assert await found(workflow="hello") == [one.run_id]
    assert await found(state="waiting") == [two.run_id]
    assert await found(label="b") == [two.run_id]
    assert await found(conversation="c", state="completed") == [one.run_id]
    assert await found(conversation="c", state="failed") == []
    error = await refusal(api.runs(state="asleep"))
    assert error.code == "bad_request"
    assert "waiting" in error.fix
    assert (await api.run(run="b")).run_id == two.run_id


async def test_runs_are_found_by_all_filters_at_once(api: Api) -> None:
    for number in range(4):
        tags = {"customer": number % 2, "paid": number > 1}
        await api.start(workflow="hello", input=f"order {number}", tags=tags, wait=True)
    await api.start(workflow="ask", tags={"customer": "1"}, label="open", wait=True)

    async def find_runs(**filters: Any) -> list[str]:
        return [run.input_preview or run.workflow for run in (await api.runs(**filters)).runs]

    assert await find_runs(tag="customer=1") == ["ask", "order 3", "order 1"]
    assert await find_runs(tag=["customer=1", "paid=true"]) == ["order 3"]
    assert await find_runs(tag=["customer=1"], state="waiting") == ["ask"]
    assert await find_runs(tag=["customer=1"], state=["waiting", "completed"], label="open") == ["ask"]
    assert await find_runs(search="order", since="1h", limit=2) == ["order 3", "order 2"]
    assert await find_runs(since="2999-01-01") == []
    listed = (await api.runs(label="open")).runs[0]
    assert listed.tags == (await api.run(run="open")).tags == {"customer": "1"}
    for filters, message in (
        ({"tag": "custoner=1"}, "Unknown tag 'custoner'. Did you mean 'customer'?"),
        ({"state": "wating"}, "Unknown state 'wating'. Available: pending, running, waiting, "),
        ({"since": "2x"}, "since must be a period or a date, got '2x'. Use a period such as 30s, 15m, 2h"),
        ({"patch": "x"}, "Unknown patch 'x'. No run has a patch."),
        ({"tag": "customer"}, "A tag must have the form name=value, got 'customer'"),
    ):
        error = await refusal(api.runs(**filters))
        assert (error.code, f"{error}. {error.fix}"[: len(message)]) == ("bad_request", message)


async def test_a_repeated_start_with_other_tags_is_rejected(api: Api) -> None:
    first = await api.start(workflow="hello", key="k", tags={"customer": 42})
    assert (await api.start(workflow="hello", key="k", tags={"customer": "42"})).run_id == first.run_id
    error = await refusal(api.start(workflow="hello", key="k", tags={"customer": "7"}))
    assert (error.code, "another tag" in str(error)) == ("conflict", True)


async def test_a_run_is_shown_with_its_input_its_tree_and_its_gates(api: Api) -> None:
    run = await api.start(workflow="broken", input="good", params={"a": 1}, wait=True)
    reply = await api.run(run=run.run_id)
    assert (reply.input, reply.params, reply.state) == ("good", {"a": 1}, "completed")
    assert [(node.path, node.state) for node in reply.tree] == [("/careful", "completed")]
    assert reply.last_seq == len((await api.events(run=run.run_id)).events)
    assert isinstance(reply.started_at, datetime)
    waiting = await api.run(run=(await api.start(workflow="nested", wait=True)).run_id)
    assert [gate.prompt for gate in waiting.gates] == ["Go on?"]


async def test_events_are_returned_page_by_page(api: Api) -> None:
    run = await api.start(workflow="broken", input="x", wait=True)
    everything = await api.events(run=run.run_id)
    assert not everything.more
    seen, after = [], 0
    while True:
        page = await api.events(run=run.run_id, after=after, limit=1)
        seen += page.events
        after = seen[-1].seq
        if not page.more:
            break
    assert seen == everything.events
    assert (await api.events(run=run.run_id, after=after)).events == []
    assert (await refusal(api.events(run=run.run_id, after=-1))).code == "bad_request"
    assert (await refusal(api.events(run="nobody"))).code == "not_found"


async def test_open_gates_are_listed_with_their_runs(api: Api) -> None:
    one = await api.start(workflow="ask", wait=True)
    parent = await api.start(workflow="nested", wait=True)
    gates = (await api.gates()).gates
    assert len({gate.gate_id for gate in gates}) == len(gates) == 2
    assert gates[0].run_id == one.run_id
    assert gates[1].gate_id == parent.gates[0].gate_id
    await asyncio.gather(*(api.answer(run=gate.run_id, gate=gate.gate_id, answer="yes") for gate in gates))
    assert (await api.gates()).gates == []


async def test_todays_usage_is_available_after_a_restart_without_reading_other_runs(
    tmp_path: Path,
) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:

        @session.node
        async def think(context: Any) -> Result:
            return Result(success=True, output="x", attributes={"usage": {"cost": 0.5}})

        api = with_workflows(session)
        run = await api.start(workflow="think", wait=True)
        await api.start(workflow="hello", wait=True)
        reply = await api.usage()
        assert reply.runs == {run.run_id: {"cost": 0.5}}
    async with Session(store=tmp_path / "nerve.db") as session:
        assert (await Api(session).usage()).runs == reply.runs


async def test_agent_threads_of_open_runs_are_listed(memory: Api) -> None:
    @memory.session.workflow
    async def talk(ctx: Any) -> Any:
        for thread in "t1", "t2":
            ctx.emit("agent_thread", {"thread": thread, "provider": "scripted"})
        return await ctx.gate("Enough?")

    run = await memory.start(workflow="talk", wait=True)
    await memory.start(workflow="ask", wait=True)
    threads = (await memory.threads()).threads
    assert [(each.run_id, each.thread) for each in threads] == [(run.run_id, "t1"), (run.run_id, "t2")]


async def test_usage_threads_and_health_work_for_an_empty_session(memory: Api) -> None:
    usage = await memory.usage()
    assert (usage.today, usage.budget, usage.runs) == ({}, None, {})
    assert (await memory.threads()).threads == []
    health = await memory.health()
    assert (health.status, health.store, health.runs, health.held) == ("ok", "MemoryStore", {}, {})


async def test_health_lists_held_runs_with_their_reason(api: Api) -> None:
    gone = {"gone": False}

    @api.session.workflow
    async def changed(ctx: Any) -> Any:
        return await ctx.gate("New?" if gone["gone"] else "Old?")

    run = await api.start(workflow="changed", wait=True)
    drive = api.session.engine.executors[run.run_id]
    api.session.engine.idle_runs.evict(drive)
    gone["gone"] = True
    await api.answer(run=run.run_id, answer="x")
    with pytest.raises(RunHeld):
        await api.session.get_workflow_run(run.run_id).wait()
    health = await api.health()
    assert health.status == "degraded"
    assert "Old?" in health.held[run.run_id] or "gate" in health.held[run.run_id]
    assert (await api.run(run=run.run_id)).held["reason"] == "mismatch"


@pytest.mark.parametrize("text", INJECTIONS)
async def test_what_looks_like_sql_is_plain_data_in_every_parameter(api: Api, text: str) -> None:
    kept = await api.start(
        workflow="hello", input=text, label="kept", conversation="kept", key="kept", wait=True
    )
    assert kept.result == f"hello {text}"
    for name, operation in OPERATIONS.items():
        skipped_fields = ("limit", "after", "search")
        fields = [field for field in operation.request_model.model_fields if field not in skipped_fields]
        for field in fields if operation.method == "GET" else ():
            needed = {"run": kept.run_id} if "run" in fields and field != "run" else {}
            shown = await outcome(api.perform(name, {**needed, field: text}))
            # The code of a run that has ended answers no query.
            code = ("conflict",) if field == "query" else ("nothing", "not_found", "bad_request", "refused")
            assert shown in code, (name, field)
    assert [run.run_id for run in (await api.runs(search=text)).runs] == [kept.run_id]
    names = {"label": text, "conversation": text, "key": text}
    marked = await api.start(workflow="ask", **names, wait=True)
    assert [run.run_id for run in (await api.runs(label=text)).runs] == [marked.run_id]
    assert [run.run_id for run in (await api.runs(conversation=text)).runs] == [marked.run_id]
    assert (await api.start(workflow="ask", **names)).run_id == marked.run_id
    assert (await api.run(run=text)).run_id == marked.run_id
    await api.signal(label=text, key=text, value=text)
    assert (await refusal(api.answer(gate=text, answer=text))).code == "not_found"
    assert len((await api.runs()).runs) == 2


async def outcome(query: Any) -> str:
    """Return the error code, or whether the query returned something."""
    try:
        shown = (await query).model_dump()
    except ApiError as error:
        return error.code
    return "something" if any(value for value in shown.values() if isinstance(value, list)) else "nothing"


def test_every_code_has_a_status_and_every_error_a_code() -> None:
    assert all(400 <= status < 600 for status in STATUS_BY_CODE.values())
    seen = [
        ("storage_full", StoreFull("full")),
        ("busy", StoreBusy("busy")),
        ("busy", StoreUnreachable("the database cannot be reached")),
        ("busy", EngineUnavailable("Temporal does not answer", "Start it")),
        ("conflict", Conflict("r", "taken")),
        ("refused", NotJson("no")),
        ("internal", OSError("path of a secret")),
    ]
    for code, error in seen:
        assert to_api_error(error).code == code
    assert "secret" not in to_api_error(OSError("path of a secret")).message


def test_an_error_survives_serialization() -> None:
    error = ApiError("gone", "it is over", "Start again.", {"a": 1})
    again = ApiError.from_dict(error.to_dict())
    assert (again.to_dict(), again.status) == (error.to_dict(), 410)
    assert ApiError.from_dict({"code": "strange"}).code == "internal"


async def test_a_value_that_cannot_be_encoded_does_not_hide_the_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    @api.session.workflow
    async def deep(ctx: Any) -> Any:
        value: Any = 1
        for _ in range(300):
            value = [value]
        return value

    with monkeypatch.context() as before:  # as in a journal of an earlier version
        before.setattr(json_codec, "is_too_deep", lambda value, deep: False)
        run = await api.start(workflow="deep", wait=True)
    assert run.state == "completed"
    other = await api.start(workflow="hello", input="you", wait=True)
    results = {each.run_id: each.result for each in (await api.runs()).runs}
    assert results == {run.run_id: "(a value nested more than 100 deep)", other.run_id: "hello you"}
    for each in (run, await api.run(run=run.run_id), await api.events(run=run.run_id)):
        assert each.model_dump_json()


async def test_definitions_are_listed_as_runs_were_started_from_them(api: Api) -> None:
    text = "name: said\nbody: {kind: transform, expression: \"'one'\"}\n"
    await api.define(source=text)
    await api.start(workflow="said", wait=True)
    await api.define(source=text.replace("one", "two"))
    for _ in range(2):
        await api.start(workflow="said", wait=True)
    definitions = [each for each in (await api.definitions()).definitions if each.workflow == "said"]
    assert [("two" in each.source, each.current, each.runs) for each in definitions] == [
        (False, False, 1),
        (True, True, 2),
    ]


async def test_the_definition_of_a_run_stays_the_one_it_was_started_from(api: Api) -> None:
    text = "name: said\nbody: {kind: transform, expression: \"'one'\"}\n"
    await api.define(source=text)
    run = await api.start(workflow="said", wait=True)
    first = await api.definition(run=run.run_id)
    assert (first.source, first.notation, first.current, first.runs) == (text, "yaml", True, 1)
    assert first.spec == (await api.workflow(workflow="said")).spec
    assert first.spec == {"name": "said", "body": {"kind": "transform", "expression": "'one'"}}
    await api.define(source=text.replace("one", "two"))
    later = await api.definition(run=run.run_id)
    assert (later.spec, later.current) == (first.spec, False)


async def test_the_definition_of_python_code_has_its_source_and_no_parsed_form(api: Api) -> None:
    run = await api.start(workflow="hello", input="you", wait=True)
    definition = await api.definition(run=run.run_id)
    assert definition.spec is None
    assert "hello" in definition.source


async def test_sessions_are_listed_with_the_states_of_their_runs(api: Api) -> None:
    await api.start(workflow="ask", wait=True)
    (reply,) = (await api.sessions()).sessions
    assert (reply.name, reply.current, reply.runs) == (api.session.name, True, {"waiting": 1})


async def test_health_reports_active_runs_and_providers(api: Api) -> None:
    await api.start(workflow="ask", wait=True)
    api.session.provider_slots.rate_limits.mark_limited("claude", 2_000_000_000.0)
    health = await api.health()
    assert set(health.queue) == {"driven", "writing"}
    assert health.providers["claude"] == {"slots": 4, "busy": 0, "limited_until": 2_000_000_000.0}


async def test_labels_and_gates_are_completed_from_a_unique_prefix(api: Api) -> None:
    first = await api.start(workflow="ask", label="feature-42", wait=True)
    await api.start(workflow="ask", label="feature-43", wait=True)
    assert (await api.run(run="feature-42")).run_id == (await api.run(run=first.run_id)).run_id
    assert (await refusal(api.run(run="feat"))).code == "conflict"
    await api.answer(run="feature-42", gate=first.gates[0].gate_id[:4], answer="yes")


async def test_a_label_of_several_runs_means_the_open_one_or_is_ambiguous(api: Api) -> None:
    over = await api.start(workflow="hello", label="dup", wait=True)
    first = await api.start(workflow="ask", label="dup", wait=True)
    assert (await api.run(run="dup")).run_id == first.run_id
    second = await api.start(workflow="ask", label="dup", wait=True)
    for ask in (
        api.run(run="dup"),
        api.events(run="dup"),
        anext(api.hub.watch("dup")),
        api.stop(run="dup"),
        api.pause(run="dup"),
        api.answer(run="dup", answer="yes"),
    ):
        error = await refusal(ask)
        candidates = [(run["run_id"], run["state"]) for run in error.details["runs"]]
        assert (error.code, candidates) == (
            "conflict",
            [(second.run_id, "waiting"), (first.run_id, "waiting")],
        )
        assert f"'dup' is ambiguous: {second.run_id} (waiting, started 20" in error.message
    assert len((await api.gates()).gates) == 2
    arguments = {"run": "dup", "answer": "yes", "key": "k"}
    await api.stop(run=first.run_id)
    answered = await api.answer(**arguments)
    assert answered.run_id == second.run_id
    await api.session.get_workflow_run(second.run_id).wait()
    error = await refusal(api.stop(run="dup"))
    assert {run["run_id"] for run in error.details["runs"]} == {over.run_id, first.run_id, second.run_id}
    assert await api.answer(**arguments) == answered


async def test_an_exact_id_precedes_a_label_and_a_label_equals_an_id_prefix(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    other = await api.start(workflow="ask", label=run.run_id, wait=True)
    assert (await api.run(run=run.run_id)).run_id == run.run_id
    short = run.run_id[:-1]
    third = await api.start(workflow="ask", label=short, wait=True)
    error = await refusal(api.stop(run=short))
    assert [each["run_id"] for each in error.details["runs"]] == [third.run_id, run.run_id]
    assert (await api.run(run=other.run_id)).label == run.run_id


async def test_a_fork_takes_the_label_of_a_finished_run(api: Api) -> None:
    run = await api.start(workflow="ask", label="v1", wait=True)
    await api.stop(run="v1")
    fork = await api.fork(run="v1")
    assert (await api.stop(run="v1")).run_id == fork.run_id
    assert (await refusal(api.run(run="v1"))).code == "conflict"
    assert (await api.run(run=run.run_id)).label == "v1"


def test_every_error_has_a_code_a_message_and_a_fix() -> None:
    assert DEFAULT_FIXES.keys() == STATUS_BY_CODE.keys()
    for code in STATUS_BY_CODE:
        assert ApiError(code, "no").to_dict() == {"code": code, "message": "no", "fix": DEFAULT_FIXES[code]}
    assert ApiError("busy", "no", "Wait.").fix == "Wait."


async def test_workflows_and_their_runs_can_be_named_by_a_unique_prefix(api: Api) -> None:
    assert (await api.workflow(workflow="hel")).id == "hello"
    await api.start(workflow="hello", wait=True)
    await api.define(source="name: gone\nbody: {kind: transform, expression: '1'}\n")
    await api.start(workflow="gone", wait=True)
    api.session.delete_workflow("gone")
    listed = [(await api.runs(workflow=name)).runs for name in ("hel", "hello", "go", "nothing")]
    assert [[run.workflow for run in runs] for runs in listed] == [["hello"], ["hello"], ["gone"], []]
    for refused in (api.workflow(workflow=""), api.workflow(workflow="nothing")):
        assert (await refusal(refused)).code in ("bad_request", "not_found")
    api.session.workflow(api.session.get_workflow("hello").fn, id="help")
    for refused in (api.workflow(workflow="hel"), api.runs(workflow="hel")):
        error = await refusal(refused)
        assert (error.code, "hello, help" in error.message) == ("conflict", True)


async def test_gates_are_listed_in_pages_oldest_first(file: Path) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        runs = [(await api.start(workflow="ask", wait=True)).run_id for _ in range(5)]
        listed, after = [], None
        while True:
            page = await api.gates(limit=2, after=after)
            assert page.more is (page.next is not None)
            listed += [gate.run_id for gate in page.gates]
            if (after := page.next) is None:
                break
        assert listed == runs
        assert [gate.run_id for gate in await Client(api).all_gates()] == runs
        assert (await refusal(api.gates(after="x"))).code == "bad_request"
