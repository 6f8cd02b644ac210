"""What is wrong with a text is told with its place and the fix, as much as can be at once."""

import pytest

from nerve.notations.lisp import read_document
from notations.lisp.reading import refused, refused_body


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.lisp:1:1: The file contains no workflow. Write (workflow NAME"),
        ("; nothing", "The file contains no workflow"),
        ("x", "f.lisp:1:1: Expected a workflow, found x"),
        ("(workflw x)", "Unknown form 'workflw'. Did you mean 'workflow'?"),
        ("(workflow)", "The name of (workflow …) is missing"),
        ("(workflow 3 (state s))", "f.lisp:1:11: Expected the name of a workflow, found 3"),
        ("(workflow w)", "A workflow must have at least one state"),
        (
            "(workflow a (state s))\n(workflow b (state s))",
            "f.lisp:2:1: A file must contain only one workflow",
        ),
        ("(workflow w (stat s))", "f.lisp:1:13: Unknown form in a workflow 'stat'. Did you mean 'state'?"),
        ("(workflow w x (state s))", "Expected a form of a workflow, found x"),
        ("(workflow w (state))", "The name of (state …) is missing"),
        ("(workflow w (state (a)))", "Expected the name of a state, found (a)"),
        ("(workflow w (state s)\n (state s))", "f.lisp:2:9: The state 's' is duplicated"),
        ("(workflow w (roles (a) (a)) (state s))", "The role 'a' is duplicated"),
        ("(workflow w (roles a) (state s))", "found a"),
        ('(workflow w (roles (a :agent-knd "x")) (state s))', "Did you mean 'agent-kind'?"),
        ("(workflow w (roles (a :agent-kind)) (state s))", ":agent-kind has no value"),
        ("(workflow w (roles) (roles) (state s))", "(roles …) is duplicated"),
        ("(workflow w (inputs (a :typ string)) (state s))", "Did you mean 'type'?"),
        ("(workflow w (inputs (a) (a)) (state s))", "The input 'a' is duplicated"),
        ("(workflow w (limits :stps 3) (state s))", "Did you mean 'steps'?"),
        ("(workflow w (metadata (label)) (state s))", "(label …) takes 1 argument, got 0"),
        ("(workflow w (metadata (label 3)) (state s))", "Expected a label, found 3"),
        ("(workflow w (state s (terminal) (terminal)))", "(terminal) must be the last form of its state"),
        ("(workflow w (state s (terminal 1)))", "(terminal) takes no arguments"),
        ("(spec)", "(spec …) takes exactly one map"),
        ("(spec {:a b})", "'b' is not a value. Put strings in double quotes."),
        ("(spec {:a (b)})", "Expected a value, found (b)"),
        ("(defn f (x) x) (spec {})", "(spec …) cannot use helpers"),
        (
            "(workflow w (defn (f x y) x) (state s))",
            "f.lisp:1:19: The name of a helper must precede its parameters. Write (defn f (x y) EXPR).",
        ),
        ("(workflow w (define (f x) x) (state s))", "Write (defn f (x) EXPR)"),
    ],
)
def test_a_wrong_text_is_refused(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(sned-prompt)", "Unknown form 'sned-prompt'. Did you mean 'send-prompt'?"),
        ("x", "Expected a form such as (log …), found x"),
        ("()", "Expected a form such as (log …), found ()"),
        ("(on true)", "(on …) is not allowed here. Use it in (branch …) or (select …)."),
        ("(signal a)", "(signal …) is not allowed here. It is an expression"),
        ('(send-prompt :template "x")', ":agent of (send-prompt …) is missing"),
        ("(send-prompt :agent planner)", ":template of (send-prompt …) is missing"),
        ('(send-prompt :agent planner :template "x" :tagg y)', "Did you mean 'tag'?"),
        ('(send-prompt :agent planner :template "x" :tag y :tag z)', ":tag is duplicated"),
        ('(send-prompt planner :template "x")', "(send-prompt …) takes 0 arguments, got 1"),
        ('(send-prompt :agent planner :template "~a" :args 3)', "Expected a list of arguments, found 3"),
        ("(wait)", "(wait …) takes 1 argument, got 0"),
        ("(wait (sginal a))", "Expected a condition, found (sginal a). Did you mean 'signal'?"),
        ("(wait (signal))", "(signal …) takes 1 argument, got 0"),
        ("(wait (transcript-response))", ":request-id of (transcript-response …) is missing"),
        ("(goto nowhere)", "Unknown state 'nowhere'"),
        ("(goto othr)", "Did you mean 'other'?"),
        ("(loop :max 0)", "Expected an integer of at least 1, found 0"),
        ("(loop :max)", ":max has no value"),
        ("(branch)", "(branch …) takes 1 to 30 (on …) clauses, got 0"),
        ("(branch (otherwise) (on true))", "(otherwise …) must be the last clause"),
        ("(branch (onn true))", "Expected a clause of (branch …), found (onn true)"),
        ("(branch (on))", "Expected a clause of (branch …), found (on)"),
        ("(select (on (signal a)) (timeout))", "The seconds of (timeout …) are missing"),
        ("(select (on (signal a)) (timeout x))", "Expected seconds, found x"),
        ("(select (on (= 1 1)))", "Expected a condition, found (= 1 1)"),
        ("(with-timeout 3)", "The seconds or the body of (with-timeout …) are missing"),
        ('(with-timeout -1 (log "x"))', "Expected seconds, found -1"),
        ("(let)", "The names of (let …) are missing"),
        ("(let ((x)))", "Expected (name EXPR), found (x)"),
        ("(let ((1 2)))", "Expected a name, found 1"),
        ("(node 3)", "Expected a map, found 3"),
        ("(bash 3)", "Expected a command, found 3"),
    ],
)
def test_a_wrong_body_is_refused(body: str, message: str) -> None:
    assert message in refused_body(body)


def test_all_problems_are_reported_in_source_order() -> None:
    text = """(workflow w
  (roles (planner :agnt "x"))
  (state s
    (goto nowhere)
    (loop (lgo "x")
      (branch (on (nope) (wait 3)) (otherwise (let ((x (y))) (log "~a" x)))))))"""
    told = [line.split(": ", 1) for line in refused(text).split("\n")]
    assert [place for place, _ in told] == [
        "f.lisp:2:19",
        "f.lisp:4:11",
        "f.lisp:5:11",
        "f.lisp:6:19",
        "f.lisp:6:32",
        "f.lisp:6:56",
    ]


def test_what_is_nested_too_deeply_for_the_spec_is_refused() -> None:
    deep = '(loop (log "y") ' * 40 + '(log "x")' + ")" * 40
    assert "The workflow is nested deeper than 64 levels" in refused_body(deep)


@pytest.mark.parametrize(
    ("loop", "endless"),
    [
        ('(loop (log "x"))', True),
        ('(loop (log "x") :max 3)', True),
        ('(loop (log "x") :times 3)', False),
        ('(loop (log "x") :until (= 1 1))', False),
        ("(loop (branch (on (= 1 1) (goto a))))", False),
    ],
)
def test_a_loop_that_nothing_leaves_is_a_warning(loop: str, endless: bool) -> None:
    notes = read_document(f"(workflow w (state a {loop} (terminal)))", "f.lisp").warnings
    told = ["f.lisp:1:22: warning: This loop only ends by failing. Add :until, :times or a (goto …)."]
    assert [str(note) for note in notes] == (told if endless else [])
