"""Two runs side by side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nerve.client import Client
from nerve.ui.run_comparison import MAX_DIFF_LINES, RunOutline, compare_runs, diff_values, merge_orders
from nerve.ui.run_loader import read_run_events

from .conftest import ship


async def outline_of(client: Client, run_id: str) -> RunOutline:
    return RunOutline([event async for prefix, event in read_run_events(client, run_id) if not prefix])


async def test_steps_are_aligned_by_path_with_their_differences(client: Client) -> None:
    first, second = await ship(client, "tea"), await ship(client, "milk")
    comparison = compare_runs(await outline_of(client, first), await outline_of(client, second))
    steps = {step.path: step for step in comparison.steps}
    assert {path: step.change for path, step in steps.items()} == {
        "/claude": "changed",
        "/flaky": "same",
        "/check": "changed",
    }
    assert steps["/claude"].output.lines == ["@@ -1,3 +1,3 @@", " # Done", " ", "-Plan tea", "+Plan milk"]
    assert (steps["/claude"].cost_a, steps["/claude"].cost_b) == (0.25, 0.25)
    assert comparison.input.lines == ["@@ -1 +1 @@", "-tea", "+milk"]
    assert comparison.usage_a == comparison.usage_b
    assert comparison.counts == {"changed": 2, "same": 1}


async def test_a_run_does_not_differ_from_itself(client: Client) -> None:
    run_id = await ship(client)
    outline = await outline_of(client, run_id)
    comparison = compare_runs(outline, outline)
    assert set(comparison.counts) == {"same"}
    assert comparison.result.is_equal


async def test_a_step_of_one_run_alone_is_marked(client: Client) -> None:
    whole = await outline_of(client, await ship(client))
    start = RunOutline()
    run_id = await ship(client)
    async for _, event in read_run_events(client, run_id):
        if event.path in ("", "/claude"):
            start.apply_event(event)
    changes = {step.path: step.change for step in compare_runs(whole, start).steps}
    assert (changes["/flaky"], changes["/claude"]) == ("only_a", "same")


def test_a_long_difference_is_bounded() -> None:
    diff = diff_values([*range(5000)], [*range(5000, 9000)])
    assert len(diff.lines) == MAX_DIFF_LINES
    assert diff.left_out > 0


def test_values_of_other_types_differ() -> None:
    assert diff_values(1, "1").lines == ["@@ -1 +1 @@", "-1", '+"1"']
    assert not diff_values(True, 1).is_equal
    assert diff_values("a\nb", "a\r\nb").lines != []


PATHS = st.lists(st.sampled_from([f"/{letter}" for letter in "abcdefgh"]), unique=True)


@given(PATHS, PATHS)
def test_the_merged_order_has_every_path_once_and_keeps_the_order_of_the_first(
    a: list[str], b: list[str]
) -> None:
    merged = merge_orders(a, b)
    assert sorted(merged) == sorted({*a, *b})
    assert [path for path in merged if path in a] == a
