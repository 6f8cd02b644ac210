"""Which people a message about a gate is for: those who may answer it and have not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nerve.core.gate_policy import is_asked, make_voter
from nerve.core.people import ANSWERING_SCOPES, Person
from nerve.engine.run_starters import find_starters
from nerve.engine.stored_gates import gate_of_wait
from nerve.journal.events import Event, GateDelegated, GateEscalated

if TYPE_CHECKING:
    from nerve.store.port import Store, WaitRow

EVERYONE = "everyone"


def select_people(people: Mapping[str, Person], names: Iterable[str]) -> list[Person]:
    """Return the people with some names or roles, who are not disabled; `everyone` stands for all."""
    wanted = set(names)
    return [
        person
        for person in people.values()
        if not person.disabled and (EVERYONE in wanted or person.has_any(wanted))
    ]


def find_asked_people(
    store: Store, wait: WaitRow, event: Event, people: Mapping[str, Person], names: Iterable[str]
) -> list[Person]:
    """Return those people with some names or roles who may answer an open gate and have not.

    A delegation concerns the delegate, and an escalation those to whom it goes.
    """
    selected = select_people(people, names)
    if isinstance(event, GateDelegated):
        selected = [person for person in selected if person.name == event.to]
    elif isinstance(event, GateEscalated):
        selected = [person for person in selected if person.has_any(event.to)]
    gate = gate_of_wait(wait)
    if gate.policy is None or gate.tally is None:
        return [person for person in selected if person.scope in ANSWERING_SCOPES]
    policy, tally = gate.policy, gate.tally
    starters = find_starters(store, wait.run)
    return [
        person
        for person in selected
        if person.scope in ANSWERING_SCOPES and is_asked(policy, tally, make_voter(person, people, starters))
    ]
