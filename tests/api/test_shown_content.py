"""An approval is bound to exactly what the gate has shown: for any other question it does not count.

That changed files of a workspace are asked about again: tests/workspaces/test_workspace_runs.py.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal
from nerve import Session
from nerve.api import Api
from nerve.api.callers import Caller
from nerve.core.gates import gate_hash
from nerve.journal.events import GateWaiting
from nerve.journal.gate_info import gate_info

CHOICES = ["approve", "reject"]
COMMAND = {"tool": "Bash", "input": {"command": "make"}, "cwd": "/a"}
OTHERS: dict[str, dict[str, Any]] = {
    "another command": {"action": {**COMMAND, "input": {"command": "make clean"}}},
    "another directory": {"action": {**COMMAND, "cwd": "/b"}},
    "another diff": {"input_preview": "+ two"},
    "another note": {"note": "2 files"},
    "another prompt": {"prompt": "Ship 2?"},
    "another choice": {"choices": [*CHOICES, "later"]},
    "other options": {"options": ["now"]},
    "another form": {"form": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "other approvers": {"policy": {"approvers": ["boss"]}},
    "another quorum": {"policy": {"approvers": ["lead"], "quorum": 3}},
}


def hash_of(at: float = 1.0, **fields: Any) -> str:
    shown = {"prompt": "Ship?", "choices": CHOICES, "input_preview": "+ one", "note": "1 file"}
    shown |= {"action": COMMAND, "policy": {"approvers": ["lead"], "quorum": 2}}
    return gate_hash(gate_info("/ask", GateWaiting("g", **{**shown, **fields}), at))


@pytest.mark.parametrize("change", OTHERS)
def test_the_hash_is_another_if_anything_that_is_shown_is_another(change: str) -> None:
    assert hash_of(**OTHERS[change]) != hash_of()


def test_the_hash_is_another_for_the_same_question_at_another_time() -> None:
    assert hash_of() == hash_of()
    assert hash_of(at=2.0) != hash_of()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with Session(store=tmp_path / "nerve.db") as session:

        @session.workflow
        async def ask(ctx: Any, settings: list[dict[str, Any]]) -> list[Any]:
            return [await ctx.gate(**{"prompt": "Ship?", "choices": CHOICES, **each}) for each in settings]

        api = Api(session)
        for name in ("ann", "ben"):
            await api.add_person(person=name, roles=["lead"])
        yield api


@pytest.mark.parametrize(
    "then",
    [
        {"prompt": "Ship 2?"},
        {"choices": ["approve", "later"]},
        {"choices": None, "form": {"type": "string"}},
        {},
    ],
)
@pytest.mark.parametrize("policy", [{}, {"approvers": ["lead"]}])
async def test_an_answer_to_what_was_shown_before_is_refused(
    api: Api, then: dict[str, Any], policy: dict[str, Any]
) -> None:
    run = await api.start(workflow="ask", input=[policy, {**policy, **then}], wait=True)
    ann = api.as_caller(Caller("person:ann", "page", "answer"))
    shown = {"run": run.run_id, "hash": run.gates[0].hash}
    await ann.answer(answer="approve", **shown)
    handle = api.session.get_workflow_run(run.run_id)
    again = await handle.next_gate()
    error = await refusal(ann.answer(answer="approve", gate=again.gate_id, **shown))
    assert (error.code, error.message) == ("conflict", f"Gate '{again.gate_id}' asks something else now")
    assert error.details == {"hash": gate_hash(again)}
    await ann.answer(answer="approve", run=run.run_id, hash=gate_hash(again))
    assert await handle.wait() == ["approve", "approve"]
