"""Pastes: folded in the line, expanded on submit."""

from hypothesis import given
from hypothesis import strategies as st

from nerve.commander.core.paste_folding import Pastes


def lines(count: int) -> str:
    return "\n".join(f"line {n}" for n in range(1, count + 1))


def test_a_paste_of_more_than_eight_lines_is_folded():
    pastes = Pastes()
    assert pastes.fold(lines(8)) == lines(8)
    assert pastes.fold(lines(12)) == "[Pasted text #1 +11 lines]"
    assert pastes.fold("x" * 5000) == "[Pasted text #2 5000 characters]"


def test_line_endings_are_normalized():
    assert Pastes().fold("a\r\nb\rc") == "a\nb\nc"


def test_an_unknown_mark_is_unchanged():
    assert Pastes().expand("see [Pasted text #1 +11 lines]") == "see [Pasted text #1 +11 lines]"


def test_a_repeated_paste_is_found():
    pastes = Pastes()
    mark = pastes.fold(lines(12))
    assert pastes.find_mark(lines(12).replace("\n", "\r"), f"see {mark}") == mark
    assert pastes.find_mark(lines(12), "see") is None


@given(st.lists(st.text(), max_size=3), st.text())
def test_expanding_restores_the_pasted_text(texts, between):
    pastes = Pastes()
    plain = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    folded = between.join(pastes.fold(text) for text in texts)
    assert pastes.expand(folded) == between.join(plain)
