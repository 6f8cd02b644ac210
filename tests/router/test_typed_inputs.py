"""Typed workflows in the router: their fields are inputs, and a value that does not fit is a question."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from nerve import Session, WorkflowContext
from nerve.agents.provider import Capabilities
from nerve.api import Api
from nerve.router import QuestionDecision, WorkflowDecision, candidates_of, route, start
from nerve.router.prompt import build_router_prompt
from nerve.testing.scripted import ScriptedProvider


@dataclass
class Order:
    item: str
    count: int = 1


class Payment(BaseModel):
    account: str
    due: date

    @field_validator("account")
    @classmethod
    def check_account(cls, account: str) -> str:
        if not account.startswith("AC"):
            raise ValueError("an account starts with AC")
        return account


@pytest.fixture
def session() -> Session:
    session = Session()

    @session.workflow
    async def buy(ctx: WorkflowContext, order: Order, size: Literal["small", "large"] = "small") -> str:
        """Buys something."""
        return f"{order.count} {size} {order.item}"

    @session.workflow
    async def pay(ctx: WorkflowContext, payment: Payment) -> str:
        """Pays a bill."""
        return f"{payment.account} {payment.due}"

    @session.workflow
    async def remind(ctx: WorkflowContext, at: datetime) -> str:
        """Reminds."""
        return at.isoformat()

    @session.workflow
    async def say(ctx: WorkflowContext, text: str, times: int = 1) -> str:
        """Says a text."""
        return text * times

    return session


class FormProvider(ScriptedProvider):
    """A scripted provider with structured output."""

    capabilities = Capabilities(schema=True)


async def decide(session: Session, workflow: str, inputs: dict[str, Any], intent: str = "intent") -> Any:
    answer = {"workflow": workflow, "inputs": inputs, "intent": intent, "reply": "", "question": ""}
    return await route("text", candidates_of(session), FormProvider([json.dumps(answer)]))


async def result_of(session: Session, decision: Any) -> Any:
    run = await start(session, decision)
    assert run is not None
    return await run.wait()


def test_the_fields_of_the_input_and_the_parameters_are_inputs(session: Session) -> None:
    offered = {each.name: each for each in candidates_of(session)}
    assert {name: declared.type for name, declared in offered["buy"].inputs.items()} == {
        "item": "string",
        "count": "integer",
        "size": "string",
    }
    assert [name for name, declared in offered["buy"].inputs.items() if declared.required] == ["item"]
    assert list(offered["remind"].inputs) == ["at"]
    assert list(offered["say"].inputs) == ["times"], "the intent is the text"
    prompt = build_router_prompt("x", offered.values(), form=True)
    assert '  - input `size` (string, one of ["small", "large"])' in prompt
    assert "  - input `due` (string, required): a date such as 2026-01-31" in prompt


async def test_an_agent_fills_the_fields_of_a_typed_workflow(session: Session) -> None:
    decision = await decide(session, "buy", {"item": "tea", "count": 2, "size": "large"})
    assert isinstance(decision, WorkflowDecision)
    assert await result_of(session, decision) == "2 large tea"
    decision = await decide(session, "pay", {"account": "AC1", "due": "2026-01-31"})
    assert await result_of(session, decision) == "AC1 2026-01-31"
    decision = await decide(session, "say", {"times": 2}, intent="hey")
    assert await result_of(session, decision) == "heyhey"


@pytest.mark.parametrize(
    ("workflow", "inputs", "question"),
    [
        ("buy", {}, "To start 'buy': 'item' is needed (a string)."),
        (
            "buy",
            {"item": "tea", "count": "two", "size": "huge"},
            "To start 'buy': 'count' must be an integer, not 'two'; 'size' must be one of"
            ' ["small", "large"], not \'huge\'.',
        ),
        (
            "pay",
            {"account": "AC1", "due": "soon"},
            "To start 'pay': 'due' is invalid: 'soon' is not a 'date'.",
        ),
        ("buy", {"item": "tea", "coun": 2}, "it has no input 'coun', did you mean 'count'"),
        ("pay", {"account": "X1", "due": "2026-01-31"}, "an account starts with AC"),
        ("remind", {}, "To start 'remind': 'at' is needed (a string): a date-time such as"),
    ],
)
async def test_a_value_that_does_not_fit_is_a_question(
    session: Session, workflow: str, inputs: dict[str, Any], question: str
) -> None:
    decision = await decide(session, workflow, inputs)
    assert isinstance(decision, QuestionDecision)
    assert question in decision.question
    assert session.runs() == []


async def test_a_message_with_the_value_itself_starts_the_workflow(session: Session) -> None:
    candidates = candidates_of(session)
    decision = await route('%buy {"item": "tea", "count": 3}', candidates)
    assert await result_of(session, decision) == "3 small tea"
    decision = await route("%remind 2026-01-31T12:00:00", candidates)
    assert await result_of(session, decision) == "2026-01-31T12:00:00"
    decision = await route('%say {"item": "tea"}', candidates)
    assert await result_of(session, decision) == '{"item": "tea"}'
    asked = await route("%buy some tea", candidates)
    assert isinstance(asked, QuestionDecision)
    assert asked.question == "To start 'buy': 'item' is needed (a string)."


async def test_the_api_routes_to_a_typed_workflow_once_for_a_key(session: Session) -> None:
    api = Api(session)
    first = await api.route(text='%buy {"item": "tea"}', start=True, key="k")
    again = await api.route(text='%buy {"item": "tea"}', start=True, key="k")
    assert first.run is not None
    assert again.run is not None
    assert first.run.run_id == again.run.run_id
    assert (await api.route(text="%buy tea", start=True)).kind == "question"
