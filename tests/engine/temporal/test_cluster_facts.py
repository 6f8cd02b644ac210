"""Facts that many processes change at once, and waits for them: no change and no match is lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from nerve.engine.temporal.cluster_facts import ClusterFacts, FactLook
from nerve.engine.temporal.fact_delivery import SWEEP_AGE_S
from nerve.store.port import ReplyRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection
from nerve.testing.store_contract import append, run_row

ENGINE = "temporal://127.0.0.1:7233/default"
SHIPPED = {"signal": ["signal", "shipped", {"key": "42", "value": "?value"}]}
ANY_ORDER = {"1": ["order", 8, "..."], "2": ["order", 7, {"paid": True}]}


@pytest.fixture
def projection(postgresql_url: str) -> Iterator[PostgresProjection]:
    with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
        yield projection


@pytest.fixture
def facts(projection: PostgresProjection) -> ClusterFacts:
    return ClusterFacts(projection, "default")


def shipped(value: int = 1, key: str = "42") -> list[object]:
    return ["signal", "shipped", {"key": key, "value": value}]


def look(facts: ClusterFacts, *, run: str = "r", is_last: bool = False) -> object:
    [found] = facts.look(run, [FactLook(run, "/wait", SHIPPED, is_last)])
    return found and found["captures"]


def test_changes_of_many_processes_have_dense_numbers(postgresql_url: str) -> None:
    def assert_some(worker: int) -> None:
        with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
            for number in range(10):
                ClusterFacts(projection, "default").change([["order", worker * 100 + number]], by=f"{worker}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(assert_some, range(4)))
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert [row.version for row in store.facts("default")] == list(range(1, 41))
        assert store.fact_version("default") == 40


def test_an_assertion_replaces_the_fact_with_the_same_identity_and_says_if_nothing_changed(
    facts: ClusterFacts, postgresql_url: str
) -> None:
    reply = ReplyRow("default", "key", 1.0, "asked", "{}")
    [first] = facts.change([shipped(1)], by="me", make_reply=lambda changes: reply).changes
    [second] = facts.change([shipped(2)]).changes
    assert second.replaced == first.fact
    assert facts.change([shipped(2)]).changes == []
    [gone] = facts.change(retracted=[["signal", "shipped", {"key": "?any"}]]).changes
    assert (gone.kind, gone.version) == ("retracted", 3)
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert store.facts("default") == []
        assert store.stored_reply("default", "key") == reply


def test_a_wait_finds_the_fact_that_is_there_or_is_matched_by_the_one_that_comes(facts: ClusterFacts) -> None:
    assert look(facts) is None
    assert facts.change([shipped(1, "43"), ["signal", "other", {"key": "42"}]]).settled == []
    [watch] = facts.change([shipped(5)]).settled
    assert (watch.run, watch.path, watch.family) == ("r", "/wait", "r")
    assert facts.change([shipped(6)]).settled == []
    assert look(facts, run="other") == {"value": 6}
    assert facts.matched_watches(SWEEP_AGE_S) == []
    assert facts.matched_watches(0) == [watch]
    facts.delete_matched([watch])
    assert facts.matched_watches(0) == []


def test_the_match_of_a_wait_stays_until_its_run_knows_it(facts: ClusterFacts) -> None:
    look(facts)
    [watch] = facts.change([shipped(5)]).settled
    facts.change(retracted=[["signal", "shipped", "..."]])
    # The reply to the first look was lost, so the run looks again.
    assert look(facts) == look(facts, is_last=True) == {"value": 5}
    facts.delete_matched([watch])
    assert look(facts) is None


def test_a_wait_that_ends_without_a_fact_is_not_matched_any_more(facts: ClusterFacts) -> None:
    assert look(facts) is None
    assert look(facts, is_last=True) is None
    assert facts.change([shipped()]).settled == []
    assert look(facts, run="b") == {"value": 1}
    facts.change(retracted=[["signal", "shipped", "..."]])
    look(facts, run="c")
    facts.look("c", [], [("c", "/wait")])
    assert facts.change([shipped()]).settled == []


def test_another_wait_at_the_same_path_does_not_get_the_old_match(facts: ClusterFacts) -> None:
    look(facts)
    facts.change([shipped(5)])
    assert facts.look("r", [FactLook("r", "/wait", ANY_ORDER)]) == [None]
    [watch] = facts.change([["order", 7, {"paid": True}]]).settled
    assert '"which":"2"' in str(watch.match)


def test_waits_of_a_run_that_has_ended_are_deleted(
    facts: ClusterFacts, projection: PostgresProjection
) -> None:
    look(facts)
    projection.append("r", [append("r", 0, 2, run_row("r", state="completed")._replace(ended=2.0))])
    # Its look may be repeated late.
    look(facts)
    assert facts.change([shipped()]).settled == []


def test_a_fact_and_a_wait_at_the_same_time_always_meet(postgresql_url: str) -> None:
    with (
        closing(PostgresProjection(postgresql_url, "default", ENGINE)) as one,
        closing(PostgresProjection(postgresql_url, "default", ENGINE)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting, asserting = ClusterFacts(one, "default"), ClusterFacts(other, "default")
        for number in range(40):
            pattern = {"signal": ["signal", "go", {"key": str(number), "value": "?value"}]}
            looked = pool.submit(waiting.look, "r", [FactLook("r", f"/{number}", pattern)])
            changed = pool.submit(asserting.change, [["signal", "go", {"key": str(number)}]])
            assert (looked.result()[0] is not None) + len(changed.result().settled) == 1
