"""`nerve people`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from cli.conftest import Said
from nerve.api.callers import current_user_name


def test_a_project_without_people_says_how_to_add_one(do: Callable[..., Said]) -> None:
    assert do("people").out == "No people. Add one: nerve people add NAME\n"
    assert json.loads(do("people", "--json").out) == []
    assert do("people", "roles").out == "No roles. Give one: nerve people change NAME --role ROLE\n"


def test_a_person_is_added_with_a_token_that_is_shown_once(do: Callable[..., Said], project: Path) -> None:
    added = do(
        "people", "add", "ann", "--role", "lead", "--role", "dev", "--contact", "email=ann@example.com"
    )
    assert added.out.startswith("Added ann with lead, dev, scope answer.\nToken, shown only now: nvp_")
    token = added.out.split()[-1]
    lines = do("people").out.splitlines()
    assert lines[0].split() == ["name", "roles", "scope", "contacts"]
    assert " ".join(lines[1].split()) == "ann lead, dev answer email=ann@example.com"
    assert all(token.encode() not in file.read_bytes() for file in project.rglob("*") if file.is_file())


def test_people_are_changed_disabled_and_removed(do: Callable[..., Said]) -> None:
    do("people", "add", "ann", "--role", "lead")
    do("people", "add", "ben", "--no-token")
    assert do("people", "change", "ben", "--role", "lead", "--scope", "member").code == 0
    assert json.loads(do("people", "roles", "--json").out) == {"lead": ["ann", "ben"]}
    assert do("people", "disable", "ben").out == "ben is disabled.\n"
    (ann, ben) = json.loads(do("people", "--json").out)
    assert (ann["has_token"], ben["has_token"], ben["disabled"]) == (True, False, True)
    assert do("people", "remove", "ben").out == "Removed ben.\n"
    assert [each["name"] for each in json.loads(do("people", "--json").out)] == ["ann"]


def test_a_new_token_replaces_the_old_one(do: Callable[..., Said]) -> None:
    first = json.loads(do("people", "add", "ann", "--json").out)["token"]
    second = json.loads(do("people", "token", "ann", "--json").out)["token"]
    assert first != second


def test_mistakes_are_refused_with_the_fix(do: Callable[..., Said]) -> None:
    do("people", "add", "ann", "--role", "lead")
    assert "Unknown action 'ad'. Did you mean 'add'?" in do("people", "ad").err
    assert "The name of the person is missing: nerve people add NAME." in do("people", "add").err
    assert "Person 'anm' not found. Did you mean 'ann'?" in do("people", "token", "anm").err
    assert "Unknown scope 'anser'. Did you mean 'answer'?" in do("people", "add", "b", "--scope", "anser").err
    assert "--contact must be KIND=ADDRESS, got 'x'." in do("people", "add", "ben", "--contact", "x").err
    assert "A name must have up to 64 lower-case letters" in do("people", "add", "Ben").err
    assert "'lead' cannot be both a person and a role" in do("people", "add", "lead").err
    assert "Person 'ann' exists already" in do("people", "add", "ann").err
    assert "Nothing to change." in do("people", "change", "ann").err
    assert "belong to add and change" in do("people", "token", "ann", "--role", "x").err


SHIP = """
name: ship
description: Ship it
nodes:
  - id: decide
    gate: {prompt: Ship it?, choices: [approve, reject], approvers: [lead], claim: true}
"""


def test_a_gate_is_decided_by_the_user_who_is_a_person(do: Callable[..., Said], project: Path) -> None:
    (project / "ship.yaml").write_text(SHIP)
    do("people", "add", "ann", "--role", "lead", "--contact", f"unix={current_user_name()}")
    do("people", "add", "ben", "--role", "lead", "--no-token")
    do("start", "ship.yaml", "--label", "v1")
    listed = do("gates")
    assert "needs 1 person of lead" in listed.out
    (gate,) = json.loads(do("gates", "--json").out)
    assert f"--hash {gate['hash']}" in listed.out
    assert "Did you mean 'claim'?" in do("gates", "clam", gate["gate_id"]).err
    assert "Write: nerve gates delegate GATE PERSON" in do("gates", "delegate", gate["gate_id"]).err
    assert "'ann' started the run" in do("answer", "v1", "approve").err
    assert do("gates", "claim", gate["gate_id"]).out == f"Gate {gate['gate_id']}: claimed.\n"
    assert "claimed by ann" in do("gates").out
    assert do("gates", "release", gate["gate_id"]).out == f"Gate {gate['gate_id']}: released.\n"
    assert "asks something else now" in do("answer", "v1", "reject", "--hash", "old").err
    assert do("answer", "v1", "reject", "--hash", gate["hash"]).code in (0, 1)
    run = json.loads(do("status", "v1", "--json").out)
    assert (run["state"], run["result"]) == ("completed", "reject")


def test_gates_are_listed_that_wait_for_a_person(do: Callable[..., Said], project: Path) -> None:
    gate = '{prompt: "Ship it?", choices: [approve, reject], approvers: [lead], self_approval: true}'
    (project / "ship.yaml").write_text(
        f"name: ship\ndescription: x\nnodes:\n  - id: decide\n    gate: {gate}\n"
    )
    do("people", "add", "ann", "--role", "lead")
    do("people", "add", "me", "--contact", f"unix={current_user_name()}")
    assert do("run", "ship.yaml").code == 4
    assert do("gates", "--mine").out == "No gates wait for you.\n"
    assert "Ship it?" in do("gates", "--as", "ann").out
    do("people", "change", "me", "--role", "lead")
    assert json.loads(do("gates", "--as", "me", "--json").out)[0]["name"] == "decide"
    assert "Person 'anm' not found. Did you mean 'ann'?" in do("gates", "--as", "anm").err
    assert "--mine and --as cannot be used together." in do("gates", "--mine", "--as", "ann").err
