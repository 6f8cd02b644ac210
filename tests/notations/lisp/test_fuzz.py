"""Whatever a text is, it is read or refused: with places, soon, and with nothing else."""

import random
from pathlib import Path

import pytest

from nerve.notations.lisp import read_document, write_document
from nerve.spec.checker import check_document
from nerve.text.source import Document, InvalidDefinition, Problem
from notations.lisp.drawn import Drawing, damaged
from notations.quick import within

EXAMPLES = sorted((Path(__file__).parents[3] / "examples/workflows/lisp").glob("*.lisp"))


def outcome(text: str) -> Document | None:
    """What reading gives, which must be quick and clean."""
    return within(1, lambda: cleanly(text))


def cleanly(text: str) -> Document | None:
    try:
        return read_document(text, "f.lisp")
    except InvalidDefinition as error:
        verify(error.problems, text.split("\n"))
        return None


def verify(problems: list[Problem], lines: list[str]) -> None:
    """Each problem says something about a place that is there."""
    assert problems
    for problem in problems:
        assert problem.message
        assert problem.position.column <= len(lines[problem.position.line - 1]) + 1


def rounds(seed: int, count: int) -> list[int]:
    """How many of many drawn texts were read, and how many refused."""
    drawing = Drawing(random.Random(seed))
    found = [0, 0]
    for _ in range(count):
        document = outcome(drawing.text())
        found[document is None] += 1
        if document is not None:
            check_document(document)
            assert read_document(write_document(document.data)).data == document.data
    return found


def test_drawn_texts_are_read_or_refused() -> None:
    good, bad = rounds(1, 1_000)
    assert good > 100
    assert bad > 100


@pytest.mark.full
def test_very_many_drawn_texts_are_read_or_refused() -> None:
    assert all(rounds(2, 10_000))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_damaged_examples_are_read_or_refused(example: Path) -> None:
    chance, data = random.Random(3), example.read_bytes()
    for _ in range(100):
        outcome(damaged(chance, data).decode("utf-8", "replace"))


def in_state(body: str, before: str = "") -> str:
    return f"{before}(workflow w (roles (p)) (state s {body}))"


BOMBS = {
    "parentheses": "(" * 10_000,
    "closed parentheses": "(" * 60_000 + ")" * 60_000,
    "a long string": f'(workflow w (state s (log "{"x" * 1_000_000}")))',
    "nul": "(workflow w\0)",
    "byte order mark": "\ufeff(workflow w (state s))",
    "utf-16": "(workflow w (state s))".encode("utf-16").decode("latin-1"),
    "doubling helpers": in_state(
        "(result (f40 1))",
        "".join(f"(defn f{n} (x) {f'(+ (f{n - 1} x) (f{n - 1} x))' if n else 'x'})" for n in range(41)),
    ),
    "helpers that throw away": in_state(
        "(result (f40 1))",
        "(defn k (x) 1)"
        + "".join(f"(defn f{n} (x) {f'(k [(f{n - 1} x) (f{n - 1} x)])' if n else 'x'})" for n in range(41)),
    ),
    "a long helper called often": in_state(
        "(result (f)) " * 11_000, f"(defn f () (str {' '.join(['1234567890'] * 250)}))"
    ),
    "unknown forms": in_state("(nope) " * 30_000),
    "unknown names": in_state("(result x) " * 20_000),
    "unknown names among many": in_state(
        "(let (" + "".join(f"(n{n} 1)" for n in range(9_000)) + ") (result no1))"
    ),
    "names in records": in_state(
        "(let (" + "".join(f"(n{n} 1)" for n in range(3_000)) + ") (assert (a" + " m1" * 25_000 + ")))"
    ),
    "many prompts and waits": in_state(
        '(send-prompt :agent p :template "x") (await (transcript-response :request-id r))' * 2_500
    ),
    "many states": f"(workflow w {''.join(f'(state s{n} (goto s{n}))' for n in range(6_000))})",
    "many clauses": in_state(f"(select {'(on (signal a))' * 9_000})"),
    "holes and braces": in_state(f'(log "{"{" * 100_000}~a" 1)'),
    "tildes": in_state(f'(log "{"~~" * 100_000}")'),
    "backslashes before a hole": in_state(f'(log "{chr(92) * 100_000}~a" (input))'),
    "a wide spec": "(spec {:a [" + "1 " * 49_000 + "]})",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_read_or_refused_within_a_second(name: str) -> None:
    outcome(BOMBS[name])
