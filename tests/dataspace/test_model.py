"""Model test: the dataspace against a simple list."""

# ruff: noqa: PT009 - `assert_` is a method of the space, not of a test case

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dataspace.given import holed, small_records
from nerve.dataspace import Change, Dataspace, Fact, Pattern, Record


class SpaceAgainstAList(RuleBasedStateMachine):
    """The facts, the matches and the view of observers must agree with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.space = Dataspace(clock=lambda: 0.0)
        self.model: list[Record] = []
        self.readings: list[tuple[Pattern, dict[str, Fact], list[int]]] = []

    @rule(record=small_records)
    def assert_a_fact(self, record: Record) -> None:
        change = self.space.assert_(record)
        assert (change is None) is (record in self.model)
        if change is not None:
            self.model = [old for old in self.model if old.id != record.id] + [record]

    @rule(pattern=holed())
    def retract_what_fits(self, pattern: list[Any]) -> None:
        gone = [change.fact.record for change in self.space.retract(pattern)]
        assert gone == self.fitting(pattern)
        self.model = [record for record in self.model if record not in gone]

    @rule(pattern=holed())
    def find_what_fits(self, pattern: list[Any]) -> None:
        assert [fact.record for fact in self.space.facts(pattern)] == self.fitting(pattern)

    @rule(pattern=holed())
    def watch(self, pattern: list[Any]) -> None:
        reading: dict[str, Fact] = {}
        versions: list[int] = []

        def tell(change: Change) -> None:
            assert change.captures == Pattern.of(pattern).match(change.fact.record)
            if not change.present:
                versions.append(change.version)
            if change.kind == "asserted":
                reading[change.fact.id] = change.fact
            else:
                assert reading.pop(change.fact.id) == change.fact

        self.space.watch(pattern, tell, present=True)
        self.readings.append((Pattern.of(pattern), reading, versions))

    @rule()
    def open_it_again(self) -> None:
        facts, version, self.readings = self.space.facts(), self.space.version, []
        self.space = Dataspace(facts, version, clock=lambda: 0.0)
        assert self.space.facts() == facts

    @rule(record=small_records, pattern=holed(), other=holed())
    def change_what_cannot_be_kept(self, record: Record, pattern: list[Any], other: list[Any]) -> None:
        facts = self.space.facts()
        self.space.apply(self.space.stage([record], [pattern]), publish=False)
        self.watch(other)
        self.space.reload(facts)
        assert self.space.facts() == facts

    def fitting(self, pattern: list[Any]) -> list[Record]:
        return [record for record in self.model if Pattern.of(pattern).match(record) is not None]

    @invariant()
    def all_agree(self) -> None:
        assert [fact.record for fact in self.space.facts()] == self.model
        for pattern, reading, versions in self.readings:
            assert {fact.record for fact in reading.values()} == set(self.fitting(list(pattern.json)))
            assert versions == sorted(set(versions))


TestSpaceAgainstAList = SpaceAgainstAList.TestCase
TestSpaceAgainstAList.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
