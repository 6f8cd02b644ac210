"""Random expressions agree with QuickJS or are rejected; they never differ."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from expr.generator import SCOPE, Generator
from expr.oracle import Oracle, Refusal, ours
from expr.soup import mutated, soup
from nerve.expr.frame import DEFAULT_LIMITS


def compared(sources: Iterable[str]) -> Counter[str]:
    """The number of equal and of rejected expressions; a difference fails the test."""
    oracle, found = Oracle(SCOPE), Counter[str]()
    for source in sources:
        try:
            here = ours(source, SCOPE)
        except Refusal:
            found["refused"] += 1
            continue
        try:
            there = oracle(source)
        except Refusal as refusal:
            pytest.fail(f"{source}\n  is {here[0]} here, and in JavaScript {refusal}")
        assert here == there, source
        found["same"] += 1
    return found


def expressions(seed: int, count: int) -> Iterator[str]:
    generator = Generator(seed)
    while count:
        source = generator.expression()
        if len(source) <= DEFAULT_LIMITS.source:
            count -= 1
            yield source


def wrong_ones(seed: int, count: int) -> Iterator[str]:
    generator, draw = Generator(seed), random.Random(seed)
    for number in range(count):
        yield soup(draw) if number % 2 else mutated(generator)


def test_random_expressions_agree_with_javascript() -> None:
    assert compared(expressions(seed=1, count=4_000))["same"] > 0.8 * 4_000


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_hundred_thousand_random_expressions_agree_with_javascript(seed: int) -> None:
    assert compared(expressions(seed, count=10_000))["same"] > 0.8 * 10_000


def test_source_that_javascript_rejects_is_rejected() -> None:
    found = compared(wrong_ones(seed=1, count=6_000))
    assert found["refused"] > found["same"] > 100


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 6))
def test_much_source_that_javascript_rejects_is_rejected(seed: int) -> None:
    assert compared(wrong_ones(seed, count=50_000))["same"] > 1_000
