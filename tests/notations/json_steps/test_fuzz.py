"""Broken files: a document or problems with places, never anything else, and soon."""

import random

import pytest

from nerve.notations.json_steps import read_document, write_document
from nerve.project.config import read_config
from nerve.text.source import Document, InvalidDefinition, Problem
from notations.json_steps.files import damaged, disfigured, workflow, written
from notations.quick import within


def outcome(text: str) -> Document | None:
    """What reading gives, which must be quick and clean."""
    return within(1, lambda: cleanly(text))


def cleanly(text: str) -> Document | None:
    try:
        return read_document(text, "f.json")
    except InvalidDefinition as error:
        look_at(error.problems, text)
        return None


def look_at(problems: list[Problem], text: str) -> None:
    assert problems
    for problem in problems:
        assert problem.message
        assert 1 <= problem.position.line <= text.count("\n") + 1
        assert problem.position.column >= 1


def rounds(seed: int, count: int) -> tuple[int, int]:
    """How many of many broken files were read, and how many were not."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        made = workflow(chance)
        if chance.random() < 0.5:
            made = disfigured(chance, made)
        text = written(chance, made)
        if chance.random() < 0.3 and isinstance(made, dict) and (document := outcome(text)):
            text = write_document(document.data)
        found.append(outcome(damaged(chance, text) if chance.random() < 0.6 else text))
    return sum(map(bool, found)), sum(not it for it in found)


def test_broken_files_give_problems_and_nothing_else() -> None:
    right, wrong = rounds(1, 4000)
    assert right > 500
    assert wrong > 1000


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_broken_files_give_problems_and_nothing_else(seed: int) -> None:
    rounds(seed, 10_000)


def test_broken_configurations_give_problems_and_nothing_else() -> None:
    chance = random.Random(3)
    settings = {
        "enabled": True,
        "workflows_dir": "w",
        "workflows": {"a": {"enabled": True, "visible_to": ["b"]}},
    }
    for _ in range(2000):
        text = written(chance, disfigured(chance, settings))
        text = damaged(chance, text) if chance.random() < 0.5 else text
        try:
            read_config(text)
        except InvalidDefinition as error:
            look_at(error.problems, text)


STEP = '{"id": "s%d", "type": "agent", "agent": "x", "next": "s%d", "input": []}'
BOMBS = {
    "deep parallels": '{"id":"w","steps":[' + '{"id":"p","type":"parallel","steps":[' * 5000,
    "deep context": '{"id":"w","initial_context":' + "[" * 20_000,
    "deep body": '{"name":"w","body":' + '{"kind":"sequence","steps":[' * 20_000,
    "misspelt": '{"id":"w","steps":[' + ",".join(['{"idd":"x","typ":"agent"}'] * 20_000) + "]}",
    "unknown inputs": '{"id":"w","steps":['
    + ",".join(f'{{"id":"s{n}","type":"agent","agent":"x","input":"t{n}"}}' for n in range(8000))
    + "]}",
    "one id": '{"id":"w","steps":[' + ",".join([STEP % (1, 1)] * 12_000) + "]}",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_soon_with_a_reason(bomb: str) -> None:
    assert outcome(bomb) is None


@pytest.mark.parametrize("parallel", ["true", "false"])
def test_a_large_file_is_read_in_less_than_a_second(parallel: str) -> None:
    steps = ",".join(STEP % (n, n + 1) for n in range(6000))
    assert outcome(f'{{"id": "w", "parallel": {parallel}, "steps": [{steps}]}}')
