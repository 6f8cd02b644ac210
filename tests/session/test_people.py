"""The people of a session: a chain of changes in its store, shared by all processes that use it."""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nerve.core.people import Person
from nerve.errors import StoreFailed
from nerve.session.people import People
from nerve.store.memory import MemoryStore
from nerve.store.sqlite import SqliteStore

WHO = {"by": "unix:ada", "via": "cli"}


def add(name: str) -> Callable[[Mapping[str, Person], int], tuple[str, Person]]:
    return lambda known, number: (name, Person(name, ("lead",), generation=number))


def test_changes_are_visible_to_another_reader_of_the_store() -> None:
    store = MemoryStore()
    one, other = People(store, "s"), People(store, "s")
    assert other.current() == {}
    one.change(add("ann"), 1.0, "added", WHO)
    assert other.current() == {"ann": Person("ann", ("lead",), contacts={}, generation=1)}
    one.change(lambda known, number: ("ann", None), 2.0, "removed", WHO)
    assert other.current() == {}
    assert People(store, "another").current() == {}


def test_a_change_says_who_made_it() -> None:
    store = MemoryStore()
    People(store, "s").change(add("ann"), 1.0, "added", WHO)
    [row] = store.people_changes("s")
    data = json.loads(row.data)
    assert (data["change"], data["by"], data["via"]) == ("added", "unix:ada", "cli")


def test_concurrent_changes_are_all_recorded() -> None:
    store = MemoryStore()
    readers = [People(store, "s") for _ in range(4)]
    threads = [
        threading.Thread(target=people.change, args=(add(f"p{index}-{n}"), 1.0, "added", WHO))
        for index, people in enumerate(readers)
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(People(store, "s").current()) == 16
    assert [row.number for row in store.people_changes("s")] == list(range(1, 17))


def test_people_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "nerve.db"
    store = SqliteStore(file)
    People(store, "s").change(add("ann"), 1.0, "added", WHO)
    store.close()
    store = SqliteStore(file)
    assert list(People(store, "s").current()) == ["ann"]
    store.close()


@pytest.mark.parametrize(
    "change",
    ["name = 'eve'", "at = 5", "data = replace(data, 'lead', 'boss')", "hash = '0'", "number = number + 1"],
)
def test_a_change_in_the_file_is_detected(tmp_path: Path, change: str) -> None:
    file = tmp_path / "nerve.db"
    store = SqliteStore(file)
    for name in ("ann", "ben"):
        People(store, "s").change(add(name), 1.0, "added", WHO)
    store.close()
    with sqlite3.connect(file) as db:
        db.execute(f"UPDATE people SET {change} WHERE name = 'ben'")
    db.close()
    store = SqliteStore(file)
    with pytest.raises(StoreFailed, match=r"changes of people .* damaged at number 2"):
        People(store, "s").current()
    store.close()
