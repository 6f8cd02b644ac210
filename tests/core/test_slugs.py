"""Names of workflows as ids."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve import Session
from nerve.core.slugs import slugify
from nerve.text.source import InvalidDefinition


def text(name: str, expression: str = "1") -> str:
    return json.dumps({"id": name, "steps": [{"id": "t", "type": "transform", "transform": expression}]})


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("Feat X", "feat-x"),
        ("Keeps_As-it-is", "Keeps_As-it-is"),
        ("grüße", "grusse"),
        ("1st", "w-1st"),
        ("ﬁne café", "fine-cafe"),
    ],
)
def test_a_name_keeps_what_an_id_can_have(name: str, made: str) -> None:
    assert slugify(name) == made


def test_names_whose_letters_no_id_can_have_get_ids_of_their_own() -> None:
    names = ["日本", "日本語", "plan 日本", "plan 日本語", "🚀", "🎉"]
    assert len({slugify(name) for name in names}) == len(names)
    assert slugify("plan 日本").startswith("plan-")


@given(st.text(min_size=1))
def test_every_name_makes_an_id_that_stays_as_it_is(name: str) -> None:
    made = slugify(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", made)
    assert slugify(made) == made


def test_two_names_with_the_same_id_are_not_loaded_both() -> None:
    session = Session()
    session.load(text("Feat X"))
    with pytest.raises(InvalidDefinition, match="'feat-x' and the loaded 'Feat X' have the same id 'feat-x'"):
        session.load(text("feat-x"))
    assert session.load(text("Feat X", "2")).title == "Feat X"


async def test_a_fact_does_not_take_the_id_of_another_name() -> None:
    session = Session()
    session.load(text("Feat X"))
    with pytest.raises(InvalidDefinition, match="have the same id"):
        await session.dataspace.assert_fact(["workflow-definition", {"source": text("feat-x")}])
    assert session.dataspace.facts("workflow-definition")[0].record.get("source") == text("Feat X")
