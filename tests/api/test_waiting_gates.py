"""Gates that wait for a person: those that they may answer and have not."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal
from nerve import Session
from nerve.api import Api
from nerve.api.callers import Caller, Grant
from nerve.client import Client

CHOICES = ["approve", "reject"]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with Session(store=tmp_path / "nerve.db") as session:

        @session.workflow
        async def ask(ctx: Any, settings: dict[str, Any]) -> Any:
            return await ctx.gate("Ship?", choices=CHOICES, **settings)

        api = Api(session)
        for name, roles in (("ann", ["lead"]), ("ben", ["lead"]), ("cay", ["boss"])):
            await api.add_person(person=name, roles=roles, scope="member", contacts={"unix": f"u-{name}"})
        yield api


def as_person(api: Api, name: str, scope: Grant = "member") -> Api:
    return api.as_caller(Caller(f"person:{name}", "http", scope))


async def ask(api: Api, label: str, **settings: Any) -> Any:
    return await api.start(workflow="ask", input=settings, label=label, wait=True)


async def mine(api: Api, name: str) -> list[str | None]:
    """Return the labels of the runs whose gates wait for a person, asked in both ways."""
    own = [gate.label for gate in (await as_person(api, name).gates(mine=True)).gates]
    assert own == [gate.label for gate in (await api.gates(person=name)).gates]
    return own


async def act(api: Api, run: Any, name: str, answer: str, action: str = "answer") -> None:
    request = {"run": run.run_id, "answer": answer, "hash": run.gates[0].hash, "action": action}
    await as_person(api, name).answer(**request)


async def test_a_gate_waits_for_its_approvers_until_they_have_answered(api: Api) -> None:
    run = await ask(api, "a", approvers=["lead"], quorum=2)
    await ask(api, "b", approvers=["boss"], veto=["ann"])
    await ask(api, "c")
    assert await mine(api, "ann") == ["a", "b", "c"]
    assert await mine(api, "ben") == ["a", "c"]
    assert await mine(api, "cay") == ["b", "c"]
    await act(api, run, "ann", "approve")
    assert await mine(api, "ann") == ["b", "c"]
    assert await mine(api, "ben") == ["a", "c"]
    assert len((await api.gates()).gates) == 3


async def test_who_started_a_run_delegated_or_lost_a_claim_is_not_asked(api: Api) -> None:
    await ask(as_person(api, "ann"), "own", approvers=["lead"])
    delegated = await ask(api, "delegated", approvers=["ann"])
    claimed = await ask(api, "claimed", approvers=["lead"], claim=True)
    await act(api, delegated, "ann", "cay", "delegate")
    await act(api, claimed, "ben", "", "claim")
    assert await mine(api, "ann") == []
    assert await mine(api, "ben") == ["own", "claimed"]
    assert await mine(api, "cay") == ["delegated"]


async def test_a_user_of_this_machine_is_asked_as_their_person(api: Api) -> None:
    await ask(api, "a", approvers=["boss"])
    await ask(api, "b")
    for user, labels in (("u-cay", ["a", "b"]), ("another", ["b"])):
        gates = (await api.as_caller(Caller(f"unix:{user}", "cli", "admin")).gates(mine=True)).gates
        assert [gate.label for gate in gates] == labels


async def test_who_may_not_answer_is_not_asked(api: Api) -> None:
    await ask(api, "a", approvers=["lead"])
    await ask(api, "b")
    assert (await as_person(api, "ann", "read").gates(mine=True)).gates == []
    await api.change_person(person="ann", disabled=True)
    assert (await api.gates(person="ann")).gates == []
    assert (await refusal(api.gates(person="anm"))).message == "Person 'anm' not found"


async def test_pages_skip_what_waits_for_others(api: Api) -> None:
    for number in range(6):
        await ask(api, str(number), approvers=["lead" if number % 2 else "boss"])
    page = await as_person(api, "ann").gates(mine=True, limit=2)
    assert ([gate.label for gate in page.gates], page.more) == (["1"], True)
    everything = await Client(as_person(api, "ann")).all_gates(mine=True)
    assert [gate.label for gate in everything] == ["1", "3", "5"]
