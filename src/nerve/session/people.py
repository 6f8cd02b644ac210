"""The people of a session: read from the changes in its store, which form a hash chain.

The chain also has what was done to the session as a whole, such as deleted runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from nerve.core.json_codec import encode_json
from nerve.core.people import FIRST_CHANGE_HASH, Person, check_person, hash_change, read_person
from nerve.core.suggest import did_you_mean_hint
from nerve.errors import NerveError, StoreFailed
from nerve.store.port import PersonRow, Store

MAX_ATTEMPTS = 20
"""How often a change is tried again after another process made one."""
BUSY_MESSAGE = "Other processes keep changing the people. Try again."
ChangePeople = Callable[[Mapping[str, Person], int], tuple[str, Person | None]]
"""Takes the people and the number of the change; returns a name with the person, None if they are removed."""


class People:
    """The people of one session; callable from any thread."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session
        self._lock = threading.Lock()
        self._number, self._hash = 0, FIRST_CHANGE_HASH
        self._people: dict[str, Person] = {}

    def current(self) -> dict[str, Person]:
        """Return the people by name; only the changes since the last call are read."""
        with self._lock:
            return dict(self._read())

    def _read(self) -> dict[str, Person]:
        for change in self._store.people_changes(self._session, self._number):
            self._apply(change)
        return self._people

    def _apply(self, change: PersonRow) -> None:
        check_change(change, self._number, self._hash)
        data = json.loads(change.data)
        people = {name: person for name, person in self._people.items() if name != change.name}
        if data["person"] is not None:
            people[change.name] = read_person(change.name, data["person"])
        self._number, self._hash, self._people = change.number, change.hash, people

    def read_verified(self) -> list[PersonRow]:
        """Return all changes, each verified; StoreFailed if one was changed, or is missing since a read."""
        number, hash, rows = 0, FIRST_CHANGE_HASH, self._store.people_changes(self._session)
        for row in rows:
            check_change(row, number, hash)
            number, hash = row.number, row.hash
        with self._lock:
            known_number, known_hash = self._number, self._hash
        if known_number and [row.hash for row in rows[known_number - 1 : known_number]] != [known_hash]:
            raise damaged_changes_error(min(known_number, len(rows) + 1))
        return rows

    def change(self, make: ChangePeople, at: float, what: str, who: Mapping[str, Any]) -> Person | None:
        """Record a change and return the person; ValueError says why it is not possible.

        `what` names the change, and `who` has the fields that say who makes it.
        """
        for _ in range(MAX_ATTEMPTS):
            with self._lock:
                people = self._read()
                name, person = make(people, self._number + 1)
                if person is not None:
                    check_person(person, people)
                data = {"change": what, **who, "person": None if person is None else person.to_data()}
                if self._add(name, at, data):
                    return person
        raise StoreFailed(BUSY_MESSAGE)

    def record(self, at: float, what: str, who: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        """Record what was done to the session as a whole, such as deleted runs, in the chain of changes."""
        for _ in range(MAX_ATTEMPTS):
            with self._lock:
                self._read()
                if self._add("", at, {"change": what, **who, **details, "person": None}):
                    return
        raise StoreFailed(BUSY_MESSAGE)

    def _add(self, name: str, at: float, data: Mapping[str, Any]) -> bool:
        """Append a change after the last one that was read; the lock is held."""
        number, text = self._number + 1, encode_json(data)
        hash = hash_change(self._hash, self._session, number, at, name, text)
        is_added = self._store.add_people_change(PersonRow(self._session, number, at, name, text, hash))
        if is_added:
            self._read()
        return is_added


def check_change(change: PersonRow, number: int, hash: str) -> None:
    """Raise StoreFailed unless a change is the one that follows another, whose number and hash are given."""
    expected = hash_change(hash, change.session, change.number, change.at, change.name, change.data)
    if change.number != number + 1 or expected != change.hash:
        raise damaged_changes_error(number + 1)


def damaged_changes_error(number: int) -> StoreFailed:
    return StoreFailed(f"The changes of people in the store are damaged at number {number}. Use a backup.")


def find_person(people: Mapping[str, Person], name: str) -> Person:
    """Return a person by name; KeyError with the nearest name if there is none."""
    if name in people:
        return people[name]
    raise PersonNotFound(name, people)


class PersonNotFound(NerveError):
    """No person has a name."""

    def __init__(self, name: str, people: Mapping[str, Person]) -> None:
        super().__init__(f"Person '{name}' not found")
        known = f"People: {', '.join(sorted(people))}." if people else "Add one: nerve people add NAME"
        self.fix = f"{did_you_mean_hint(name, people).removeprefix('. ')}" or known
