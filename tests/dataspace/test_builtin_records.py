"""The built-in records, and the patterns that find them."""

from hypothesis import given
from hypothesis import strategies as st

from dataspace.given import texts
from nerve.dataspace import Record, builtin_records, match


def test_a_builtin_record_is_printed_as_in_the_notation() -> None:
    written = [
        (builtin_records.signal("plan/ready", "f", "x"), '(signal plan/ready :key "f" :value "x")'),
        (
            builtin_records.workflow_definition("p", "lisp", "(workflow p)", "h"),
            '(workflow-definition :id "p" :notation "lisp" :source "(workflow p)" :hash "h")',
        ),
        (
            builtin_records.workflow_instance("p", "feature-42", context={"n": 1}),
            '(workflow-instance :definition "p" :label "feature-42" :branch "main" :context {:n 1})',
        ),
        (
            builtin_records.workflow_state("r", "p", "waiting", "start", "l", ["signal", "go"]),
            '(workflow/state :run "r" :label "l" :workflow "p" :step "start" :status "waiting" '
            ':awaits ["signal" "go"])',
        ),
        (
            builtin_records.workflow_log("r", 3, "m"),
            '(workflow/log :run "r" :seq 3 :level "info" :message "m")',
        ),
        (
            builtin_records.agent_request("r", "q", "planner", "Plan."),
            '(agent-request :run "r" :request-id "q" :agent "planner" :prompt "Plan.")',
        ),
        (builtin_records.agent_response("q", "Done."), '(agent-response :request-id "q" :text "Done.")'),
    ]
    for record, text in written:
        assert str(record) == text
        assert Record.parse(text) == record


keys = st.none() | texts


@given(texts, keys, texts, keys)
def test_a_signal_is_found_by_its_label_and_key(
    label: str, key: str | None, other: str, scope: str | None
) -> None:
    fits = label == other and (scope is None or scope == key)
    assert (
        match(builtin_records.signal_pattern(other, scope), builtin_records.signal(label, key)) is not None
    ) is fits


@given(texts, keys, texts, keys)
def test_an_answer_is_found_by_its_request(request: str, run: str | None, other: str, of: str | None) -> None:
    fits = request == other and (of is None or of == run)
    found = match(
        builtin_records.response_pattern(other, of), builtin_records.agent_response(request, "t", run)
    )
    assert (found is not None) is fits
