"""The forms beyond the first program, and what each becomes."""

from typing import Any

import pytest

from nerve.notations.lisp import read_document
from notations.lisp.reading import SEND, checked, in_workflow, refused_body, states, steps


def test_a_loop_is_bounded_and_may_end_by_a_count_or_a_condition() -> None:
    [loop] = steps('(loop :max 7 (log "x"))')
    assert (loop["until"], loop["max_iterations"]) == ("false", 7)
    [loop] = steps('(loop :times 3 (log "x"))')
    assert (loop["times"], "until" in loop) == (3, False)
    [loop] = steps('(loop :times 200 (log "x"))')
    assert loop["max_iterations"] == 200
    [loop] = steps('(loop (log "x") :until (> (iteration) 2))')
    assert loop["until"] == "(iteration > 2)"


def test_a_loop_until_a_signal_tests_it_at_the_end_of_each_round() -> None:
    [loop] = steps('(loop (log "x") :until (signal stop))')
    assert [step["kind"] for step in loop["body"]["steps"]] == ["emit", "wait"]
    assert loop["body"]["steps"][1]["test"] is True
    assert loop["until"] == "steps._signal_1.output"


def test_a_branch_of_several_conditions_tests_all_and_takes_the_first_that_holds() -> None:
    one, two, switch = steps(
        '(branch (on (signal a) (log "a")) (on (not (signal b)) (log "b")) (on (= 1 2))'
        ' (otherwise (log "c")))'
    )
    assert (one["test"], two["test"]) == (True, True)
    assert switch["key"] == (
        'steps._signal_1.output ? "on1" : (!steps._signal_2.output) ? "on2" : (1 === 2) ? "on3" : "otherwise"'
    )
    assert list(switch["cases"]) == ["on1", "on2", "on3"]
    assert switch["cases"]["on3"] == {"kind": "transform", "expression": "given"}
    assert switch["default"]["data"] == {"message": "c"}


def test_select_waits_for_the_first_of_several_conditions() -> None:
    _, wait, switch = steps(
        f'{SEND} (select (on (signal a :key 1) :as said (log "~a" said)) (on (signal a :key 2))'
        " (when (transcript-response :request-id go) (goto other)) (on (fact (score ?n)))"
        ' (timeout 1.5 (log "late")))'
    )
    assert wait == {
        "kind": "wait",
        "id": "_select_1",
        "any": [
            {"signal": "a", "key": "1", "name": "a"},
            {"signal": "a", "key": "2", "name": "a-2"},
            {"response": "go", "name": "go"},
            {"fact": ["score", "?n"], "name": "score"},
        ],
        "timeout": 1.5,
        "on_timeout": "timeout",
    }
    assert switch["key"] == "steps._select_1.attributes.which"
    assert list(switch["cases"]) == ["a", "a-2", "go", "score", "timeout"]
    assert switch["cases"]["a"]["data"] == {"message": "{{ steps._select_1.output }}"}


def test_with_timeout_is_a_sequence_with_a_time_and_something_to_do_instead() -> None:
    [made] = steps('(with-timeout 30 (wait (signal a)) (log "x") (on-timeout (goto other)))')
    assert (made["kind"], made["timeout"], len(made["steps"])) == ("sequence", 30, 2)
    assert made["on_timeout"] == {"kind": "goto", "state": "other"}
    assert "on_error" not in made
    [made] = steps("(with-timeout 30 (wait (signal a)))")
    assert "on_timeout" not in made
    [made] = steps("(with-timeout 30 (wait (signal a)) (on-timeout))")
    assert made["on_timeout"] == "skip"


@pytest.mark.parametrize(
    ("form", "node"),
    [
        (
            "(assert (signal a/b :key @workflow-id :value {:n 1}))",
            {"kind": "assert", "signal": "a/b", "key": "{{ run.label }}", "value": {"n": 1}},
        ),
        ("(assert (signal a))", {"kind": "assert", "signal": "a"}),
        ("(retract (signal a :scope 1))", {"kind": "retract", "signal": "a", "key": "1"}),
        (
            '(assert (score planner "x" [1 true] :of @workflow-id :n (+ 1 2)))',
            {
                "kind": "assert",
                "fact": ["score", "planner", "x", [1, True], {"of": "{{ run.label }}", "n": "{{ (1 + 2) }}"}],
            },
        ),
        ("(assert (point {:x 1}))", {"kind": "assert", "fact": ["point", {"x": 1}, {}]}),
        ('(assert (q "?x" "_"))', {"kind": "assert", "fact": ["q", "?x", "_"]}),
        (
            '(retract (score _ ?n "?x" "_" "\\\\" :of nil))',
            {"kind": "retract", "fact": ["score", "_", "?n", "\\?x", "\\_", "\\\\", {"of": None}]},
        ),
        (
            "(wait (fact (score :of planner :n ?n)))",
            {"kind": "wait", "any": [{"fact": ["score", {"of": "planner", "n": "?n"}]}]},
        ),
        (
            '(log "50% ~~ {{x}} ~a" 3)',
            {"kind": "emit", "event": "log", "data": {"message": "50% ~ \\{{x}} 3"}},
        ),
        ("(result (input))", {"kind": "transform", "expression": "input"}),
        ("(goto other)", {"kind": "goto", "state": "other"}),
        (
            '(gate "Ship ~a?" (input) :choices (yes "not yet") :reject ("not yet") :default yes :timeout 60)',
            {
                "kind": "gate",
                "prompt": "Ship {{ input }}?",
                "choices": ["yes", "not yet"],
                "reject": ["not yet"],
                "default": "yes",
                "timeout": 60,
            },
        ),
        (
            '(bash "echo \\"$A\\"" :env {:A (input)} :input "x")',
            {"kind": "bash", "command": 'echo "$A"', "env": {"A": "{{ input }}"}, "input": "x"},
        ),
        (
            "(call lint :input {:a (input)})",
            {"kind": "call", "target": "lint", "input": {"a": "{{ input }}"}},
        ),
        (
            '(run-workflow deploy :params {:to "prod"})',
            {"kind": "workflow", "workflow": "deploy", "params": {"to": "prod"}},
        ),
        ('(node {:kind "wait" :seconds 5})', {"kind": "wait", "seconds": 5}),
    ],
)
def test_each_form_becomes_its_node(form: str, node: dict[str, Any]) -> None:
    assert steps(form) == [node]


def test_let_binds_values_answers_signals_and_outputs_of_steps() -> None:
    found = steps(
        f"{SEND} (let ((a (+ 1 2)) (b (* a 2)) (said (await (transcript-response :request-id go)))"
        ' (sure (gate "Sure?")) (named (node {:id "my-x" :kind "bash" :command "ls"})))'
        ' (log "~a ~a ~a ~a ~a" a b said sure named))'
    )
    _, a, b, said, sure, named, log = found
    assert a == {"kind": "transform", "id": "_a_1", "expression": "(1 + 2)"}
    assert b == {"kind": "transform", "id": "_b_2", "expression": "(steps._a_1.output * 2)"}
    assert said["any"] == [{"response": "go"}]
    assert log["data"]["message"] == (
        "{{ steps._a_1.output }} {{ steps._b_2.output }} "
        f"{{{{ steps.{said['id']}.output }}}} "
        f'{{{{ steps["{sure["id"]}"].output }}}} '
        '{{ steps["my-x"].output }}'
    )
    assert named["id"] == "my-x"


def test_a_gate_that_let_binds_is_answered_by_its_name_if_that_is_free() -> None:
    ask = '(gate "Which?")'
    found = steps(
        f'(let ((kind {ask})) (log "~a" kind)) (let ((kind {ask}) (s {ask}) (x? {ask}) (mine {ask}))'
        ' (log "~a" kind)) (node {:kind "bash" :id "mine" :command "ls"})'
    )
    kind, log, again, *others, second, _ = found
    assert kind["id"] == "kind"
    assert log["data"]["message"] == '{{ steps["kind"].output }}'
    assert [node["id"] for node in (again, *others)] == ["_kind_1", "_s_2", "_x_3", "_mine_4"]
    assert second["data"]["message"] == '{{ steps["_kind_1"].output }}'


def test_a_name_is_in_sight_only_in_its_let_and_an_inner_one_hides_an_outer_one() -> None:
    *_, log = steps('(let ((x 1)) (let ((x (+ x 1))) (log "~a" x)))')
    assert log["data"]["message"] == "{{ steps._x_2.output }}"
    assert "Unknown name 'x'" in refused_body('(let ((x 1))) (log "~a" x)')
    assert "Unknown name 'x'" in refused_body("(let ((x x)))")


def test_a_helper_is_written_out_where_it_is_called() -> None:
    more = "(defn more [x y] (+ (twice x) y))"
    text = f'(workflow w {more} (state s (result (more (input) "a"))))'
    body = checked(f"(defn twice (x) (* 2 x)) {text}").data["body"]["states"][0]["body"]
    assert body["expression"] == '((2 * input) + "a")'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(defn f (x) (f x))", "The helper 'f' is not defined yet. A helper can only call helpers above it"),
        ("(defn f (x) (g x)) (defn g (x) x)", "Unknown function 'g'"),
        ("(defn f (x) y)", "Unknown name 'y'"),
        ("(defn f (x x) x)", "Duplicate parameter"),
        ("(defn str (x) x)", "'str' is already defined"),
        ("(defn f (x) x) (defn f (x) x)", "'f' is already defined"),
        ("(defn f (x) (signal a))", "(signal …) is not allowed here. Bind it with let"),
        ("(defn f x x)", "Expected the parameters of a helper, found x"),
    ],
)
def test_a_helper_is_pure_and_ends(text: str, message: str) -> None:
    assert message in refused_body("", text)


def test_helpers_that_would_grow_without_end_are_refused() -> None:
    helpers = ["(defn f0 (x) (+ x x))", *(f"(defn f{n} (x) (f{n - 1} (f{n - 1} x)))" for n in range(1, 30))]
    assert "longer than 4000 characters" in refused_body("(result (f29 1))", *helpers)


def test_roles_inputs_and_limits_are_declared() -> None:
    text = in_workflow(
        '(inputs (task :type string :required true :description "What") (n :type integer :default 3))',
        "(limits :steps 50 :wall-time 3600)",
        '(state s (send-prompt :agent worker :template "~a ~a" :args ((inputs task) (inputs n))))',
    )
    data = checked(text).data
    assert data["inputs"] == {
        "task": {"type": "string", "required": True, "description": "What"},
        "n": {"type": "integer", "default": 3},
    }
    assert data["limits"] == {"steps": 50, "wall_time": 3600}
    prompt = data["body"]["states"][0]["body"]
    assert prompt["args"] == {"a1": '{{ inputs["task"] }}', "a2": '{{ inputs["n"] }}'}
    assert (prompt["role"], prompt["thread"], "agent" in prompt) == ("worker", "worker", False)


def test_a_form_after_a_goto_is_reported_as_unreachable() -> None:
    document = read_document(in_workflow('(state s (goto t) (log "x"))', "(state t)"), "f.lisp")
    [note] = document.warnings
    assert (note.severity, note.message) == ("warning", "This form is unreachable")


def test_comments_stand_anywhere() -> None:
    [state] = states('#| a (comment |# (state s ; here\n (log "; not here"))')
    assert state["body"]["data"] == {"message": "; not here"}
