"""Traces: the same workflow gives the same trace in every notation."""

from nerve import Session
from nerve.core.nodes import FunctionNode
from nerve.testing import ScriptedProvider
from nerve.testing.trace import trace

YAML = """
name: same
description: d
body:
  kind: sequence
  steps:
    - {kind: call, id: a, target: double, input: "{{ input }}"}
    - {kind: gate, id: g, prompt: "Go on?", choices: [yes, no]}
    - {kind: loop, id: l, times: 2, body: {kind: call, id: b, target: double, input: 3}}
    - {kind: call, id: c, target: broken, on_error: skip}
"""


def session() -> Session:
    made = Session(providers={"claude": ScriptedProvider(lambda call: "said")})
    FunctionNode("double", made, lambda context: context.input * 2)

    def broken(context):
        raise ValueError("no luck")

    FunctionNode("broken", made, broken)
    return made


async def done(session: Session, name: str, *answers: str, **given) -> list[dict]:
    run = await session.start(name, 2, **given)
    for answer in answers:
        await run.next_gate()
        await run.answer(answer)
    await run.wait()

    def child(run_id: str):
        return session.get_workflow_run(run_id).events

    return trace(run.events, child)


EXPECTED = [
    {"call": "double", "input": 2, "success": True, "output": 4},
    {"gate": "Go on?", "answer": "yes"},
    {"call": "double", "input": 3, "success": True, "output": 6},
    {"call": "double", "input": 3, "success": True, "output": 6},
    {"call": "broken", "input": 6, "success": False, "error": "no luck"},
]


async def test_a_file_and_a_function_leave_the_same_trace() -> None:
    made = session()
    made.load(YAML)

    @made.workflow
    async def same_in_python(ctx):
        await ctx.run("double", ctx.input)
        await ctx.gate("Go on?", choices=["yes", "no"])
        for _ in range(2):
            last = await ctx.run("double", 3)
        await ctx.run("broken", last.output, on_error="skip")

    assert await done(made, "same", "yes") == EXPECTED
    assert await done(made, "same_in_python", "yes") == EXPECTED


async def test_an_open_entry_has_no_outcome() -> None:
    made = session()
    made.load(YAML)
    run = await made.start("same", 2)
    await run.next_gate()
    assert trace(run.events)[-1] == {"gate": "Go on?"}
    await run.stop()


async def test_the_calls_of_a_child_appear_where_it_was_called() -> None:
    made = session()
    made.load(YAML)
    made.load(
        "name: outer\ndescription: d\nbody: {kind: sequence, steps: ["
        "{kind: workflow, id: w, workflow: same, input: 2}, {kind: call, id: z, target: double, input: 1}]}"
    )
    run = await made.start("outer")
    await run.next_gate()
    await run.answer("yes")
    await run.wait()
    after = {"call": "double", "input": 1, "success": True, "output": 2}
    within = trace(run.events, lambda id: made.get_workflow_run(id).events)
    assert within == [*EXPECTED, after]
    alone = trace(run.events)
    assert [entry["call"] for entry in alone] == ["same", "double"]


async def test_a_prompt_is_traced_by_its_text_and_internal_leaves_are_omitted() -> None:
    made = session()
    made.load(
        "name: asks\ndescription: d\nbody: {kind: prompt, id: p, text: 'Say {{ input }}', provider: claude,"
        " expect: [{command: 'true'}]}"
    )
    assert await done(made, "asks") == [
        {"call": "claude", "input": "Say 2", "success": True, "output": "said"}
    ]
