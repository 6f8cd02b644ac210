"""What the processes of the Temporal engine send each other."""

import json

import pytest

from nerve.engine.temporal.messages import (
    AppendInput,
    FamilyOutcome,
    LeafInput,
    LeafResult,
    MessageVersionError,
    RunCommand,
    RunCommandReply,
    RunInput,
    SharedStateInput,
    SharedStateResult,
    WireMessage,
    run_id_of_key,
)
from nerve.store.port import Append, Definition, EventRow, ReplyRow, RunRow, TagRow, UsageRow, WaitRow

PART = Append(
    "run",
    0,
    [
        EventRow(1, 0.5, "workflow_started", "", None, '{"b":1,"a":2}'),
        EventRow(2, 1.5, "x", "/a", "/a", "{}"),
    ],
    RunRow("run", "team", "flow", "running", 0.5, None, "key", summary="{}"),
    Definition("hash", "flow", "yaml", "source", "{}"),
    replies=[ReplyRow("team", "key", 0.5, "asked", "{}")],
    waits=[WaitRow("team", "run", "/gate", "gate", 1.0, None)],
    usage=[UsageRow("team", "2025-11-15", "opus", {"cost": 0.5})],
    tags=[TagRow("tag", "a", "b", 1.0)],
)
MESSAGES: list[WireMessage] = [
    RunInput("team", "run", [PART], {"run": 1}),
    FamilyOutcome("run", "completed"),
    LeafInput("team", "run", "flow", "/a", "a", {"node": "a"}, 2, [1, {"b": 1, "a": 2}], journal=[PART]),
    LeafResult({"success": True, "output": 1, "attributes": {}}),
    AppendInput([PART]),
    SharedStateInput("run", [["run", "/a", {"1": ["x"]}, True]], [[["x"], [], "run"]], journal=[PART]),
    SharedStateResult([None, {"which": "1"}], [True]),
    RunCommand("answer", "run", {"gate": None, "value": "yes"}),
    RunCommandReply(None, "no", "GateNotOpen"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_encoding_as_json(message):
    text = json.dumps(message.to_data())
    decoded = type(message).from_data(json.loads(text))
    assert json.dumps(decoded.to_data()) == text
    assert [getattr(decoded, name) for name in message.JOURNAL_FIELDS] == [[PART]] * len(
        message.JOURNAL_FIELDS
    )


def test_a_field_that_is_not_known_is_ignored_and_another_version_rejected():
    data = FamilyOutcome("run", "completed").to_data()
    assert FamilyOutcome.from_data({**data, "later": 1}) == FamilyOutcome("run", "completed")
    with pytest.raises(MessageVersionError, match="FamilyOutcome has version 2, but this worker knows 1"):
        FamilyOutcome.from_data({**data, "version": 2})


def test_each_attempt_at_a_leaf_has_a_source_of_its_own():
    leaf = LeafInput("team", "run", "flow", "/a", "a", {}, 7)
    assert [leaf.source(1), leaf.source(2)] == ["/a#7.1", "/a#7.2"]


def test_a_key_always_gives_the_same_run_id_in_a_session():
    assert run_id_of_key("team", "nightly") == run_id_of_key("team", "nightly")
    assert run_id_of_key("team", "nightly") != run_id_of_key("other", "nightly")
