"""What a waiting run waits for, as a phrase."""

from datetime import datetime

import pytest

from nerve.journal.events import (
    EVENT_CLASSES,
    GateWaiting,
    MessageWaiting,
    SignalWaiting,
    TimerStarted,
    WaitOpened,
)
from nerve.journal.waiting import describe_waits

NOW = datetime(2026, 11, 17, 12, 0)
AT_FIVE_PAST_TWO = datetime(2026, 11, 17, 14, 5).timestamp()
TOMORROW = datetime(2026, 11, 18, 9, 30).timestamp()
GATE = GateWaiting("g1", "Approve?")


@pytest.mark.parametrize(
    ("waits", "phrase"),
    [
        ([SignalWaiting(label="shipped", key="42")], "for signal shipped (key 42)"),
        ([SignalWaiting(label="shipped")], "for signal shipped"),
        ([TimerStarted(60.0, AT_FIVE_PAST_TWO)], "until 14:05"),
        ([TimerStarted(60.0, TOMORROW)], "until 2026-11-18 09:30"),
        ([TimerStarted(60.0, TOMORROW), TimerStarted(60.0, AT_FIVE_PAST_TWO)], "until 14:05"),
        ([GATE], 'for gate "Approve?"'),
        ([GATE, GATE, GATE], "for 3 gates"),
        ([GateWaiting("g1", "Is\nit " + "very " * 40 + "good?")], f'for gate "Is it {"very " * 10}ver…"'),
        ([GATE, SignalWaiting(label="go")], 'for gate "Approve?" and signal go'),
        ([GATE, TimerStarted(60.0, AT_FIVE_PAST_TWO)], 'for gate "Approve?", until 14:05'),
        ([SignalWaiting(patterns={"a": ["signal", "go", {"key": "1"}]})], "for signal go (key 1)"),
        ([SignalWaiting(patterns={"a": ["signal", "go"]})], "for signal go"),
        (
            [SignalWaiting(patterns={"a": ["order", {"paid": True}], "b": ["stop"]})],
            'for fact ["order",{"paid":true}] or fact ["stop"]',
        ),
        ([SignalWaiting(label=name) for name in "abcde"], "for signal a, signal b, signal c and 2 more"),
        ([MessageWaiting("orders")], 'for message "orders"'),
        ([], None),
    ],
)
def test_a_wait_is_described(waits: list[WaitOpened], phrase: str | None) -> None:
    assert describe_waits(waits, now=NOW) == phrase


def test_a_run_waits_for_its_child_runs() -> None:
    assert describe_waits([], {"c1": None}) == "for child run c1"
    assert describe_waits([], {"c1": "for signal go"}) == "for child run c1 (for signal go)"
    assert describe_waits([], {"c1": None, "c2": "until 14:05"}) == "for 2 child runs"
    assert describe_waits([GATE], {"c1": None}) == 'for gate "Approve?" and child run c1'


def test_every_kind_of_wait_is_described() -> None:
    kinds = [kind for kind in EVENT_CLASSES.values() if issubclass(kind, WaitOpened)]
    assert len(kinds) >= 3
    for kind in kinds:
        wait = TimerStarted(1.0, AT_FIVE_PAST_TWO) if kind is TimerStarted else kind()
        assert describe_waits([wait], now=NOW) not in (None, "for ")
