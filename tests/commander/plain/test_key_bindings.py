"""Keys of the plain mode that quit and stop."""

from types import SimpleNamespace
from typing import Any

from prompt_toolkit.buffer import Buffer

from commander.tui.state_fixtures import Scripted, finished, make_state, review
from nerve.commander.core.state import CommanderState
from nerve.commander.plain.key_bindings import CLEAR_HINT, LEAVE_HINT, PlainKeyActions


class Pressing:
    """Presses keys and records the effects."""

    def __init__(self, on: CommanderState, focus: str | None = None) -> None:
        on.focus_run(focus)
        self.controller, self.left = Scripted(on), False
        unused: Any = None
        self.keys = PlainKeyActions(self.controller, unused, unused, unused, unused)
        app = SimpleNamespace(exit=self.leave)
        self.event: Any = SimpleNamespace(current_buffer=Buffer(), app=app)

    def leave(self, result: None) -> None:
        self.left = True

    @property
    def hint(self) -> str:
        return self.keys.hint.current_text


def stopping() -> Pressing:
    state = make_state()
    review(state)
    return Pressing(state, "run_01review")


async def stopped(at: Pressing) -> list[str | None]:
    for task in list(at.keys.tasks):
        await task
    return at.controller.stopped_runs


async def test_ctrl_c_twice_quits_and_stops_nothing() -> None:
    at = stopping()
    at.keys.interrupt(at.event)
    assert at.hint == LEAVE_HINT
    at.keys.interrupt(at.event)
    assert (at.left, await stopped(at)) == (True, [])


async def test_esc_asks_and_enter_stops_the_run() -> None:
    at = stopping()
    at.keys.escape(at.event)
    assert at.hint == "Stop last commit review? Enter stops it, Esc keeps it."
    at.keys.enter(at.event)
    assert await stopped(at) == ["run_01review"]


async def test_esc_twice_keeps_the_run() -> None:
    at = stopping()
    for _ in range(4):
        at.keys.escape(at.event)
    assert await stopped(at) == []


async def test_esc_twice_clears_the_line_and_stops_nothing() -> None:
    at = stopping()
    at.event.current_buffer.insert_text("draft")
    at.keys.escape(at.event)
    assert (at.hint, at.event.current_buffer.text) == (CLEAR_HINT, "draft")
    at.keys.escape(at.event)
    at.keys.enter(at.event)
    assert (at.event.current_buffer.text, await stopped(at)) == ("", [])


async def test_esc_leaves_a_gate_first() -> None:
    at = stopping()
    at.controller.state.open_gate("g1")
    at.event.current_buffer.insert_text("draft")
    at.keys.escape(at.event)
    assert (at.controller.state.open_gate_id, at.event.current_buffer.text) == (None, "draft")


async def test_ctrl_c_without_runs_only_quits() -> None:
    state = make_state()
    finished(state)
    at = Pressing(state, "run_00research")
    at.keys.interrupt(at.event)
    assert at.hint == LEAVE_HINT
