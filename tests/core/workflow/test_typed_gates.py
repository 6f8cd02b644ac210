"""Gates with a type: it gives the choices or the form, and the answer is a value of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from core.workflow.support import at_gate, until
from nerve import Session, WorkflowContext, WorkflowRun
from nerve.errors import RunHeld


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Decision:
    approved: bool
    amount: Decimal = Decimal(0)
    due: datetime | None = None


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check(cls, number: int) -> int:
        if number % 2:
            raise ValueError("it must be even")
        return number


def register(session: Session, type: Any, then: str | None = None) -> list[Any]:
    """Register a workflow that asks for a value of a type; return the list of the answers it gets."""
    answers: list[Any] = []

    @session.workflow
    async def ask(ctx: WorkflowContext) -> str:
        answer = await ctx.gate("Approve?", type=type)
        answers.append(answer)
        if then is not None:
            await ctx.gate(then)
        return repr(answer)

    return answers


async def start(session: Session) -> WorkflowRun:
    run = await session.start("ask")
    await at_gate(run)
    return run


@pytest.mark.parametrize(
    ("type", "answer", "value"),
    [
        (Decision, {"approved": True, "amount": "1.50"}, Decision(True, Decimal("1.50"))),
        (Decision, '{"approved": false, "amount": 2}', Decision(False, Decimal(2))),
        (Decision, Decision(True, due=datetime(2026, 1, 2, tzinfo=UTC)), None),
        (Even, {"number": 2}, Even(number=2)),
        (Even, Even(number=4), None),
        (Color, "red", Color.RED),
        (Color, Color.BLUE, None),
        (Level, "2", Level.HIGH),
        (Level, 2, Level.HIGH),
        (bool, "yes", True),
        (bool, False, False),
        (Literal["a", "b"], "b", "b"),
        (Literal[1, 2], "1", 1),
        (Literal["1", 1], 1, 1),
        (int, "3", 3),
        (str, "3", "3"),
        (Decimal, "1.50", Decimal("1.50")),
        (datetime, "2026-01-02T00:00:00Z", datetime(2026, 1, 2, tzinfo=UTC)),
        (int | None, "null", None),
        (list[Color], ["red"], [Color.RED]),
    ],
    ids=str,
)
async def test_an_answer_is_a_value_of_the_type(type: Any, answer: Any, value: Any, session: Session) -> None:
    answers = register(session, type)
    run = await start(session)
    await run.answer(answer)
    await run.wait()
    assert answers == [answer if value is None and answer != "null" else value]


@pytest.mark.parametrize(
    ("type", "choices"),
    [
        (bool, ["yes", "no"]),
        (Color, ["red", "blue"]),
        (Level, ["1", "2"]),
        (Literal["a", 2], ["a", "2"]),
        (Literal["1", 1], None),
        (Decision, None),
        (str, None),
    ],
    ids=str,
)
async def test_a_few_simple_values_are_choices(
    type: Any, choices: list[str] | None, session: Session
) -> None:
    register(session, type)
    run = await start(session)
    assert run.pending_gates[0].choices == choices


async def test_other_types_have_a_form(session: Session) -> None:
    register(session, Decision)
    form = (await start(session)).pending_gates[0].form
    assert form is not None
    assert list(form["properties"]) == ["approved", "amount", "due"]
    assert form["required"] == ["approved"]


@pytest.mark.parametrize(
    ("type", "answer", "problem"),
    [
        (Decision, {"approved": "maybe"}, "'maybe' is not of type 'boolean' at ['approved']"),
        (Decision, {"approved": True, "due": "soon"}, "at ['due']"),
        (Decision, "yes", "it must be a JSON object with approved, amount (optional), due (optional)"),
        (Color, "green", "Must be one of: ['red', 'blue']"),
        (bool, "maybe", "Must be one of: ['yes', 'no']"),
        (datetime, "soon", "it must be a date-time such as 2026-01-31T12:00:00Z"),
        (Decimal, "much", "it must be a decimal such as 1.50"),
        (int, "3.5", "3.5 is not of type 'integer'"),
    ],
)
async def test_an_answer_of_another_type_is_refused_and_the_gate_stays_open(
    type: Any, answer: Any, problem: str, session: Session
) -> None:
    register(session, type)
    run = await start(session)
    with pytest.raises(ValueError, match=re.escape(problem)):
        await run.answer(answer)
    assert len(run.pending_gates) == 1


async def test_a_gate_asks_again_if_a_validator_of_the_type_refuses_the_answer(file: Path) -> None:
    async with Session(store=file) as session:
        register(session, Even, then="Sure?")
        run = await start(session)
        await run.answer({"number": 3})
        await until(lambda: run.pending_gates and run.pending_gates[0].path == "/gate[2]")
        assert "it must be even" in (run.pending_gates[0].note or "")
        await run.answer({"number": 4})
        await until(lambda: run.pending_gates and run.pending_gates[0].path == "/gate[3]")
    async with Session(store=file) as session:
        register(session, Even, then="Sure?")
        [run] = await session.recover()
        await run.answer("yes")
        assert await run.wait() == "Even(number=4)"


async def replay(file: Path, before: Any, answer: Any, after: Any) -> WorkflowRun:
    """Answer a gate of one type, and return the run after a restart in which it has another type."""
    async with Session(store=file) as session:
        register(session, before, then="Sure?")
        run = await start(session)
        await run.answer(answer)
        await until(lambda: run.pending_gates and run.pending_gates[0].path == "/gate[2]")
    async with Session(store=file) as session:
        register(session, after, then="Sure?")
        [run] = await session.recover()
        await run.answer("yes")
        try:
            await run.wait()
        except RunHeld:
            pass
        return run


async def test_a_recorded_answer_is_the_same_value_after_a_restart(file: Path) -> None:
    run = await replay(file, Decision, {"approved": True}, Decision)
    assert run.result == repr(Decision(True))


async def test_a_recorded_answer_may_be_read_as_another_type_that_it_fits(file: Path) -> None:
    @dataclass
    class Later:
        approved: bool
        reason: str = "none"

    run = await replay(file, Decision, {"approved": True}, Later)
    assert run.result == repr(Later(True))


@pytest.mark.parametrize(
    ("before", "answer", "after", "problem"),
    [
        (
            Literal["yes", "maybe"],
            "maybe",
            bool,
            "The answer to the gate 'Approve?' must be a valid boolean, got 'maybe'",
        ),
        (Color, "red", Literal["blue"], "The answer to the gate 'Approve?' must be 'blue', got 'red'"),
    ],
)
async def test_a_recorded_answer_of_another_type_holds_the_run(
    before: Any, answer: Any, after: Any, problem: str, file: Path
) -> None:
    run = await replay(file, before, answer, after)
    assert run.held is not None
    assert run.held["path"] == "/gate"
    assert problem in run.held["message"]


async def test_the_message_names_the_field_of_a_recorded_answer(file: Path) -> None:
    @dataclass
    class Later:
        approved: str

    run = await replay(file, Decision, {"approved": True}, Later)
    assert "The answer.approved to the gate 'Approve?' must be a valid string" in (run.held or {})["message"]


@pytest.mark.parametrize("setting", [{"choices": ["a"]}, {"form": {"type": "string"}}], ids=str)
async def test_a_type_excludes_choices_and_a_form(setting: dict[str, Any], session: Session) -> None:
    @session.workflow
    async def ask(ctx: WorkflowContext) -> None:
        await ctx.gate("Approve?", type=bool, **setting)

    run = await session.start(ask)
    with pytest.raises(Exception, match=f"ctx.gate takes either type or {next(iter(setting))}"):
        await run.wait()


async def test_a_type_without_json_is_an_error_of_the_call(session: Session) -> None:
    @session.workflow
    async def ask(ctx: WorkflowContext, type: str) -> None:
        await ctx.gate("Approve?", type={"class": Session, "function": Callable[[], int]}[type])

    for type in ("class", "function"):
        with pytest.raises(Exception, match="Use a dataclass, a pydantic model or JSON"):
            await (await session.start(ask, type)).wait()
