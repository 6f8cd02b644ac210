"""Answers through the API: each gate takes one, and later ones learn which."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal, with_workflows
from nerve import Graph, MockNode, Session
from nerve.api import Api, ApiError
from nerve.core.nodes.control import GateNode


def answers_in(api: Api, run_id: str) -> list[Any]:
    return [row for row in api.session.engine.store.events(run_id) if row.type == "gate_answered"]


async def test_an_answer_is_returned_as_recorded(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    assert run.state == "waiting"
    reply = await api.answer(run=run.run_id, gate=run.gates[0].gate_id, answer="yes", key="k")
    assert reply.model_dump() == {
        "run_id": run.run_id,
        "gate_id": run.gates[0].gate_id,
        "path": run.gates[0].path,
        "node_id": None,
        "answer": "yes",
        "by": "api",
        "via": "api",
        "scope": None,
        "pid": None,
        "address": None,
        "action": "answer",
        "reason": "",
        "key": "k",
    }
    assert await api.session.get_workflow_run(run.run_id).wait() == "yes"


async def test_a_gate_can_be_answered_without_naming_the_run(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    reply = await api.answer(gate=run.gates[0].gate_id, answer="no")
    assert (reply.run_id, reply.answer) == (run.run_id, "no")
    error = await refusal(api.answer(gate=run.gates[0].gate_id, answer="yes"))
    assert (error.code, error.details["winner"]["answer"]) == ("conflict", "no")


async def test_a_gate_is_found_by_its_path_in_a_run_and_by_its_path_alone_if_only_one_run_has_it(
    api: Api,
) -> None:
    first = await api.start(workflow="ask", wait=True)
    path = first.gates[0].path
    assert (await api.answer(gate=path, answer="yes")).run_id == first.run_id
    for _ in range(2):
        other = await api.start(workflow="ask", wait=True)
    error = await refusal(api.answer(gate=path, answer="yes"))
    assert (error.code, error.fix) == ("conflict", "Pass the run as well.")
    assert (await api.answer(run=other.run_id, gate=path, answer="yes")).run_id == other.run_id


@pytest.mark.parametrize("by_gate", [False, True])
async def test_one_of_fifty_concurrent_answers_wins_and_the_others_learn_which(
    api: Api, by_gate: bool
) -> None:
    run = await api.start(workflow="ask", wait=True)
    name = {"gate": run.gates[0].gate_id} if by_gate else {"run": run.run_id}
    racers = [api.answer(**name, answer=("yes", "no")[n % 2], key=f"k{n}") for n in range(50)]
    replies = await asyncio.gather(*racers, return_exceptions=True)
    [winner] = [reply for reply in replies if not isinstance(reply, BaseException)]
    losers = [reply for reply in replies if isinstance(reply, ApiError)]
    assert len(losers) == 49
    assert {error.code for error in losers} == {"conflict"}
    assert all(error.details["winner"] == winner.model_dump() for error in losers)
    [row] = answers_in(api, run.run_id)
    assert winner.key in row.data
    watched = [event async for event in api.hub.watch(run.run_id)]
    assert [e.data["answer"] for e in watched if e.event_type == "gate_answered"] == [winner.answer]


async def test_a_hundred_answers_with_one_key_across_a_restart_are_one_record_and_one_reply(
    file: Path,
) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        run = await api.start(workflow="ask", wait=True)
        together = await asyncio.gather(
            *(api.answer(run=run.run_id, answer="yes", key="k") for _ in range(40))
        )
        by_gate = [await api.answer(gate=run.gates[0].gate_id, answer="yes", key="k") for _ in range(10)]
    async with Session(store=file) as session:
        api = with_workflows(session)
        unrecovered = [await api.answer(run=run.run_id, answer="yes", key="k") for _ in range(10)]
        await session.recover()
        later = await asyncio.gather(*(api.answer(run=run.run_id, answer="yes", key="k") for _ in range(40)))
        replies = [*together, *by_gate, *unrecovered, *later]
        assert len(replies) == 100
        assert all(reply == replies[0] for reply in replies)
        assert len(answers_in(api, run.run_id)) == 1


async def test_the_same_key_with_another_answer_or_gate_is_a_conflict(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    await api.answer(run=run.run_id, answer="yes", key="k")
    error = await refusal(api.answer(run=run.run_id, answer="no", key="k"))
    assert (error.code, error.details["winner"]["answer"]) == ("conflict", "yes")
    error = await refusal(api.answer(run=run.run_id, gate="another", answer="yes", key="k"))
    assert error.code == "conflict"


async def test_one_key_answers_one_of_several_gates(api: Api) -> None:
    @api.session.workflow
    async def two(ctx: Any) -> Any:
        return await asyncio.gather(ctx.gate("First?"), ctx.gate("Second?"))

    run = await api.start(workflow="two", wait=True)
    first, second = (gate.gate_id for gate in run.gates)
    error = await refusal(api.answer(run=run.run_id, answer="x"))
    assert (error.code, error.fix) == ("conflict", "Name the gate.")
    answers = [api.answer(run=run.run_id, gate=first, answer="x", key="k") for _ in range(2)]
    replies = await asyncio.gather(
        *answers, *(api.answer(run=run.run_id, answer="x", key="k") for _ in range(9))
    )
    assert {reply.gate_id for reply in replies} == {first}
    assert [gate.gate_id for gate in (await api.run(run=run.run_id)).gates] == [second]


@pytest.mark.parametrize("by_child", [False, True])
async def test_a_gate_of_a_child_run_is_answered_through_its_parent_or_itself(
    file: Path, by_child: bool
) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        run = await api.start(workflow="nested", wait=True)
        child = (await api.runs(workflow="ask")).runs[0]
        name = child.run_id if by_child else run.run_id
        reply = await api.answer(run=name, gate=run.gates[0].gate_id, answer="yes", key="k")
        assert reply.run_id == child.run_id
        assert await session.get_workflow_run(run.run_id).wait() == "yes"
        error = await refusal(api.answer(run=run.run_id, gate=run.gates[0].path, answer="no"))
        assert (error.code, error.details["winner"]) == ("conflict", reply.model_dump())
    async with Session(store=file) as session:
        again = await with_workflows(session).answer(run=name, answer="yes", key="k")
        assert again == reply


@pytest.mark.parametrize("name", ["/ask/gate", "ask/gate", "gate", "/ask/g", "ga"])
async def test_a_gate_of_a_child_run_is_found_by_the_names_that_the_terminal_accepts(
    api: Api, name: str
) -> None:
    run = await api.start(workflow="nested", wait=True)
    assert run.gates[0].path == "/ask/gate"
    reply = await api.answer(run=run.run_id, gate=name, answer="yes")
    assert reply.gate_id == run.gates[0].gate_id


async def test_an_unknown_gate_is_not_found(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    assert (await refusal(api.answer(run=run.run_id, gate="nobody", answer="yes"))).code == "not_found"
    assert (await refusal(api.answer(gate="nobody", answer="yes"))).code == "not_found"
    assert (await refusal(api.answer(run="nobody", answer="yes"))).code == "not_found"
    assert (await refusal(api.answer(answer="yes"))).code == "bad_request"
    assert (await api.run(run=run.run_id)).state == "waiting"


async def test_a_gate_that_timed_out_is_gone(api: Api) -> None:
    @api.session.workflow
    async def hurry(ctx: Any) -> Any:
        try:
            return await ctx.gate("Now?", timeout=0.01)
        except TimeoutError:
            return "late"

    run = await api.start(workflow="hurry")
    assert await api.session.get_workflow_run(run.run_id).wait() == "late"
    error = await refusal(api.answer(run=run.run_id, answer="yes"))
    assert (error.code, error.status) == ("gone", 410)


async def test_a_gate_of_a_cancelled_run_takes_no_answer(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    await api.stop(run=run.run_id)
    for name in ({}, {"gate": run.gates[0].gate_id}):
        error = await refusal(api.answer(run=run.run_id, answer="yes", **name))
        assert (error.code, error.message) == ("conflict", "Run is not waiting for input (state: cancelled)")
    assert (await api.run(run=run.run_id)).state == "cancelled"


async def test_a_gate_that_the_run_abandoned_takes_no_answer(api: Api) -> None:
    @api.session.workflow
    async def either(ctx: Any) -> Any:
        slow = asyncio.ensure_future(ctx.gate("First?"))
        answer = await ctx.gate("Second?")
        slow.cancel()
        await asyncio.wait([slow])
        return [answer, await ctx.gate("Third?")]

    run = await api.start(workflow="either", wait=True)
    gates = {gate.prompt: gate.gate_id for gate in (await settled(api, run.run_id, 2)).gates}
    await api.answer(run=run.run_id, gate=gates["Second?"], answer="x")
    await settled(api, run.run_id, 1, but=gates["First?"])
    error = await refusal(api.answer(run=run.run_id, gate=gates["First?"], answer="x"))
    assert error.code == "conflict"
    assert "abandoned" in error.message


async def test_the_winning_answer_is_found_despite_a_custom_event_with_a_gate_event_name(
    api: Api,
) -> None:
    @api.session.workflow
    async def noted(ctx: Any) -> Any:
        answer = await ctx.gate("Sure?")
        ctx.emit("gate_noted", {"answer": answer})
        return answer

    run = await api.start(workflow="noted", wait=True)
    await api.answer(run=run.run_id, answer="yes")
    await api.session.get_workflow_run(run.run_id).wait()
    error = await refusal(api.answer(run=run.run_id, answer="no"))
    assert (error.code, error.details["winner"]["answer"]) == ("conflict", "yes")


async def settled(api: Api, run_id: str, gates: int, but: str = "") -> Any:
    """Return the run when it has that many open gates."""
    while True:
        run = await api.run(run=run_id)
        if len(run.gates) == gates and but not in [gate.gate_id for gate in run.gates]:
            return run
        await asyncio.sleep(0)


@pytest.mark.requirement("S0-58")
async def test_answering_a_run_without_gates_reports_its_state(api: Api) -> None:
    run = await api.start(workflow="hello", wait=True)
    error = await refusal(api.answer(run=run.run_id, answer="yes"))
    assert (error.code, error.message) == ("gone", "Run is not waiting for input (state: completed)")


async def test_invalid_answers_are_refused_and_change_nothing(api: Api) -> None:
    asks = await api.start(workflow="ask", wait=True)
    wonders = await api.start(workflow="open_question", wait=True)
    refused = {
        "refused": [(asks, "maybe"), (asks, None), (asks, ["yes"]), (wonders, "\ud800"),
                    (wonders, {"a\udfff": 1}), (wonders, float("nan")), (wonders, object())],
        "too_large": [(wonders, "x" * 1024 * 1024), (wonders, ["é" * 600_000])],
    }  # fmt: skip
    for code, cases in refused.items():
        for run, answer in cases:
            error = await refusal(api.answer(run=run.run_id, answer=answer))
            assert error.code == code, (code, repr(answer)[:40], error.message)
    for run in (asks, wonders):
        assert (await api.run(run=run.run_id)).state == "waiting"
        assert answers_in(api, run.run_id) == []


async def test_an_answer_counts_after_its_caller_disconnected(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    giving = asyncio.ensure_future(api.answer(run=run.run_id, answer="yes", key="k"))
    await asyncio.sleep(0)
    giving.cancel()
    await asyncio.wait([giving])
    assert await api.session.get_workflow_run(run.run_id).wait() == "yes"
    assert (await api.answer(run=run.run_id, answer="yes", key="k")).answer == "yes"


async def test_a_paused_run_keeps_its_answer(api: Api) -> None:
    @api.session.workflow
    async def ask_and_do(ctx: Any) -> Any:
        return (await ctx.run("careful", await ctx.gate("Go on?"))).output

    run = await api.start(workflow="ask_and_do", wait=True)
    await api.pause(run=run.run_id)
    await api.answer(run=run.run_id, answer="yes", key="k")
    assert (await api.run(run=run.run_id)).state == "paused"
    await api.resume(run=run.run_id)
    assert await api.session.get_workflow_run(run.run_id).wait() == "yes"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("by_gate", [False, True])
async def test_many_gates_are_answered_at_once_and_no_answer_is_lost(
    api: Api, count: int, by_gate: bool
) -> None:
    runs = await asyncio.gather(*(api.start(workflow="open_question", wait=True) for _ in range(count)))
    assert len((await api.gates(limit=1000)).gates) == count
    replies = await asyncio.gather(
        *(
            api.answer(
                **({"gate": run.gates[0].gate_id} if by_gate else {"run": run.run_id}),
                answer=str(n),
                key=str(n),
            )
            for n, run in enumerate(runs)
        )
    )
    assert [reply.run_id for reply in replies] == [run.run_id for run in runs]
    values = await asyncio.gather(*(api.session.get_workflow_run(run.run_id).wait() for run in runs))
    assert values == [str(n) for n in range(count)]
    assert (await api.gates()).gates == []


async def test_a_form_takes_the_same_text_with_the_same_key_once(api: Api) -> None:
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @api.session.workflow
    async def filled(ctx: Any) -> Any:
        return await ctx.gate("How many?", form=form)

    run = await api.start(workflow="filled", wait=True)
    assert run.gates[0].form == form
    with pytest.raises(ApiError, match="required property"):
        await api.answer(run=run.run_id, answer={})
    replies = [await api.answer(run=run.run_id, answer='{"n": 3}', key="k") for _ in range(2)]
    assert [each.answer for each in replies] == [{"n": 3}, {"n": 3}]
    assert len(answers_in(api, run.run_id)) == 1


async def test_a_form_rejects_an_answer_that_is_nested_too_deep(api: Api) -> None:
    @api.session.workflow
    async def formed(ctx: Any) -> Any:
        return await ctx.gate("Which?", form={"type": "array"})

    run = await api.start(workflow="formed", wait=True)
    for answer in ("[" * 300 + "]" * 300, "[" * 101 + "]" * 101):
        assert (await refusal(api.answer(run=run.run_id, answer=answer))).code == "refused"
    reply = await api.answer(run=run.run_id, answer="[" * 100 + "]" * 100)
    await api.session.get_workflow_run(run.run_id).wait()
    for each in (reply, await api.runs(), await api.run(run=run.run_id), await api.events(run=run.run_id)):
        assert each.model_dump_json()


async def test_a_key_belongs_to_one_answer_even_if_another_run_has_a_gate_with_that_name(
    api: Api, file: Path
) -> None:
    first = await api.start(workflow="ask", wait=True)
    path = first.gates[0].path
    reply = await api.answer(gate=path, answer="yes", key="k")
    assert await api.answer(gate=path, answer="yes", key="k") == reply
    other = await api.start(workflow="ask", wait=True)
    assert await api.answer(gate=path, answer="yes", key="k") == reply
    assert (await refusal(api.answer(gate=path, answer="no", key="k"))).code == "conflict"
    await api.session.close()
    async with Session(store=file) as session:
        again = with_workflows(session)
        assert await again.answer(gate=path, answer="yes", key="k") == reply
        assert answers_in(again, other.run_id) == []


async def test_a_key_of_another_command_cannot_be_used_for_an_answer(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    await api.pause(run=run.run_id, key="k")
    error = await refusal(api.answer(gate=run.gates[0].gate_id, answer="yes", key="k"))
    assert (error.code, error.message) == ("conflict", "Key 'k' was used for another command (pause)")


@pytest.mark.requirement("D0-15")
async def test_a_gate_can_be_named_by_a_unique_prefix(api: Api) -> None:
    for name in ("review", "review_final", "ready"):
        GateNode(name, api.session, "Well?")

    @api.session.workflow
    async def steps(ctx: Any) -> Any:
        await ctx.run("review")
        await asyncio.gather(ctx.run("review_final"), ctx.run("ready"))

    run = await api.start(workflow="steps", wait=True)
    assert (await api.answer(run=run.run_id, gate="rev", answer="a", key="k")).node_id == "review"
    assert (await api.answer(run=run.run_id, gate="rev", answer="a", key="k")).node_id == "review"
    while len((await api.run(run=run.run_id)).gates) < 2:  # noqa: ASYNC110 - they open one after the other
        await asyncio.sleep(0.01)
    # A late answer to a gate by its full name must not go to another gate with that prefix.
    assert (
        "already answered" in (await refusal(api.answer(run=run.run_id, gate="review", answer="b"))).message
    )
    several = await refusal(api.answer(run=run.run_id, gate="re", answer="b"))
    assert several.code == "conflict"
    assert "review_final" in several.message
    assert (await refusal(api.answer(run=run.run_id, gate="rx", answer="b"))).code == "not_found"
    ready = next(gate for gate in (await api.gates()).gates if gate.node_id == "ready")
    assert (await api.answer(gate=ready.gate_id[:-1], answer="c")).node_id == "ready"
    assert (await api.answer(run=run.run_id, gate="review_f", answer="b")).node_id == "review_final"
    assert (await refusal(api.answer(gate="rev", answer="b"))).code == "not_found"


async def test_a_node_with_several_open_gates_must_be_named_by_gate(api: Api) -> None:
    GateNode("review", api.session, "Well?")

    @api.session.workflow
    async def twice(ctx: Any) -> Any:
        return await asyncio.gather(ctx.run("review"), ctx.run("review"))

    run = await api.start(workflow="twice", wait=True)
    gates = (await settled(api, run.run_id, 2)).gates
    error = await refusal(api.answer(run=run.run_id, gate="review", answer="x"))
    assert (error.code, error.fix) == ("conflict", "Name the gate by its id.")
    assert all(gate.gate_id in error.message for gate in gates)


async def test_a_gate_is_returned_with_its_content_to_review(api: Api) -> None:
    gate = GateNode("judge", api.session, "Approve?")
    api.session.register_workflow(Graph("g", api.session).chain(MockNode("w", api.session, ["draft"]), gate))
    run = await api.start(workflow="g", wait=True)
    assert run.gates[0].input_preview == "draft"
    assert (await api.gates()).gates[0].input_preview == "draft"
    assert (await api.run(run=run.run_id)).gates[0].input_preview == "draft"


@pytest.mark.parametrize("answer", [5, None])
async def test_an_answer_that_is_not_text_is_refused_without_a_form(api: Api, answer: Any) -> None:
    run = await api.start(workflow="open_question", wait=True)
    with pytest.raises(ApiError, match="a gate without a form needs a string"):
        await api.answer(run=run.run_id, answer=answer)
    assert len((await api.gates()).gates) == 1
