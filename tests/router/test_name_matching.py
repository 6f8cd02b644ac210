"""Names as people type them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.router import AmbiguousMatch, match_name

NAMES = ["deploy", "deploy-all", "Review", "review", "code-review", "nightly"]
names = st.text("abAB-", min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("deploy", "deploy"),
        ("Review", "Review"),
        ("DEPLOY", "deploy"),
        ("Deploy-A", "deploy-all"),
        ("night", "nightly"),
        ("code", "code-review"),
        ("ploy-a", "deploy-all"),
        ("ightl", "nightly"),
    ],
)
def test_the_first_tier_in_which_one_name_fits_decides(given: str, meant: str) -> None:
    assert match_name(given, NAMES) == meant


@pytest.mark.parametrize(
    ("given", "candidates"),
    [
        ("REVIEW", ("Review", "review")),
        ("dep", ("deploy", "deploy-all")),
        ("view", ("Review", "review", "code-review")),
    ],
)
def test_several_that_fit_equally_well_are_the_answer(given: str, candidates: tuple[str, ...]) -> None:
    assert match_name(given, NAMES) == AmbiguousMatch(candidates)


@pytest.mark.parametrize("given", ["", "release"])
def test_a_name_that_fits_nothing_is_none(given: str) -> None:
    assert match_name(given, NAMES) is None


@given(st.lists(names), st.integers(0))
def test_every_name_is_matched_by_itself(known: list[str], which: int) -> None:
    if known:
        assert match_name(known[which % len(known)], known) == known[which % len(known)]


@given(names, st.lists(names))
def test_the_order_of_the_names_does_not_matter(given: str, known: list[str]) -> None:
    one, other = match_name(given, known), match_name(given, reversed(known))
    if isinstance(one, AmbiguousMatch):
        assert isinstance(other, AmbiguousMatch)
        assert set(one.candidates) == set(other.candidates)
    else:
        assert one == other
