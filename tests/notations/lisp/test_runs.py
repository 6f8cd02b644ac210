"""Lisp workflows run: with scripted agents, and signals from outside."""

import asyncio
from typing import Any

import pytest

from nerve.core.workflow import WorkflowState
from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider
from notations.lisp.running import EXAMPLES, logged, prompts, session, start, until, value_of

ASK = '(send-prompt :agent worker :template "Do ~a" :args ((input)) :tag r)'


@pytest.mark.requirement("S4-01")
@pytest.mark.requirement("S4-07")
@pytest.mark.requirement("S4-09")
async def test_the_first_program_runs_to_its_end() -> None:
    answers = iter(["shared", "fix it", "fixed", "well done"])

    async def answer(call: Any) -> str:
        given = next(answers)
        if given == "well done":
            await space.signal("review/satisfied", key="feature-42")
        return given

    provider = ScriptedProvider(answer)
    async with session(provider) as space:
        space.load(EXAMPLES / "planner-worker-review.lisp")
        run = await space.start("planner-worker-review", label="feature-42")
        await space.signal("plan/ready", key="another-feature")
        await until(lambda: run.state is WorkflowState.WAITING)
        assert provider.calls == []
        await space.signal("plan/ready", key="feature-42")
        await space.signal("plan/summary", key="feature-42", value="first this, then that")
        assert await value_of(run) == "well done"
    assert run.state is WorkflowState.COMPLETED
    assert prompts(provider) == [
        "Share your plan with implementer: first this, then that",
        "Review implementer's changes:\n",
        "Planner feedback:\nfix it",
        "Review implementer's changes:\nfixed",
    ]
    assert [call.thread for call in provider.calls] == ["thread-1", "thread-1", "thread-2", "thread-1"]


@pytest.mark.requirement("S4-07")
async def test_without_a_label_the_workflow_id_is_the_id_of_the_run() -> None:
    async with session() as space:
        run = await start(space, "(state s (wait (signal go :key @workflow-id)) (result @workflow-id))")
        await space.signal("go", key=run.run_id)
        assert await value_of(run) == run.run_id


async def test_the_body_of_a_loop_knows_the_iteration() -> None:
    async with session() as space:
        run = await start(space, '(state s (loop :times 3 (log "round ~a" (iteration))) (result 1))')
        assert await value_of(run) == 1
    assert logged(run) == ["round 0", "round 1", "round 2"]


@pytest.mark.requirement("S4-08")
async def test_an_answer_from_outside_settles_a_wait_as_well() -> None:
    async def answer(call: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    provider = ScriptedProvider(answer)
    async with session(provider) as space:
        form = f"(state s {ASK} (let ((said (transcript-response :request-id r))) (goto end)))"
        run = await start(space, form, "(state end (result (artifact worker)) (terminal))", input="it")
        await until(lambda: provider.calls)
        fact = ["agent-response", {"run": run.run_id, "request-id": "r", "agent": "worker", "text": "mine"}]
        await space.dataspace.assert_fact(fact)
        assert await value_of(run) == "mine"


async def test_a_prompt_that_is_sent_again_is_waited_for_again() -> None:
    second = asyncio.Event()

    async def answer(call: Any) -> str:
        if len(provider.calls) == 2:
            await second.wait()
        return f"answer {len(provider.calls)}"

    provider = ScriptedProvider(answer)
    loop = f'(loop :times 3 {ASK} (let ((said (transcript-response :request-id r))) (log "~a" said)))'
    async with session(provider) as space:
        run = await start(space, f"(state s {loop})")
        await until(lambda: len(provider.calls) == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(provider.calls) == 2
        second.set()
        await value_of(run)
    assert logged(run) == ["answer 1", "answer 2", "answer 3"]


async def test_prompts_run_in_parallel_and_are_joined_at_the_end_of_their_state() -> None:
    both = asyncio.Barrier(2)

    async def answer(call: Any) -> str:
        await both.wait()
        return call.prompt.upper()

    sends = '(send-prompt :agent planner :template "a" :workspace shared)'
    sends += ' (send-prompt :agent worker :template "b" :workspace shared)'
    async with session(ScriptedProvider(answer)) as space:
        result = "(result [(artifact planner) (artifact worker)])"
        run = await start(space, f"(state s {sends})", f"(state t {result})")
        assert await value_of(run) == ["A", "B"]


async def test_select_takes_what_comes_first() -> None:
    select = """(state s (select
      (on (signal stop :key @workflow-id) (result "stopped"))
      (on (fact (score :of @workflow-id :n ?n)) :as found (result (+ 1 (get found "n"))))))"""
    async with session() as space:
        run = await start(space, select, label="a")
        await space.dataspace.assert_fact('(score :of "b" :n 1)')
        await space.dataspace.assert_fact('(score :of "a" :n 6)')
        assert await value_of(run) == 7


async def test_select_continues_after_its_timeout() -> None:
    async with session() as space:
        run = await start(
            space, '(state s (select (on (signal a) (goto t)) (timeout 0.01 (result "late"))))', "(state t)"
        )
        assert await value_of(run) == "late"


async def test_what_takes_too_long_is_given_up() -> None:
    late = '(with-timeout 0.01 (wait (signal a)) (on-timeout (log "late") (goto end)))'
    async with session() as space:
        run = await start(
            space, f"(state s {late})", '(state t (log "no"))', '(state end (result "end") (terminal))'
        )
        assert await value_of(run) == "end"
        assert logged(run) == ["late"]
        run = await start(space, "(state s (with-timeout 0.01 (wait (signal a))))")
        with pytest.raises(WorkflowFailed):
            await value_of(run)


async def test_facts_are_asserted_tested_and_retracted() -> None:
    forms = """(state s
      (assert (note :by planner :n 1)) (assert (signal ready :key @workflow-id :value {:n 2}))
      (let ((said (signal ready :key @workflow-id)) (seen (fact (note :by planner :n ?n))))
        (retract (note :by planner)) (retract (signal ready :key @workflow-id))
        (branch
          (on (or (fact (note :by _)) (signal ready :key @workflow-id)) (result "still there"))
          (otherwise (result [(get said "n") (get seen "n")])))))"""
    async with session() as space:
        assert await value_of(await start(space, forms)) == [2, 1]


async def test_a_loop_without_end_reaches_its_bound_and_has_failed() -> None:
    async with session() as space:
        run = await start(space, '(state s (loop :max 3 (log "again") :until (> (iteration) 5)))')
        with pytest.raises(WorkflowFailed, match="3"):
            await value_of(run)
    assert len(logged(run)) == 3


async def test_nodes_gates_and_commands_give_values_to_names() -> None:
    forms = """(state s
      (let ((sure (gate "Ship ~a?" (input) :choices (yes no)))
            (said (bash "printf %s \\"$WHAT\\"" :env {:WHAT (str "it: " (input))}))
            (twice (call double :input (count said))))
        (result [sure said twice])))"""
    async with session() as space:
        space.node(lambda context: context.input * 2, id="double")
        run = await start(space, forms, input="a $(b)")
        await until(lambda: run.state is WorkflowState.WAITING)
        run.answer_gate("yes")
        assert await value_of(run) == ["yes", "it: a $(b)", 20]


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ('(= (signal v :key @workflow-id) "ok")', True),
        ('(= (signal v :key @workflow-id) "no")', False),
        ('(!= (signal absent) "ok")', True),
        ("(= (signal absent) nil)", True),
        ('(contains ["ok"] (signal v :key @workflow-id))', True),
        ('(= (or (signal absent) "none") "none")', True),
        ('(and (signal v) (= (signal v) "ok"))', True),
        ("(signal empty)", True),
        ("(not (signal empty))", False),
        ("(both (signal empty) (signal v))", True),
        ("(fine (signal v))", True),
        ("(fine (signal empty))", False),
        ('(> (get (fact (score :n ?n)) "n") 6)', True),
        ("(> (fact (score :n ?value)) 7)", False),
        ('(if (signal empty) (= (signal v) "ok") false)', True),
        ("(signal named :key (signal v))", True),
    ],
)
async def test_a_condition_that_is_compared_in_a_test_is_its_value(test: str, holds: bool) -> None:
    forms = f"""(defn both (a b) (and a b)) (defn ok (x) (= x "ok")) (defn fine (x) (ok x))
      (state s (branch (on {test} (result true)) (otherwise (result false))))"""
    async with session() as space:
        await space.signal("v", key="a", value="ok")
        await space.signal("empty")
        await space.signal("named", key="ok")
        await space.dataspace.assert_fact("(score :n 7)")
        assert await value_of(await start(space, forms, label="a")) is holds


async def test_a_loop_ends_when_a_signal_has_a_value() -> None:
    turn = '(wait (fact (turn))) (retract (turn)) (log "again")'
    async with session() as space:
        run = await start(space, f'(state s (loop {turn} :until (= (signal v) "ok")))')
        await space.signal("v", value="no")
        await space.dataspace.assert_fact("(turn)")
        await until(lambda: len(logged(run)) == 1)
        await space.signal("v", value="ok")
        await space.dataspace.assert_fact("(turn)")
        await value_of(run)
    assert len(logged(run)) == 2


async def test_a_node_of_the_spec_sees_the_names_around_it() -> None:
    forms = """(state s (let ((xs [1 2 3]))
      (let ((doubled (node {:kind "call" :target "double" :input {:of xs :n (count xs)}})))
        (result doubled))))"""
    async with session() as space:
        space.node(lambda context: [context.input["of"], context.input["n"] * 2], id="double")
        assert await value_of(await start(space, forms)) == [[1, 2, 3], 6]


async def test_a_limit_is_called_as_the_file_calls_it() -> None:
    async with session() as space:
        limits = "(limits :wall-time 0.05)"
        run = await start(space, limits, '(state s (bash "sleep 20"))')
        with pytest.raises(Exception, match=r"raise it with \(limits :wall-time …\) in the file"):
            await value_of(run)
