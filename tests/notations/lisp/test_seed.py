"""The first program in the language, as it stands, and the forms it uses."""

from pathlib import Path

import pytest

from nerve.notations.lisp import read_document
from nerve.text.source import Position
from notations.lisp.reading import SEND, checked, refused_body, states, steps

EXAMPLE = Path(__file__).parents[3] / "examples/workflows/lisp/planner-worker-review.lisp"
SCOPE = "{{ run.label }}"


@pytest.mark.requirement("S4-03")
@pytest.mark.requirement("S4-09")
def test_the_example_is_a_machine_of_its_four_states() -> None:
    data = checked(EXAMPLE.read_text()).data
    assert data["name"] == "planner-worker-review"
    assert data["metadata"] == {"label": "Planner/Worker review loop"}
    assert data["description"] == "Planner/Worker review loop"
    assert data["body"]["kind"] == "machine"
    ways = [(state["name"], state.get("next"), state.get("terminal")) for state in data["body"]["states"]]
    assert ways == [
        ("start", [{"to": "handoff"}], None),
        ("handoff", [{"to": "review"}], None),
        ("review", [{"to": "complete"}], None),
        ("complete", None, True),
    ]


@pytest.mark.requirement("S4-04")
@pytest.mark.requirement("S4-07")
def test_a_state_waits_for_a_signal_of_its_own_run() -> None:
    [start, *_] = read_document(EXAMPLE.read_text()).data["body"]["states"]
    assert start["body"] == {"kind": "wait", "any": [{"signal": "plan/ready", "key": SCOPE}]}


@pytest.mark.requirement("S4-05")
@pytest.mark.requirement("S4-06")
@pytest.mark.requirement("S4-08")
def test_a_handoff_waits_for_its_argument_sends_and_waits_for_the_answer() -> None:
    handoff = read_document(EXAMPLE.read_text()).data["body"]["states"][1]["body"]
    assert handoff["steps"] == [
        {"kind": "wait", "id": "_signal_1", "any": [{"signal": "plan/summary", "key": SCOPE}]},
        {
            "kind": "prompt",
            "role": "planner",
            "text": "Share your plan with implementer: {{ args.a1 }}",
            "args": {"a1": "{{ steps._signal_1.output }}"},
            "agent": "claude-code",
            "thread": "agent-a",
            "tag": "handoff-request",
            "detach": True,
        },
        {"kind": "wait", "any": [{"response": "handoff-request"}]},
    ]


def test_a_branch_in_a_loop_tests_the_signal_and_does_not_wait_for_it() -> None:
    loop = read_document(EXAMPLE.read_text()).data["body"]["states"][2]["body"]
    assert loop["kind"] == "loop"
    assert loop["until"] == "false"
    send, wait, test, branch = loop["body"]["steps"]
    assert send["text"] == "Review implementer's changes:\n{{ args.a1 }}"
    assert send["args"] == {"a1": '{{ roles["implementer"] }}'}
    assert wait["any"] == [{"response": "review-request"}]
    assert test == {
        "kind": "wait",
        "id": "_signal_2",
        "any": [{"signal": "review/satisfied", "key": SCOPE}],
        "test": True,
    }
    assert branch["condition"] == "steps._signal_2.output"
    assert branch["then"] == {"kind": "goto", "state": "complete"}
    send, wait = branch["otherwise"]["steps"]
    assert (send["tag"], send["thread"], send["args"]) == (
        "implementer-fix",
        "agent-b",
        {"a1": '{{ roles["planner"] }}'},
    )
    assert wait["any"] == [{"response": "implementer-fix"}]


def test_every_value_has_its_source_position() -> None:
    document = read_document(EXAMPLE.read_text(), "f.lisp")
    lines = document.text.split("\n")

    def line(*loc: str | int) -> str:
        place = document.position_of(loc)
        return lines[place.line - 1][place.column - 1 :]

    assert line("name").startswith("planner-worker-review")
    assert line("metadata", "label").startswith('"Planner/Worker')
    assert line("body", "states", 1, "name").startswith("handoff")
    handoff = ("body", "states", 1, "body", "steps")
    assert line(*handoff, 0, "any", 0, "key").startswith("@workflow-id")
    assert line(*handoff, 1, "text").startswith('"Share your plan')
    assert line(*handoff, 1, "tag").startswith("handoff-request")
    assert line(*handoff, 2, "any", 0).startswith("(transcript-response")
    assert document.position_of(("body", "states", 3)) == Position(len(lines) - 2, 3)


def test_states_without_a_goto_follow_each_other_in_the_order_of_the_text() -> None:
    first, second = states('(state b (log "1"))', '(state a (log "2"))')
    assert first["next"] == [{"to": "a"}]
    assert "next" not in second


def test_a_terminal_state_may_do_something_first_and_terminal_inside_ends_the_machine() -> None:
    first, last = states("(state a (branch (on true (terminal))))", '(state b (log "x") (terminal))')
    assert first["body"]["then"] == {"kind": "goto"}
    assert (last["body"]["kind"], last["terminal"]) == ("emit", True)


def test_a_wait_for_an_answer_means_the_prompt_with_that_tag() -> None:
    first, second, wait = steps(
        '(send-prompt :agent planner :template "1" :tag one) (send-prompt :agent worker :template "2")'
        " (await (transcript-response :request-id one))"
    )
    assert (first["tag"], second["tag"]) == ("one", "_prompt_2")
    assert wait["any"] == [{"response": "one"}]


def test_otherwise_it_means_the_nearest_prompt_above_that_has_no_tag() -> None:
    found = steps(
        '(send-prompt :agent planner :template "1") (send-prompt :agent worker :template "2")'
        ' (send-prompt :agent worker :template "3" :tag three)'
        " (await (transcript-response :request-id two)) (await (transcript-response :request-id two))"
        " (await (transcript-response :request-id one))"
    )
    assert [step.get("tag") for step in found[:3]] == ["one", "two", "three"]


def test_the_same_request_id_in_two_states_means_the_prompt_of_each() -> None:
    both = states(
        *(
            f'(state {name} (send-prompt :agent worker :template "x")'
            " (await (transcript-response :request-id r)))"
            for name in "ab"
        )
    )
    assert [state["body"]["steps"][0]["tag"] for state in both] == ["r", "r"]


def test_a_wait_for_an_answer_that_no_prompt_can_give_is_refused() -> None:
    assert "f.lisp" in refused_body("(await (transcript-response :request-id r))")
    message = refused_body(f"{SEND} (await (transcript-response :request-id r))")
    assert "No send-prompt above has the request id 'r'. Add :tag r" in message


def test_scope_is_another_word_for_key_and_when_for_on() -> None:
    one = steps("(wait (signal a :scope @workflow-id))")
    assert one == steps("(wait (signal a :key @workflow-id))")
    on, when = (steps(f"(branch ({word} (signal a) (goto other)))") for word in ("on", "when"))
    assert on == when
    assert ":key and :scope are synonyms" in refused_body("(wait (signal a :key 1 :scope 1))")


@pytest.mark.parametrize(
    "form", [':agent plannr :template "x"', ':agent planner :template "~a" :args ((artifact plannr))']
)
def test_an_unknown_role_is_refused_with_the_likely_one(form: str) -> None:
    assert "Unknown role 'plannr'. Did you mean 'planner'?" in refused_body(f"(send-prompt {form})")
