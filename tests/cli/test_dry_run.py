"""`nerve run --dry-run`: the way a workflow goes with stub answers, and nothing done on it."""

import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def traced(said) -> list[dict]:
    return [json.loads(line) for line in said.out.splitlines()]


def flow(project, body: str, more: str = "") -> str:
    (project / "flow.yaml").write_text(f"name: flow\ndescription: d\n{more}body: {body}\n")
    return "flow.yaml"


def test_leaves_are_stubs_and_gates_take_their_first_choice(do, project) -> None:
    done = do("run", "ship", "hello", "--count=3", "--dry-run")
    assert done.code == 0
    assert traced(done) == [
        {"call": "build", "input": "hello", "success": True, "output": "(dry run: build)"},
        {"gate": "Ship it?", "answer": "yes"},
        {"call": "notifier", "input": "hello", "success": True, "output": "(dry run: notifier)"},
    ]
    assert not (project / "effects").exists()
    assert not (project / ".nerve/nerve.db").exists()


def test_a_rejection_cancels_a_dry_run(do, project) -> None:
    gate = "{kind: gate, id: sure, choices: [yes-do, reject], reject: [reject], on_error: skip}"
    file = flow(project, f"{{kind: sequence, steps: [{gate}, {{kind: bash, id: ship, command: echo}}]}}")
    done = do("run", file, "--dry-run", "--answer", "sure=reject")
    assert done.code == 3
    assert traced(done)[:1] == [{"gate": "Approve?", "answer": "reject"}]
    assert "ship" not in done.out


@pytest.mark.parametrize("folder", [".nerve", ".archon"])
def test_a_dry_run_stores_nothing(folder, do, project) -> None:
    file = project / folder / "workflows/deep.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "name: deep\ndescription: d\nbody: {kind: sequence, steps: ["
        "{kind: prompt, id: p, text: 'Write to $ARTIFACTS_DIR'}, {kind: workflow, workflow: parent}]}\n"
    )
    before = sorted(project.rglob("*"))
    assert do("run", "deep", "--dry-run").code == 0
    assert sorted(project.rglob("*")) == before


def test_a_dry_run_as_one_json_object(do) -> None:
    done = do("run", "ship", "hello", "--count=3", "--dry-run", "--json", "--answer", "approve=no")
    told = done.json
    assert done.code == 3
    assert (told["workflow"], told["state"], told["notes"]) == ("ship", "cancelled", [])
    assert told["trace"][-1] == {"gate": "Ship it?", "answer": "no"}


def test_inputs_are_checked_and_code_is_not_executed(do) -> None:
    assert do("run", "ship", "--dry-run").code == 2
    done = do("run", "flows.py:greet", "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert "A dry run cannot execute Python code" in done.err


def test_called_workflows_are_simulated(do) -> None:
    assert traced(do("run", "parent", "--dry-run")) == [{"gate": "Which colour?", "answer": "approve"}]


def test_waits_end_at_once_and_checks_pass(do, project) -> None:
    file = flow(
        project,
        "{kind: sequence, steps: [{kind: wait, seconds: 3600},"
        " {kind: wait, id: w, any: [{name: go, signal: s}]},"
        " {kind: bash, id: b, command: 'exit 1', expect: [{file: gone}, {condition: 'output == 1'}]},"
        " {kind: assert, id: a, signal: done, value: 1},"
        " {kind: transform, expression: 'steps.w.attributes.which'}]}",
    )
    done = do("run", file, "--dry-run")
    assert done.code == 0
    assert [entry["call"] for entry in traced(done)] == ["b", "a"]


@pytest.mark.parametrize(
    "body",
    [
        "{kind: while, id: l, condition: 'true', body: {kind: bash, id: b, command: x}}",
        "{kind: loop, id: l, until: 'given == 1', body: {kind: bash, id: b, command: x}}",
        "{kind: loop, id: l, times: 1000, max_iterations: 1000, body: {kind: bash, id: b, command: x}}",
        "{kind: machine, states: [{name: l, body: {kind: bash, id: b, command: x}, next: [{to: l}]}]}",
    ],
)
def test_loops_run_once_with_a_note(body, do, project) -> None:
    done = do("run", flow(project, body), "--dry-run")
    assert done.code == 0
    assert [entry["call"] for entry in traced(done)] == ["b"]
    assert "runs once" in done.err
    assert "'l'" in done.err


def test_remaining_answers_let_a_loop_repeat(do, project) -> None:
    body = "{kind: loop, id: l, until: \"given == 'yes'\", body: {kind: gate, id: ok, prompt: OK?}}"
    done = do("run", flow(project, body), "--dry-run", "--answer", "ok=no", "--answer", "ok=yes")
    assert [entry["answer"] for entry in traced(done)] == ["no", "yes"]
    assert done.err == ""


def test_steps_that_depend_on_a_real_answer_are_noted_and_the_run_continues(do, project) -> None:
    body = (
        "{kind: sequence, steps: [{kind: bash, id: plan, command: x},"
        " {kind: map, id: m, over: steps.plan.output.items, body: {kind: call, id: each, target: worker}},"
        " {kind: branch, id: q, condition: steps.plan.output.a.b, then: {kind: call, target: aye},"
        "  otherwise: {kind: call, target: nay}},"
        " {kind: switch, id: s, key: given, cases: {a: {kind: call, target: first}}},"
        " {kind: transform, id: t, expression: steps.plan.output.a.b},"
        " {kind: call, id: last, target: last, input: '{{ steps.plan.output.a.b }}'}]}"
    )
    done = do("run", flow(project, body), "--dry-run")
    assert done.code == 0
    assert [entry["call"] for entry in traced(done)] == ["plan", "worker", "aye", "first", "last"]
    for name in ("m", "q", "t", "last"):
        assert f"'{name}' depends on an output that a dry run does not have" in done.err


@pytest.mark.parametrize(
    "file",
    [
        *sorted((EXAMPLES / "workflows").glob("json/*.json")),
        *sorted((EXAMPLES / "workflows").glob("lisp/*.lisp")),
        EXAMPLES / "projects/feature-development/.archon/workflows/feature-development.yaml",
    ],
    ids=lambda path: path.name,
)
def test_the_examples_have_a_dry_run_without_agents(file, do) -> None:
    done = do("run", str(file), "add a login", "--dry-run", "--json")
    assert (done.code, done.json["state"]) == (0, "completed")
    assert done.json["trace"]
