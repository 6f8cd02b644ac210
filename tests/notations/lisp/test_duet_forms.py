"""The files of Duet as its projects write them: states after an empty workflow, records, attached agents."""

from pathlib import Path

import pytest

from nerve import Session
from nerve.notations import read_source
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

RELAY = """(workflow relay)

(metadata (label "A text goes through two agents"))

(roles
  (writer :agent-kind "claude")
  (critic :agent-kind "claude"))

(defn ask (role id text)
  (action (assert (record agent-request (role-property role "entity") id text))))

(state start
  (action (attach-entity :role writer :agent-kind "claude"))
  (action (attach-entity :role critic :agent-kind "claude"))
  (goto draft))

(state draft
  (ask writer "draft-1" (string-append "Write about " (input)))
  (await (record agent-response :field 1 :equals "draft-1"))
  (goto review))

(state review
  (ask critic "review-1" (string-append "Review: " (last-wait-field 3) "!"))
  (await (record agent-response :field 1 :equals "review-1"))
  (goto repair))

(state repair
  (ask writer "repair-1" (string-append "Repair it: " (last-wait-field 3)))
  (await (record agent-response :field 1 :equals "repair-1"))
  (action (log "done"))
  (terminal))
"""


async def test_a_file_of_duet_asks_its_agents_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / ".nerve/workflows/relay.duet"
    file.parent.mkdir(parents=True)
    file.write_text(RELAY)
    provider = ScriptedProvider(["tea is good", "too short", "tea is very good"], "claude")
    async with Session(project=tmp_path, providers={"claude": provider}) as session:
        run = await session.start(session.load(file).name, "tea")
        await run.wait()
    assert [call.prompt for call in provider.calls] == [
        "Write about tea",
        "Review: tea is good!",
        "Repair it: too short",
    ]
    assert [call.resume for call in provider.calls] == [None, None, "thread-1"]


def test_the_label_is_the_description() -> None:
    assert read_source(RELAY, "relay.duet").data["description"] == "A text goes through two agents"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(goto repair)", "(goto draft)", "(last-wait-field …) is only supported after a wait"),
        ("last-wait-field 3", "last-wait-field 2", "Unknown field of a response"),
        ("(record agent-request", "(record other-request", "Unknown record of Duet"),
        (":field 1 :equals", ":field 2 :equals", "Unknown record of Duet"),
        ('(ask writer "draft-1"', "(ask writer", "(ask …) takes 3 arguments, got 2"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_position(old: str, new: str, message: str) -> None:
    assert old in RELAY
    with pytest.raises(InvalidDefinition) as error:
        read_source(RELAY.replace(old, new), "relay.duet")
    assert [each for each in error.value.problems if each.message.startswith(message)], error.value.problems


def test_sections_outside_of_a_workflow_with_states_are_still_rejected() -> None:
    with pytest.raises(InvalidDefinition, match="Unknown form 'state'"):
        read_source('(workflow w (state a (log "x") (terminal)))\n(state b (terminal))', "w.lisp")
