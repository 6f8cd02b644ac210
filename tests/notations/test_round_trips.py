"""Whatever a spec holds, it can be written in JSON, YAML and Lisp, and read back as the same workflow."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from nerve.notations import NOTATIONS
from nerve.spec import models
from nerve.spec.validation import plain_form, spec_hash, validate_document
from spec.strategies import fields, workflows

quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
full = settings(quick, max_examples=2000)


def through(spec: models.WorkflowSpec, notation: str) -> models.WorkflowSpec:
    """The spec, written in a notation and read again."""
    text = NOTATIONS[notation].write(plain_form(spec))
    read, problems = validate_document(NOTATIONS[notation].read(text))
    assert read is not None, problems
    return read


def look_at(data: dict[str, Any]) -> None:
    """Every notation keeps the hash, and so do all of them in a row."""
    spec = models.WorkflowSpec.model_validate(data)
    for notation in NOTATIONS:
        assert spec_hash(through(spec, notation)) == spec_hash(spec), notation
    chained = spec
    for notation in (*NOTATIONS, "json"):
        chained = through(chained, notation)
    assert spec_hash(chained) == spec_hash(spec)
    assert plain_form(chained) == plain_form(spec)


@quick
@given(workflows())
def test_every_notation_keeps_the_hash(data: dict[str, Any]) -> None:
    look_at(data)


@pytest.mark.full
@full
@given(workflows())
def test_every_notation_keeps_the_hash_at_full_figures(data: dict[str, Any]) -> None:
    look_at(data)


class AllSeen(Exception):
    """There is nothing more to look for."""


@pytest.mark.parametrize("kind", models.KINDS)
def test_the_drawn_nodes_have_every_field_of_their_kind(kind: str) -> None:
    model, seen = models.KINDS[kind], set[str]()

    @settings(quick, max_examples=200, phases=[Phase.generate])
    @given(fields(model, 1))
    def look(data: dict[str, Any]) -> None:
        seen.update(data)
        if seen == set(model.model_fields):
            raise AllSeen

    with pytest.raises(AllSeen):
        look()
