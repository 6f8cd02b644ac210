# ruff: noqa: E501 (a line is a case)
"""Problems that the checker finds before a run."""

import json
import subprocess
import sys
from typing import Any

import pytest

from nerve import Session
from nerve.notations import read_source
from nerve.spec.checker import check_document
from nerve.text.source import Position
from spec.support import checked, loaded, problems


def transform(expression: str, **more: Any) -> dict[str, Any]:
    return {"kind": "transform", "expression": expression, **more}


def machine(*states: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "machine", "states": list(states)}


def test_a_good_workflow_has_no_problems() -> None:
    assert problems(transform("input")) == []


def test_an_unknown_kind_gets_a_suggestion() -> None:
    (problem,) = problems({"kind": "bsh", "command": "ls"})
    assert problem == "Unknown kind 'bsh'. Did you mean 'bash'?"


def test_an_unknown_kind_without_a_similar_one_lists_all_kinds() -> None:
    (problem,) = problems({"kind": "zzz"})
    assert problem.startswith("Unknown kind 'zzz' Known: call, prompt, bash,")


def test_an_unknown_kind_of_a_handler_is_one_problem() -> None:
    (problem,) = problems({"kind": "bash", "command": "ls", "on_error": {"kind": "bsh"}})
    assert problem == "Unknown kind 'bsh'. Did you mean 'bash'?"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"timeout": "30"}, "'timeout' must be a number, got \"30\" Write it without quotes."),
        ({"timeout": "30s"}, "'timeout' must be a number, got \"30s\" Write a number such as 30 or 1.5."),
        ({"timeout": -1}, "'timeout' must be at least 0, got -1 Change the value."),
        (
            {"retry": 3},
            "'retry' must be an object, got 3 Keys: attempts, delay, factor, cap, jitter, on, on_text, not_on_text.",
        ),
        (
            {"retry": {"attempts": 1.5}},
            "'attempts' must be an integer, got 1.5 Write a number such as 3.",
        ),
        (
            {"on_error": "skp"},
            "'on_error' must be 'fail' or 'skip' or an object, got \"skp\" Did you mean 'skip'?",
        ),
        ({"on_error": 3}, "'on_error' must be 'fail' or 'skip' or an object, got 3 Change the value."),
        ({"on_error": {"kind": "bash"}}, "'command' is missing Add command."),
        ({"effect": "never"}, "'effect' must be 'repeat' or 'once', got \"never\" Change the value."),
        ({"depends_on": "a"}, "'depends_on' must be a list, got \"a\" Put it in brackets: […]."),
        ({"depends_on": ["a", 3]}, "Item 2 of 'depends_on' must be a string, got 3 Put it in double quotes."),
        ({"expect": [{"fil": "a"}]}, "Unknown key 'fil'. Did you mean 'file'?"),
        ({"env": {"A": 1}}, "'A' must be a string, got 1 Put it in double quotes."),
        ({"id": ""}, "'id' must be a non-empty string, got \"\" Change the value."),
        ({"if": "true"}, "Unknown key 'if'. Did you mean 'when'?"),
    ],
)
def test_an_invalid_value_is_one_problem(wrong: dict[str, Any], told: str) -> None:
    assert problems({"kind": "bash", "command": "ls", **wrong}) == [told]


def test_a_misspelled_key_is_not_reported_as_missing_too() -> None:
    assert problems({"kind": "bash", "comand": "ls"}) == ["Unknown key 'comand'. Did you mean 'command'?"]


def test_an_unknown_key_gets_a_suggestion() -> None:
    assert problems({"kind": "bash", "command": "ls", "timout": 3}) == [
        "Unknown key 'timout'. Did you mean 'timeout'?"
    ]


def test_a_missing_key_is_named() -> None:
    assert problems({"kind": "bash"}) == ["'command' is missing Add command."]


def test_a_type_error_contains_the_value() -> None:
    (problem,) = problems({"kind": "bash", "command": 3})
    assert problem == "'command' must be a string, got 3 Put it in double quotes."


@pytest.mark.parametrize(
    ("late", "told"),
    [
        ({"on_timeout": "skip"}, "on_timeout has no effect without a timeout Add a timeout."),
        (
            {"timeout": 1, "on_timeout": "skp"},
            "'on_timeout' must be 'skip' or an object, got \"skp\" Did you mean 'skip'?",
        ),
        ({"timeout": 1, "on_timeout": {"kind": "bash"}}, "'command' is missing Add command."),
        (
            {"timeout": 1, "on_timeout": {"kind": "goto", "state": "x"}},
            "goto is outside a machine Use it inside the body of a state.",
        ),
    ],
)
def test_the_handler_of_a_timeout_is_checked(late: dict[str, Any], told: str) -> None:
    body = {"kind": "sequence", "steps": [{"kind": "bash", "command": "ls"}], **late}
    assert problems(body) == [told]


def test_a_pattern_that_cannot_be_matched_in_linear_time_is_an_error() -> None:
    schema = {"type": "string", "pattern": "^(?=a)b"}
    for node in (
        {"kind": "gate", "prompt": "n?", "form": schema},
        {"kind": "prompt", "text": "n?", "output_schema": schema},
        {"kind": "bash", "command": "ls", "expect": [{"schema": schema}]},
    ):
        (problem,) = problems(node)
        assert problem.startswith("pattern '^(?=a)b' is not supported: ")
        assert problem.endswith("Use RE2 syntax, without look-around and back-references")


def test_every_problem_has_the_line_and_column_of_the_source() -> None:
    found = checked(
        {"name": "flow", "body": {"kind": "sequence", "steps": [transform("1"), transform("1 +")]}}
    )
    (problem,) = found.errors
    assert (problem.file, problem.position.line) == ("flow.json", 12)
    assert str(problem).startswith("flow.json:12:")


def test_an_expression_error_has_its_exact_position() -> None:
    found = checked({"name": "flow", "body": transform("input + nope")})
    (problem,) = found.errors
    assert problem.position.column == '    "expression": "input + nope"'.index("nope") + 1


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ('prompt: "Look at {{ steps.plan.output }} and {{ steps.dif.output }}"', "steps.dif"),
        ("prompt: '{{ steps.dif.output }}'", "steps.dif"),
        ("prompt: Look at {{ results.plan + results.dif }}", "results.dif"),
        ("prompt: Look at {{ results['dif'] }}", "results['dif']"),
        ("prompt: |\n      Look at this\n\n      now, {{ steps.dif.output }}", "steps.dif"),
        ("prompt: Look at $INPUTS.dif", "$INPUTS.dif"),
        ("prompt: no\n    when: steps.dif.success", "steps.dif"),
        ('prompt: "\\u004cook at {{ steps.dif.output }}"', "\\u004c"),
    ],
)
def test_an_unknown_reference_has_its_exact_position(written: str, at: str) -> None:
    text = (
        "name: w\ndescription: d\nnodes:\n  - id: look\n    depends_on: [plan]\n"
        f"    {written}\n  - {{id: plan, bash: ls}}\n"
    )
    [problem] = check_document(read_source(text, "w.yaml")).errors
    assert "'dif'" in problem.message
    assert problem.position == Position().at_offset(text, text.index(at))


def test_steps_of_the_step_machine_are_called_steps() -> None:
    steps = [
        {"id": "build", "type": "agent", "agent": "a", "next": "tset"},
        {"id": "test", "type": "approval"},
    ]
    found = check_document(read_source(json.dumps({"id": "w", "steps": steps}), "w.json"))
    assert [f"{problem.message} {problem.fix}" for problem in found.errors] == [
        "Unknown step 'tset'. Did you mean 'test'? Steps: build, test."
    ]
    steps[0]["next"] = None
    found = check_document(read_source(json.dumps({"id": "w", "steps": steps}), "w.json"))
    assert [problem.message for problem in found.errors] == ["Step 'test' is unreachable"]


def test_an_unknown_step_gets_a_suggestion() -> None:
    body = {"kind": "sequence", "steps": [transform("1", id="plan"), transform("steps.plam.output")]}
    assert problems(body) == ["Unknown step 'plam'. Did you mean 'plan'?"]


def test_an_undeclared_input_is_a_problem() -> None:
    assert problems(transform("inputs.nme"), inputs={"name": {"type": "string"}}) == [
        "Unknown input 'nme'. Did you mean 'name'? Declare it under inputs."
    ]


def test_a_parallel_step_cannot_be_read() -> None:
    body = {"kind": "parallel", "branches": [transform("1", id="a"), transform("results.a", id="b")]}
    assert problems(body) == [
        "Step 'a' runs in parallel with this one Read it in a step after the parallel step."
    ]


def test_a_step_of_a_graph_may_read_what_it_depends_on() -> None:
    steps = [transform("1", id="a"), transform("results.a", id="b", depends_on=["a"])]
    assert problems({"kind": "graph", "steps": steps}) == []


def test_a_duplicate_id_is_a_problem() -> None:
    body = {"kind": "sequence", "steps": [transform("1", id="a"), transform("2", id="a")]}
    assert problems(body) == ["Duplicate id 'a' Rename one of them."]


def test_a_transition_to_an_unknown_state_is_a_problem() -> None:
    body = machine({"name": "plan", "body": transform("1"), "next": [{"to": "cod"}]}, {"name": "code"})
    assert problems(body) == ["Unknown state 'cod'. Did you mean 'code'? States: plan, code."]


def test_an_unreachable_state_is_a_problem() -> None:
    assert problems(machine({"name": "a"}, {"name": "b"})) == [
        "State 'b' is unreachable Add a transition to it, or remove it."
    ]


def test_a_dependency_cycle_is_a_problem() -> None:
    steps = [transform("1", id="a", depends_on=["b"]), transform("1", id="b", depends_on=["a"])]
    (problem,) = problems({"kind": "graph", "steps": steps})
    assert problem.startswith("Dependency cycle: ")


def test_a_loop_without_an_end_is_a_problem() -> None:
    assert problems({"kind": "loop", "body": transform("1")}) == [
        "A loop needs 'times' or 'until'; without them it never ends Add one of them."
    ]


@pytest.mark.parametrize("around", ["map", "parallel", "graph"])
def test_a_goto_cannot_leave_parts_that_still_run(around: str) -> None:
    goto = {"kind": "goto", "id": "go"}
    inner: dict[str, Any] = {
        "map": {"kind": "map", "body": goto},
        "parallel": {"kind": "parallel", "branches": [goto]},
        "graph": {"kind": "graph", "steps": [goto]},
    }[around]
    assert problems(machine({"name": "a", "body": inner})) == [
        f"goto cannot leave a {around}: its other parts still run Choose the next state by its result."
    ]


def test_a_template_in_single_quotes_of_a_command_is_refused() -> None:
    (problem,) = problems({"kind": "bash", "command": "echo '{{ input }}'"})
    assert "single quotes" in problem


async def test_a_workflow_with_unknown_names_does_not_start() -> None:
    session = Session()
    workflow = loaded(session, {"kind": "call", "target": "planner"})
    with pytest.raises(ValueError, match=r"<text>:1:\d+: Agent not found: planner"):
        await session.start(workflow.name)
    assert session.list_workflow_runs() == []


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "needs the input 'n' \\(integer\\)"),
        ({"n": "x"}, "Input 'n' must be an integer, got 'x'"),
        ({"n": 1, "m": 2}, "has no input 'm'. Inputs: n, mood"),
        ({"n": 1, "mood": "odd"}, "Input 'mood' must be one of \\['good'\\], got 'odd'"),
    ],
)
async def test_inputs_are_refused_before_anything_runs(params: dict[str, Any], message: str) -> None:
    session = Session()
    inputs = {"n": {"type": "integer", "required": True}, "mood": {"default": "good", "choices": ["good"]}}
    workflow = loaded(session, transform("inputs.n"), inputs=inputs)
    with pytest.raises(ValueError, match=message):
        await session.start(workflow.name, params=params)
    assert session.list_workflow_runs() == []


@pytest.mark.parametrize(
    ("states", "endless"),
    [
        ([{"name": "a", "next": [{"to": "b"}]}, {"name": "b", "next": [{"to": "a"}]}], True),
        ([{"name": "a", "body": {"kind": "goto", "state": "a"}}], True),
        ([{"name": "a"}], False),
        ([{"name": "a", "next": [{"to": "a", "when": "true"}]}], False),
        ([{"name": "a", "next": [{"to": "a", "when": "true"}, {}]}], False),
        ([{"name": "a", "terminal": True, "next": [{"to": "a"}]}], False),
        ([{"name": "a", "body": {"kind": "goto"}, "next": [{"to": "a"}]}], False),
        ([{"name": "a", "next": [{"to": "a"}], "on_error": "b"}, {"name": "b"}], False),
    ],
)
def test_a_machine_that_ends_only_when_it_fails_is_a_warning(states: list[Any], endless: bool) -> None:
    found = checked({"name": "flow", "body": machine(*states)})
    assert found.errors == []
    assert ["warning: No path leads from state 'a' to an end" in str(each) for each in found.problems] == (
        [True] if endless else []
    )


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (transform("steps.build.ouput"), "steps.build has no field 'ouput'. Did you mean 'output'?"),
        (transform("steps.build.outputs.version"), "steps.build has no field 'outputs'. Did you mean 'output'?"),
        (transform("steps.build.conclusion != 'failure'"), "steps.build has no field 'conclusion' Fields: status,"),
        (transform("run.idd"), "run has no field 'idd'. Did you mean 'id'?"),
        ({"kind": "prompt", "text": "{{ steps.build.ouput }}"}, "steps.build has no field 'ouput'"),
        ({"kind": "prompt", "text": "Do $build.output"}, "`$build.output` is not expanded here Write {{ steps.build.output }}."),
        ({"kind": "prompt", "text": "Do $build.output.kind."}, "`$build.output.kind` is not expanded here Write {{ steps.build.output.kind }}."),
        ({"kind": "bash", "command": "echo $build.output"}, "`$build.output` is not expanded here"),
        ({"kind": "prompt", "text": "Do ${{ steps.build.output }}"}, "`${{ … }}` must not start with a `$` here Write {{ … }}."),
        ({"kind": "bash", "command": "echo ${{ steps.build.output }}"}, "A `$` precedes a value Write {{ … }} without it."),
        ({"kind": "bash", "command": "ls", "env": {"A": "${{ steps.build.output }}"}}, "`${{ … }}` must not start"),
    ],
)  # fmt: skip
def test_a_misspelt_key_and_references_of_other_tools_are_errors(node: dict[str, Any], told: str) -> None:
    build = {"kind": "bash", "id": "build", "command": "echo v1"}
    (problem,) = problems({"kind": "sequence", "steps": [build, {**node, "id": "next"}]})
    assert problem.startswith(told)


@pytest.mark.parametrize(
    "node",
    [
        transform("steps.build.output.anything"),
        transform("steps['build'].success && run.label"),
        {"kind": "prompt", "text": "Look at $HOME.output, $file.output and \\\\$build.output"},
        {"kind": "bash", "command": "build=x; cat $build.output $HOME.output"},
        {"kind": "bash", "command": "for build in a b; do cat $build.output; done"},
    ],
)
def test_ordinary_text_is_not_taken_for_a_reference(node: dict[str, Any]) -> None:
    build = {"kind": "bash", "id": "build", "command": "echo v1"}
    assert problems({"kind": "sequence", "steps": [build, {**node, "id": "next"}]}) == []


def test_a_value_of_the_environment_is_not_evaluated_by_a_command() -> None:
    node = {"kind": "bash", "command": "echo $((N + 1))", "env": {"N": "{{ input }}"}}
    (problem,) = problems(node)
    assert problem.startswith("Bash evaluates strings in arithmetic as code")
    assert problems({**node, "env": {"N": "1"}}) == []
    assert problems({**node, "command": 'echo "$N"'}) == []
    with pytest.raises(ValueError, match="Bash evaluates strings in arithmetic as code"):
        loaded(Session(), node)


def test_the_parser_of_shell_scripts_is_imported_only_for_a_script_with_a_value() -> None:
    source = "name: a\ndescription: d\nnodes:\n- {id: a, bash: 'echo %s'}\n"
    program = (
        "import sys\nfrom nerve.notations import read_source\nfrom nerve.spec.checker import check_document\n"
        f"for value in ('hi', '{{{{ input }}}}'):\n"
        f"    assert not check_document(read_source({source!r} % value, 'f.yaml')).errors\n"
        "    print('tree_sitter' in sys.modules, 're2' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\nTrue False\n"


def test_an_agent_that_depends_on_a_later_step_is_not_parallel_to_it() -> None:
    steps = [{"kind": "prompt", "id": "b", "text": "x", "depends_on": ["a"]}, prompt_step("a")]
    assert checked({"name": "flow", "body": {"kind": "graph", "steps": steps}}).problems == []


def prompt_step(id: str) -> dict[str, Any]:
    return {"kind": "prompt", "id": id, "text": "x"}
