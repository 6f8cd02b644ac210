"""The space against a list that does the same in the simplest way."""

# ruff: noqa: PT009 - `assert_` is a method of the space, not of a test case

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dataspace.given import holed, small_records
from nerve.dataspace import Change, Dataspace, Fact, Pattern, Record


class SpaceAgainstAList(RuleBasedStateMachine):
    """What is there, what is found, and what observers make of the changes, must all agree."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Fact] = {}
        self.space = self.opened()
        self.model: list[Record] = []
        self.readings: list[tuple[Pattern, dict[str, Fact], list[int]]] = []

    def opened(self) -> Dataspace:
        machine = self

        class Log:
            def load(self) -> list[Fact]:
                return list(machine.kept.values())

            def write(self, changes: Any) -> None:
                for change in changes:
                    machine.kept.pop(change.fact.id, None)
                    if change.kind == "asserted":
                        machine.kept[change.fact.id] = change.fact

        return Dataspace(Log(), clock=lambda: 0.0)

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
        facts, self.space, self.readings = self.space.facts(), self.opened(), []
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
