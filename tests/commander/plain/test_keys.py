"""Keys of the plain mode that leave and stop."""

from types import SimpleNamespace
from typing import Any

from prompt_toolkit.buffer import Buffer

from commander.tui.desks import Scripted, desk, finished, review
from nerve.commander.core.desk import Desk
from nerve.commander.plain.keys import LEAVE, Keys


class Pressing:
    """Keys on a desk, and what came of them."""

    def __init__(self, on: Desk, focus: str | None = None) -> None:
        on.look_at(focus)
        self.controller, self.left = Scripted(on), False
        unused: Any = None
        self.keys = Keys(self.controller, unused, unused, unused, unused)
        app = SimpleNamespace(exit=self.leave)
        self.event: Any = SimpleNamespace(current_buffer=Buffer(), app=app)

    def leave(self, result: None) -> None:
        self.left = True

    @property
    def hint(self) -> str:
        return self.keys.hint.now


async def test_ctrl_c_offers_to_stop_what_runs_and_leaves_when_it_is_pressed_again() -> None:
    made = desk()
    review(made)
    at = Pressing(made, "run_01review")
    at.keys.interrupt(at.event)
    assert at.hint == f"Esc stops last commit. {LEAVE}"
    at.keys.interrupt(at.event)
    assert (at.left, at.controller.stopped) == (True, [])


async def test_esc_stops_what_ctrl_c_offered_to_stop_although_a_gate_is_open() -> None:
    made = desk()
    review(made)
    at = Pressing(made, "run_01review")
    made.open_gate("g1")
    at.keys.interrupt(at.event)
    at.keys.escape(at.event)
    for task in list(at.keys.tasks):
        await task
    assert (at.left, at.controller.stopped, made.opened) == (False, ["run_01review"], "g1")


async def test_ctrl_c_only_leaves_where_nothing_runs() -> None:
    made = desk()
    finished(made)
    at = Pressing(made, "run_00research")
    at.keys.interrupt(at.event)
    assert at.hint == LEAVE
