"""Cuts: from where on a fork goes its own way, and what of a journal it takes over."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from nerve.core.event import OF_THE_RUN
from nerve.core.suggest import suggest
from nerve.core.workflow.replay import (
    ASKS,
    CONTROL,
    DROPS,
    NOT_THE_BODY,
    ROOT,
    ancestors,
    answers,
    below,
    is_child,
    without,
    without_reset,
)
from nerve.core.workflow.replay import Row as AnyRow
from nerve.engine.failures import left_behind
from nerve.engine.records import WAITS
from nerve.store.port import Row


@dataclass(frozen=True, slots=True)
class Cut:
    """From where on a fork goes its own way."""

    paths: Sequence[str] = ()
    """What is run again."""
    since: float = inf
    """The number of the event after which nothing is sure any more: people and the clock are asked again."""
    outdated: Sequence[str] = ()
    """Where people were asked whose answers do not count: an answer counts only for what was shown."""
    retried: Container[str] = ()
    """The calls of child runs that came to nothing: they are tried again, as their parent is."""

    @classmethod
    def at(
        cls, paths: Sequence[str], past: Iterable[AnyRow], asked: Callable[[str], bool], anew: bool = False
    ) -> Cut:
        """From paths on: what came before the first of them was reached is sure. If `anew`, no answer is."""
        rows = counted(past)
        asks = {row.path: row.seq for row in rows if row.type in ASKS}
        for path in paths:
            if path not in asks:
                known = sorted(asks)
                meant = suggest(path, known) or f". It has: {', '.join(known) or 'none yet'}"
                raise ValueError(f"the run has no path '{path}'{meant}")
        since = min((asks[path] for path in paths), default=inf)
        late = [place for seq, place in answers(rows, asked) if seq > (0 if anew else since)]
        return cls(paths, since, late)

    @classmethod
    def again(
        cls,
        past: Iterable[AnyRow],
        failed: Mapping[str, AnyRow],
        asked: Callable[[str], bool],
        anew: bool = False,
    ) -> Cut:
        """At what failed: what came before the first failure is sure, and so is what was asked before it."""
        rows = counted(past)
        asks = {row.path: row.seq for row in rows if row.type in ASKS}
        since = min((row.seq for row in failed.values()), default=inf)
        late = [place for _, place in answers(rows, asked) if anew or asks[place] > since]
        children = {row.path for row in rows if is_child(row)} & (failed.keys() | left_behind(rows))
        return cls([path for path in failed if path not in children], since, late, children)


def counted(rows: Iterable[AnyRow]) -> list[AnyRow]:
    """What a body did, and what came of it, without what was reset."""
    return [row for row in without_reset(list(rows)) if row.type not in OF_THE_RUN]


def reopened(rows: list[AnyRow], calls: Container[str]) -> list[AnyRow]:
    """The rows without how calls ended, and what is around them; that they were made is still there."""
    places = [row.path for row in rows if is_child(row) and row.path in calls]
    around = {above for path in places for above in (*ancestors(path), path)}
    return [row for row in rows if not (row.path in around and (row.settles or row.type in DROPS))]


def kept(rows: Iterable[AnyRow], cut: Cut) -> list[Row]:
    """The rows that a fork takes over, numbered from 2.

    Left out are what lies at or below the paths, how the nodes around them ended, whatever was not
    settled, every timer and signal that was opened after what is sure, and every answer
    that does not count any more, with how the nodes around the gate ended.
    Of a child run that was not heard from, that is tried again or asks again, the last attempt is the first
    one of the fork.
    """
    past = counted(rows)
    late = {row.path for row in past if row.type in WAITS and row.seq > cut.since}
    calls = {row.path for row in past if is_child(row)}
    goes_on = {path for path in calls if path in cut.retried or path in cut.outdated}
    past = without(past, [*cut.paths, *(place for place in cut.outdated if place not in calls)])
    past = reopened(past, goes_on)
    ended = {row.path for row in past if row.settles and row.type not in DROPS and row.settles != ROOT}
    given_up = {row.path for row in past if row.type in DROPS}
    calling = {row.path for row in past if is_child(row) and row.path not in ended}

    def takes_over(row: AnyRow) -> bool:
        if row.type in DROPS or row.type in NOT_THE_BODY or row.path in late or below(row.path, calling):
            return False
        if row.type not in ASKS or row.path in ended or row.data.startswith(CONTROL):
            return True
        return is_child(row) and row.path not in given_up

    taken = [row for row in past if takes_over(row)]
    return [
        Row(number, row.at, row.type, row.path, row.path if row.settles else None, row.data)
        for number, row in enumerate(taken, 2)
    ]
