"""JSON Schemas: patterns are matched in linear time, and unsupported ones are rejected."""

import time

import pytest

from nerve import Session
from nerve.core.gates import check_choices, validate_answer
from nerve.core.json_schema import find_schema_error, find_validation_error, parse_json_answer
from nerve.testing import ScriptedProvider

HOSTILE = "a" * 50_000 + "!"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, HOSTILE),
        ({"uniqueItems": True}, [*({"a": number} for number in range(5_000)), {"a": 0}]),
        ({"pattern": r"^https?://([a-z0-9]+[./-]?)+$"}, f"https://{HOSTILE}"),
        ({"patternProperties": {"^(a|aa)+$": False}, "additionalProperties": False}, {HOSTILE: 1}),
        ({"propertyNames": {"pattern": "^(a|a)*$"}}, {HOSTILE: 1}),
        ({"$defs": {"x": {"pattern": "(x+x+)+y"}}, "items": {"$ref": "#/$defs/x"}}, ["x" * 50_000]),
    ],
)
def test_a_hostile_value_is_rejected_in_linear_time(schema, value):
    assert find_schema_error(schema) == ""
    began = time.process_time()
    assert find_validation_error(value, schema)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "^b"}, "abc", False),
        ({"pattern": "^b"}, 3, True),
        ({"pattern": "^[\\u00e9-\\u00eb]+$"}, "éê", True),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": 1, "b": "x"}, True),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": "x"}, False),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, {"n": 1, "nb": 2}, True),
        ({"properties": {"b": {}}, "additionalProperties": False}, {"c": 2}, False),
        ({"properties": {"b": {}}, "additionalProperties": {"type": "string"}}, {"b": 1, "c": 2}, False),
    ],
)  # fmt: skip
def test_patterns_have_the_semantics_of_json_schema(schema, value, fits):
    assert (find_validation_error(value, schema) == "") is fits


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "a{1,2000}", "["])
def test_a_pattern_that_needs_more_than_linear_time_is_rejected(pattern):
    for schema in ({"prefixItems": [{"pattern": pattern}]}, {"patternProperties": {pattern: {}}}):
        assert find_schema_error(schema).startswith(f"pattern {pattern!r} is not supported: ")
    with pytest.raises(ValueError, match="without look-around and back-references"):
        check_choices(None, {"pattern": pattern})


def test_a_form_can_have_a_pattern():
    form = {"type": "string", "pattern": r"^v\d+$"}
    check_choices(None, form)
    assert validate_answer("v12", None, form) == "v12"
    with pytest.raises(ValueError, match="Invalid answer"):
        validate_answer(f"v{HOSTILE}", None, form)


async def test_a_hostile_answer_does_not_delay_another_run():
    session = Session(providers={"claude": ScriptedProvider([f'"https://example.com/{"a" * 60} !"'] * 9)})
    pattern = "^https?://([a-z0-9]+[./-]?)+$"
    session.load(
        "name: x\ndescription: d\nnodes:\n"
        f"- {{id: a, prompt: Which?, output_schema: {{type: string, pattern: '{pattern}'}}}}"
    )

    @session.workflow
    async def other(ctx):
        await ctx.sleep(0.05)
        return "done"

    second, first = await session.start("other"), await session.start("x")
    began = time.monotonic()
    assert await second.wait() == "done"
    assert time.monotonic() - began < 10
    with pytest.raises(Exception, match="does not match its schema"):
        await first.wait()


@pytest.mark.parametrize("text", ["```" + "\n" * 30_000, "```\na" * 30_000], ids=["empty lines", "openings"])
def test_json_is_extracted_from_a_hostile_answer_in_linear_time(text):
    begun = time.process_time()
    assert parse_json_answer(text)[1]
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Here it is: ```json\n{"a": 1}\n```', {"a": 1}),
        ("```\n1\n```\nor rather\n```json  \n[\n2]\n``` so", [2]),
        ("```json\r\n3\r\n```", 3),
    ],
)
def test_json_is_found_in_the_last_fenced_block(text, value):
    assert parse_json_answer(text) == (value, "")


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([1, True], True),
        ([1, 1.0], False),
        ([[1], [True]], True),
        ([{"a": 1}, {"a": 1.0}], False),
        (["", 0], True),
    ],
)
def test_unique_items_uses_the_equality_of_json_schema(items, fits):
    assert (find_validation_error(items, {"uniqueItems": True}) == "") is fits
