"""The people of a project: list, add, change and remove them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.api.callers import Caller
from nerve.api.errors import ApiError
from nerve.core.people import Person, find_by_identity
from nerve.core.people import change_person as changed_person
from nerve.session.people import ChangePeople, PersonNotFound, find_person

if TYPE_CHECKING:
    from nerve.session import Session


async def people(session: Session, request: models.EmptyRequest) -> models.PeoplePage:
    known = session.people.current()
    return models.PeoplePage(people=[person_response(known[name]) for name in sorted(known)])


async def add_person(session: Session, request: models.AddPersonRequest) -> models.PersonResponse:
    """Add a person; a name that is in use is a conflict."""

    def make(known: Mapping[str, Person], number: int) -> tuple[str, Person]:
        if request.person in known:
            raise ApiError(
                "conflict", f"Person '{request.person}' exists already", "Use: nerve people change NAME"
            )
        new = Person(request.person, generation=number)
        return request.person, changed_person(
            new, number, request.roles, request.scope, request.contacts, request.token_hash
        )

    return await write_change(session, request, "added", make)


async def change_person(session: Session, request: models.ChangePersonRequest) -> models.PersonResponse:
    """Change a person; a new token ends the old one and the browsers that signed in with it."""

    def make(known: Mapping[str, Person], number: int) -> tuple[str, Person]:
        person = find_known(known, request.person)
        return person.name, changed_person(
            person,
            number,
            request.roles,
            request.scope,
            request.contacts,
            request.token_hash,
            request.disabled,
        )

    return await write_change(session, request, "changed", make)


async def remove_person(session: Session, request: models.RemovePersonRequest) -> models.PersonResponse:
    """Remove a person; what they have answered stays."""
    removed = find_known(session.people.current(), request.person)

    def make(known: Mapping[str, Person], number: int) -> tuple[str, None]:
        return find_known(known, request.person).name, None

    await write_change(session, request, "removed", make, removed)
    return person_response(removed)


async def write_change(
    session: Session,
    request: models.CommandRequest,
    what: str,
    make: ChangePeople,
    shown: Person | None = None,
) -> models.PersonResponse:
    who = {"by": request.caller.identity, **request.caller.audit_fields()}
    change = partial(session.people.change, make, session.engine.clock.time(), what, who)
    changed = await asyncio.to_thread(change) if session.engine.store.durable else change()
    person = changed or shown
    assert person is not None
    return person_response(person)


def find_known(known: Mapping[str, Person], name: str) -> Person:
    """Return a person by name, or raise ApiError with the nearest name."""
    try:
        return find_person(known, name)
    except PersonNotFound as error:
        raise ApiError("not_found", str(error), error.fix) from None


def person_response(person: Person) -> models.PersonResponse:
    return models.PersonResponse(
        name=person.name,
        roles=list(person.roles),
        scope=person.scope,
        contacts=dict(person.contacts or {}),
        has_token=person.token_hash is not None,
        disabled=person.disabled,
    )


def person_of_caller(known: Mapping[str, Person], caller: Caller) -> Person | None:
    """Return the person who calls: by their token, or as the user of this machine that they are."""
    return find_by_identity(known, caller.identity)
