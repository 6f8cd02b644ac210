"""Ids of workflows derived from names."""

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
def test_a_slug_keeps_the_characters_that_an_id_allows(name: str, made: str) -> None:
    assert slugify(name) == made


def test_names_with_other_letters_get_distinct_ids() -> None:
    names = ["日本", "日本語", "plan 日本", "plan 日本語", "🚀", "🎉"]
    assert len({slugify(name) for name in names}) == len(names)
    assert slugify("plan 日本").startswith("plan-")


@given(st.text(min_size=1))
def test_slugify_is_idempotent_and_returns_a_valid_id(name: str) -> None:
    made = slugify(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", made)
    assert slugify(made) == made


def test_two_names_with_the_same_id_cannot_both_be_loaded() -> None:
    session = Session()
    session.load(text("Feat X"))
    with pytest.raises(InvalidDefinition, match="'feat-x' and the loaded 'Feat X' have the same id 'feat-x'"):
        session.load(text("feat-x"))
    assert session.load(text("Feat X", "2")).title == "Feat X"


async def test_a_fact_cannot_define_an_id_that_another_name_uses() -> None:
    session = Session()
    session.load(text("Feat X"))
    with pytest.raises(InvalidDefinition, match="have the same id"):
        await session.dataspace.assert_fact(["workflow-definition", {"source": text("feat-x")}])
    assert session.dataspace.facts("workflow-definition")[0].record.get("source") == text("Feat X")
