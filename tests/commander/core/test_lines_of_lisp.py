"""The lines of a Lisp workflow name the state and the role."""

from __future__ import annotations

import pytest

from nerve import Session
from nerve.testing import ScriptedProvider
from nerve.ui.event_lines import format_event, format_event_log_line

SOURCE = """(workflow w
  (roles (planner :agent-kind "worker") (builder :agent-kind "worker"))
  (state plan
    (send-prompt :agent planner :template "Plan" :tag p)
    (await (transcript-response :request-id p)))
  (state build
    (loop :times 2
      (send-prompt :agent builder :template "Build" :tag b)
      (await (transcript-response :request-id b)))
    (log "built")
    (terminal)))"""


@pytest.mark.requirement("S4-12")
async def test_a_line_names_the_state_the_role_and_the_agent() -> None:
    async with Session("s", providers={"worker": ScriptedProvider(["one", "two", "three"])}) as session:
        session.load(SOURCE, "lisp")
        run = await session.start("w")
        await run.wait()
        lines = [line for event in run.events if (line := format_event_log_line(event)) is not None]
    done = [line.rpartition(",")[0] for line in lines if "✓" in line]
    assert done == [
        "[plan/planner] ✓ one (worker",
        "[build/builder] ✓ two (worker",
        "[build/builder] ✓ three (worker",
    ]
    assert "[build] built" in lines
    assert not any("_" in (format_event(event) or "") for event in run.events)


async def test_a_logged_object_is_shown_as_json() -> None:
    async with Session("s") as session:
        session.load('(workflow w (state s (log "~a" {:passed true}) (terminal)))', "lisp")
        run = await session.start("w")
        await run.wait()
        assert '[s] {"passed": true}' in [format_event_log_line(event) for event in run.events]
