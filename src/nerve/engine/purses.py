"""Purses: what the steps of one run take from, and what each of them has in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.limits import Limits, Usage, raised
from nerve.core.workflow.replay import within
from nerve.engine.records import Called, called, raised_for_steps, step_of, under_way
from nerve.engine.spending import Purse, Spent, Stake, spent
from nerve.store.port import Row

if TYPE_CHECKING:
    from nerve.engine.drive import Drive


class Purses:
    """A step takes from its own budget, from that of its run, of the runs around it, and of the day."""

    def __init__(self, drive: Drive, past: Sequence[Row]) -> None:
        self._drive = drive
        self._raised = raised_for_steps(past) if past else {}
        self.own = run_purse(drive.run.run_id, drive.limits, drive.usage, drive.start)
        for path, used in under_way(past).items() if past else ():
            self._stake(path, used)
        self._replaced: dict[str, str] = {}
        """The places of child runs that do not count any more, by their ids; what they took does."""
        if drive.changed:
            self._children(called(past))
        self.look()

    def look(self) -> None:
        """See whether there is anything to count at all."""
        drive = self._drive
        above = drive.start.get("parent") is not None and any(
            purse.limits.budgeted for purse in drive.host.budgets.above(drive.start)
        )
        self.counted = above or drive.limits.counted

    def taken_from(self, path: str, limits: Limits | None, used: Mapping[str, Any]) -> Iterator[Purse]:
        """The purses of a step, its own first; `used` is what it took already."""
        drive = self._drive
        if limits is not None:
            place = step_of(path)
            own = Purse(
                limits.raised(self._raised.get(place, {})),
                usage_of(used),
                f"the budget of step {place}",
                f"resume(limits={{'{place}': …}})",
                drive.run.run_id,
                place,
            )
            yield own
        yield self.own
        yield from drive.host.budgets.above(drive.start)
        if (day := drive.host.budgets.day) is not None:
            yield day.purse

    def short(self) -> Spent | None:
        """Which budget is spent, for whatever the run does next."""
        return spent(self.taken_from("", None, {}))

    def short_of_a_turn(
        self, path: str, limits: Limits | None, used: Mapping[str, Any], promised: bool
    ) -> Spent | None:
        """Which budget has no room for a turn of the step; it is an agent already, or will be by that."""
        stake = self._stake(path, used)
        stake.used.agents = 0
        try:
            return spent(self.taken_from(path, limits, used), promised)
        finally:
            stake.used.agents = 1 if stake.used.turns else 0

    def begin_turn(self, path: str, limits: Limits | None, used: Mapping[str, Any]) -> bool:
        """Take what a turn is sure to take, if there is room for it in every purse now."""
        if self.short_of_a_turn(path, limits, used, promised=True) is not None:
            return False
        self._stake(path, used).asks = True
        return True

    def end_turn(self, path: str, used: Mapping[str, Any]) -> None:
        """A turn is over, and `used` is what its step has taken by now."""
        stake = self._stake(path, used)
        stake.used.agents = 1 if stake.used.turns else 0
        self._drive.host.budgets.ring()

    def spend(self, path: str, usage: Any, by_child: bool) -> None:
        """Count what a step took, for the run and for the day; what a child took, the day has counted."""
        if self.own.under_way:
            self._give_back(path)
        if usage is not None:
            self.own.usage.spend(usage)
            if not by_child and (day := self._drive.host.budgets.day) is not None:
                day.spend(usage)

    def raise_to(self, limits: Mapping[str, Any]) -> None:
        """Higher limits, of the run or of its steps."""
        own, steps = raised(limits)
        self._drive.limits = self.own.limits = self.own.limits.raised(own)
        for path, more in steps.items():
            self._raised[path] = {**self._raised.get(path, {}), **more}
        for drive in self._drive.host.drives.values() if limits else ():
            drive.purses.look()
        self._drive.host.budgets.ring()

    def close(self) -> None:
        """The run is not driven any more: nothing of it is under way."""
        if self.own.under_way and (day := self._drive.host.budgets.day) is not None:
            for path in self.own.under_way:
                day.purse.under_way.pop(self._drive.run.run_id + path, None)
            self._drive.host.budgets.ring()

    def staked(self) -> Iterator[tuple[str, Stake]]:
        """The stakes of the steps under way, by names that no other run has."""
        for path, each in self.own.under_way.items():
            if isinstance(each, Stake):
                yield self._drive.run.run_id + path, each

    def _stake(self, path: str, used: Mapping[str, Any]) -> Stake:
        """What a step has in all purses; a turn of it is not under way, or just over."""
        stake = self.own.under_way.get(path)
        if not isinstance(stake, Stake):
            stake = self.own.under_way[path] = Stake(Usage())
        stake.used, stake.asks = usage_of(used), False
        if (day := self._drive.host.budgets.day) is not None:
            day.purse.under_way[self._drive.run.run_id + path] = stake
        return stake

    def taken_by_child(self, path: str) -> dict[str, float]:
        """What the child run of a call has taken until now, in all its attempts."""
        usage = Usage()
        for name in self._names(path):
            usage.add(self.own.under_way[name].taken())
        return usage.to_dict()

    def _children(self, calls: Called) -> None:
        """Count the child runs that the run has not heard from, whether it asks for them again or not."""
        host, run_id = self._drive.host, self._drive.run.run_id
        for path, key in calls.open.items():
            *before, last = host.attempts(run_id, key) or [""]
            for number, each in enumerate(before, 1):
                self.own.under_way[f"{path}~{number}"] = host.budgets.of(each)
            if last:
                self.own.under_way[path] = host.budgets.of(last)
        for path, key in calls.replaced:
            for each in host.attempts(run_id, key):
                if each not in calls.counted:
                    self._replaced[each] = path
                    self.own.under_way[each] = host.budgets.of(each)

    def began(self, run_id: str, path: str, purse: Purse) -> None:
        """A child run is driven; it may be one that does not count any more."""
        self.own.under_way[run_id if run_id in self._replaced else path] = purse

    @property
    def children(self) -> list[tuple[str, str]]:
        """Where child runs were called that the run has not heard from, and their ids."""
        under_way = self.own.under_way.items()
        return [(call_of(name), each.run) for name, each in under_way if isinstance(each, Purse) and each.run]

    def replaced(self, place: str) -> None:
        """What is at a place does not count any more; what child runs took there does."""
        for name, each in list(self.own.under_way.items()):
            if isinstance(each, Purse) and each.run is not None and within(name, place):
                self._replaced[each.run] = call_of(name)
                self.own.under_way[each.run] = self.own.under_way.pop(name)

    def stopped(self, path: str | None = None) -> None:
        """Note what child runs took that were stopped: those replaced at a path, or all there are."""
        for name, each in list(self.own.under_way.items()):
            if not isinstance(each, Purse) or each.run is None:
                continue
            place = self._replaced.get(name)
            if path is None or place == path:
                del self.own.under_way[name]
                if used := self._drive.host.taken_by(each.run):
                    self.own.usage.spend(used)
                    told = {"run_id": each.run, "usage": used}
                    self._drive.note("child_stopped", place or call_of(name), told)

    def _give_back(self, path: str) -> None:
        for name in self._names(path):
            del self.own.under_way[name]
            if (day := self._drive.host.budgets.day) is not None:
                day.purse.under_way.pop(self._drive.run.run_id + name, None)
            self._drive.host.budgets.ring()

    def _names(self, path: str) -> list[str]:
        """What is under way at a path; child runs of attempts before the last one stand beside it."""
        return [name for name in self.own.under_way if name == path or name.startswith(f"{path}~")]


def run_purse(run_id: str, limits: Limits, usage: Usage, start: Mapping[str, Any]) -> Purse:
    whose = "the run's budget" if start.get("parent") is None else "the budget of the child run"
    return Purse(limits, usage, whose, "resume(limits=…)", run_id)


def call_of(name: str) -> str:
    """The path of a call, by the name of what is under way there: attempts before the last are numbered."""
    path, _, number = name.rpartition("~")
    return path if number.isdigit() else name


def usage_of(used: Mapping[str, Any]) -> Usage:
    usage = Usage()
    usage.spend(used)
    return usage
