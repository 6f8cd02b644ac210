"""Bad input: whatever is read, it is a document or a list of problems with places, and soon."""

import os
import random
import time
from collections.abc import Callable

import pytest

from nerve.notations.yaml_prompts import read_document
from nerve.spec.checker import check_document
from nerve.text.source import InvalidDefinition, Problem

SEEDS = [
    """name: feature
description: Build it.
provider: claude
inputs: {topic: {type: string, required: true}}
steps:
  - step: plan
    expect: [plan.md]
  - step: implement
    clearContext: true
    retry: {attempts: 3, delay: 1.5}
""",
    """name: review
description: "Review: it"
nodes:
  - id: diff
    bash: |
      git diff "$USER_MESSAGE"
  - id: look
    prompt: 'Look at {{ steps.diff.output }}'
    depends_on: [diff]
  - {id: ask, approval: Merge?, depends_on: [look]}
""",
    """name: full
body:
  kind: machine
  states:
    - name: a
      body: {kind: prompt, text: hi}
      next: [{when: "steps.x.success", to: a}]
""",
]
PIECES = [
    *"\n \t:-?[]{},#&*!|>'\"%@`~=<.0\\$\0\x1b\x85\u2028\ufeff\ud800é",
    *[
        "- ",
        ": ",
        "\n  ",
        "\n- ",
        "<<: ",
        "&a ",
        "*a",
        "!!python/name:os.system ",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
    ],
    *[
        "null",
        "true",
        "1e999",
        "0x",
        ".nan",
        "{{ ",
        " }}",
        "[" * 70,
        "{a: " * 70,
        "../",
        "9" * 400,
        "x" * 2000,
    ],
    *[
        "step: ",
        "steps:\n",
        "nodes:\n",
        "body: ",
        "kind: prompt",
        "name: ",
        "expect: ",
        "on_error: ",
        "inputs: ",
    ],
]
KEYS = [
    "name",
    "description",
    "provider",
    "model",
    "steps",
    "nodes",
    "body",
    "inputs",
    "limits",
    "step",
    "clearContext",
    "id",
    "prompt",
    "command",
    "bash",
    "gate",
    "approval",
    "depends_on",
    "when",
    "context",
    "thread",
    "args",
    "retry",
    "timeout",
    "expect",
    "on_error",
    "env",
    "kind",
    "states",
]
SCALARS = [
    "x",
    "3",
    "true",
    "~",
    "''",
    "[]",
    "{}",
    "{{ x",
    "'{{ x }}'",
    "../x",
    "|\n  a",
    "&a b",
    "*a",
    "!x y",
    "1:30",
]


def mutated(draw: random.Random) -> str:
    """A good file with some bytes changed, removed, doubled or put in."""
    text = draw.choice(SEEDS)
    for _ in range(draw.randint(1, 8)):
        at, length = draw.randrange(len(text) + 1), draw.randint(0, 12)
        piece = draw.choice(PIECES) if draw.random() < 0.7 else text[at : at + length] * draw.randint(1, 3)
        text = text[:at] + piece + text[at + draw.choice([0, length]) :]
    return text


def grown(draw: random.Random) -> str:
    """A file made of the words of the dialects in any order and nesting."""

    def value(depth: int) -> str:
        if depth > draw.randint(1, 6):
            return draw.choice(SCALARS)
        if draw.random() < 0.4:
            return "[" + ", ".join(value(depth + 1) for _ in range(draw.randint(0, 3))) + "]"
        keys = draw.choices(KEYS, k=draw.randint(0, 5))
        return "{" + ", ".join(f"{key}: {value(depth + 1)}" for key in keys) + "}"

    keys = draw.sample(KEYS, draw.randint(0, 10))
    return "".join(f"{key}: {value(0)}\n" for key in keys)


def decoded(draw: random.Random) -> str:
    """Bytes of a good file with some of them changed, as text."""
    data = bytearray(draw.choice(SEEDS).encode(draw.choice(["utf-8", "utf-8", "utf-16", "latin-1"])))
    for _ in range(draw.randint(1, 10)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    return data.decode(draw.choice(["latin-1", "utf-8"]), "surrogateescape")


def try_one(text: str) -> bool:
    """Whether it could be read; anything but a document or problems is an error of ours."""
    problems, readable = outcome(text)
    for problem in problems:
        assert problem.message, text
        assert 1 <= problem.position.line <= text.count("\n") + 1, text
        assert problem.position.column >= 1, text
    assert readable or problems, text
    return readable


def outcome(text: str) -> tuple[list[Problem], bool]:
    try:
        return check_document(read_document(text, "x.yaml")).problems, True
    except InvalidDefinition as error:
        return error.problems, False
    except Exception as error:
        raise AssertionError(repr(text)) from error


@pytest.mark.parametrize("make", [mutated, grown, decoded], ids=lambda make: make.__name__)
def test_anything_is_a_document_or_problems_with_places(make: Callable[[random.Random], str]) -> None:
    fuzz(make, 3000)


@pytest.mark.full
@pytest.mark.parametrize("make", [mutated, grown, decoded], ids=lambda make: make.__name__)
def test_anything_at_full_figures(make: Callable[[random.Random], str]) -> None:
    fuzz(make, 100_000)


def fuzz(make: Callable[[random.Random], str], number: int) -> None:
    draw = random.Random(f"{make.__name__} {os.environ.get('NERVE_SEED', '')}")
    slowest = 0.0
    readable = 0
    for _ in range(number):
        text = make(draw)
        start = time.process_time()
        readable += try_one(text)
        slowest = max(slowest, time.process_time() - start)
    assert slowest < 1
    assert make is not mutated or readable > number // 100
