"""Slots and rate limits that processes share: never more than the number, and free again after a lease."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from nerve.store.postgres_slots import PostgresSlots


@pytest.fixture
def slots(postgresql_url: str) -> Iterator[PostgresSlots]:
    with closing(PostgresSlots(postgresql_url, "team")) as slots:
        yield slots


def test_of_many_processes_at_once_as_many_get_a_slot_as_there_are(postgresql_url: str) -> None:
    others = [PostgresSlots(postgresql_url, "team") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        taken = list(
            pool.map(lambda n: others[n % 8].take("claude", str(n), 3, 60), range(40)),
        )
    assert sum(taken) == 3
    for each in others:
        each.close()


def test_a_released_slot_and_one_whose_lease_has_ended_are_free(slots: PostgresSlots) -> None:
    assert slots.take("claude", "a", 1, 60)
    assert not slots.take("claude", "b", 1, 60)
    assert slots.take("codex", "b", 1, 60)
    slots.release("a")
    assert slots.take("claude", "c", 1, -1)
    assert slots.take("claude", "d", 1, -1)
    slots.renew(["d"], 60)
    assert not slots.take("claude", "e", 1, 60)


def test_a_rate_limit_is_known_in_all_processes_of_the_session(
    slots: PostgresSlots, postgresql_url: str
) -> None:
    slots.share_limit("claude", 123.5)
    with closing(PostgresSlots(postgresql_url, "team")) as other:
        assert (other.limited_until("claude"), other.limited_until("codex")) == (123.5, 0.0)
        other.share_limit("claude", 0.0)
    assert slots.limited_until("claude") == 0.0
    with closing(PostgresSlots(postgresql_url, "others")) as elsewhere:
        assert elsewhere.limited_until("claude") == 0.0
