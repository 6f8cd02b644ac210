"""The usage ledger accepts any data, because users can emit `usage` events."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nerve.core.events import WorkflowEvent
from nerve.core.usage_ledger import UsageLedger
from nerve.journal.run_view import fold_events

names = st.sampled_from(["model", "models", "cost", "cost_source", "turns", "tokens", "input_tokens", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(0, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
usages = st.dictionaries(names, values, max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["", "/a", "/a/b"]), usages, st.booleans()), max_size=5))
def test_usage_events_with_any_data_are_accepted(told: list[tuple[str, dict[str, Any], bool]]) -> None:
    ledger = UsageLedger()
    for path, usage, child in told:
        ledger.add_turn(path, usage)
        ledger.settle_step(path, {"usage": usage} | ({"run_id": "r"} if child else {}))
    turns = sum(entry.get("turns", 0) for entry in ledger.by_model().values())
    assert turns == sum(entry.get("turns", 0) for entry in ledger.by_step().values())


@given(usages, st.sampled_from(["usage", "provider_limited", "provider_open", "steered"]))
def test_a_view_accepts_events_that_a_body_emits(data: dict[str, Any], type: str) -> None:
    view = fold_events([WorkflowEvent("r", "w", type, data, seq=1, path="")])
    assert view.nodes == {}
