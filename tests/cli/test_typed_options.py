"""The signature of a Python workflow gives the options of `nerve run`, its help and its errors."""

from pathlib import Path

import pytest

SHOP = '''
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated

from pydantic import Field

from nerve import Session, WorkflowContext


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    customer: Annotated[str, Field(description="Who pays")]
    amount: Decimal
    lines: list[Line] = field(default_factory=list)
    due: datetime | None = None
    speed: Speed = Speed.SLOW
    boxes: Annotated[int, Field(ge=1)] = 1


def register(session: Session) -> None:
    @session.workflow
    async def fulfil(ctx: WorkflowContext, order: Order, *, rush: bool = False) -> str:
        """Charge and ship an order."""
        return f"{order.customer} {order.amount} {len(order.lines)} {order.speed.name} {order.boxes} {rush}"

    @session.workflow
    async def count(ctx: WorkflowContext, limit: int, step: int = 1) -> list[int]:
        return list(range(0, limit, step))

    @session.workflow
    async def publish(ctx: WorkflowContext, version: str) -> str:
        return version
'''


@pytest.fixture
def shop(project: Path) -> Path:
    file = project / "shop.py"
    file.write_text(SHOP)
    return file


def fulfil(do, *arguments: str):
    return do("run", "shop.py:fulfil", *arguments)


def test_the_fields_of_an_input_are_options(shop: Path, do) -> None:
    assert fulfil(do, "--customer", "Ann", "--amount", "3.10", "--rush").out == "Ann 3.10 0 SLOW 1 True\n"
    done = fulfil(do, "--customer=Ann", "--amount=3", "--lines", '[{"sku": "tea"}]', "--speed", "fast")
    assert done.out == "Ann 3 1 FAST 1 False\n"


def test_the_input_may_be_json(shop: Path, do) -> None:
    ann = '{"customer": "Ann", "amount": 3}'
    assert fulfil(do, ann, "--boxes", "2").out == "Ann 3 0 SLOW 2 False\n"
    assert fulfil(do, "--input", ann, "--rush").out == "Ann 3 0 SLOW 1 True\n"
    assert "given twice" in fulfil(do, ann, "--input", ann).err
    assert "--input must be NAME=VALUE or JSON, got '{x'." in fulfil(do, "--input", "{x").err


def test_an_input_may_have_the_name_version(shop: Path, do) -> None:
    assert do("run", "shop.py:publish", "--version", "1.2").out == "1.2\n"


def test_an_input_of_the_name_of_an_option_of_the_command_goes_through_input(shop: Path, do) -> None:
    assert do("run", "shop.py:count", "--input", "limit=3", "--json").json["result"] == [0, 1, 2]
    assert "requires --input limit=… (integer)" in do("run", "shop.py:count").err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("amount", "x", "--amount must be a decimal such as 1.50, got 'x'."),
        ("due", "soon", "--due must be a date-time such as 2026-01-31T12:00:00Z, got 'soon'."),
        ("speed", "fst", "--speed must be one of slow, fast, got 'fst'."),
        ("boxes", "two", "--boxes must be an integer, got 'two'."),
        ("boxes", "0", "--boxes is invalid: 0 is less than the minimum of 1."),
        ("lines", "tea", "--lines must be a JSON list, got 'tea'."),
        ("lines", '[{"sku": 1}]', "--lines is invalid: 1 is not of type 'string' at [0]['sku']."),
        ("custmer", "Ann", "'fulfil' has no option 'custmer'. Did you mean 'customer'?"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(option, value, message, shop: Path, do) -> None:
    arguments = {"--customer": "Ann", "--amount": "3", f"--{option}": value}
    done = fulfil(do, *(word for pair in arguments.items() for word in pair))
    assert done.code == 2
    assert message in done.err
    assert do("runs", "--json").json == []


def test_a_missing_option_is_named_with_its_type(shop: Path, do) -> None:
    assert "'fulfil' requires --amount (decimal)." in fulfil(do, "--customer", "Ann").err


def test_help_after_a_target_lists_its_inputs(shop: Path, do) -> None:
    done = fulfil(do, "--help")
    assert done.code == 0
    assert done.out.splitlines() == [
        "Usage: nerve run shop.py:fulfil [INPUT] [--name value …] [OPTIONS]",
        "",
        "Charge and ship an order.",
        "",
        "Inputs:",
        "  --customer  string, required: Who pays",
        "  --amount    decimal, required",
        "  --lines     array",
        "  --due       date-time",
        "  --speed     string, one of slow, fast, default slow",
        "  --boxes     integer, default 1",
        "  --rush      boolean, default false",
        "",
        'INPUT: JSON, such as {"customer": "…", "amount": "1.50"}',
        "",
        "To see the options of the command: nerve run --help",
    ]
    assert fulfil(do, "-h").out == done.out
    assert fulfil(do, "--help", "--json").json["input_schema"]["required"] == ["customer", "amount"]


def test_help_after_a_workflow_file_lists_its_inputs(do) -> None:
    done = do("start", "ship", "--help")
    assert "Usage: nerve start ship [INPUT]" in done.out
    assert "  --count          integer, required" in done.out
    assert "  --input label=…  string, default none" in done.out


def test_an_option_of_a_workflow_file_takes_the_next_word(do) -> None:
    options = ("--count", "3", "--level", "high", "--answer", "approve=yes", "--with", "nodes.py")
    done = do("run", "ship", "text", *options)
    assert '"count": 3' in done.out
    assert '"level": "high"' in done.out


def test_help_shows_the_arguments_that_commands_of_claude_code_expect(project: Path, do) -> None:
    for name, text in {
        "commands/commit.md": "---\nargument-hint: [message] [--amend]\n---\nCommit.",
        "commands/plain.md": "Go.",
        "workflows/flow.yaml": "name: flow\ndescription: A flow.\nsteps: [{step: commit}, {step: plain}]\n",
    }.items():
        path = project / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for target in ("flow", ".claude/workflows/flow.yaml"):
        done = do("run", target, "--help")
        assert "INPUT of its commands:\n  commit: [message] [--amend]\n\nTo see" in done.out, done.err
        assert "plain:" not in done.out
