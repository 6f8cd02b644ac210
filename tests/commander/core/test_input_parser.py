"""Parsing of input lines and workflow options."""

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nerve.api.models import InputResponse, WorkflowResponse
from nerve.commander.core.input_parser import InputType, ParsedInput, format_input, parse_input
from nerve.ui.typed_options import InvalidOption, parse_workflow_options

LINES = st.one_of(
    st.text(),
    st.tuples(
        st.sampled_from(["", "@", "#", "%", "/", ":", "::", ":::", "//", "\\", "\\\\", "%w --", '%w --a="']),
        st.text(alphabet="ab1_-=\"'\\ \n[]{},:/@#%.", max_size=30),
    ).map("".join),
)


@pytest.mark.requirement("S0-62")
@pytest.mark.parametrize(
    ("line", "type", "target", "text"),
    [
        ("@reviewer look at this", InputType.NODE, "reviewer", "look at this"),
        ("#pipeline go", InputType.GRAPH, "pipeline", "go"),
        ("%code_review my function", InputType.WORKFLOW, "code_review", "my function"),
        ("::3", InputType.REFERENCE, "3", ""),
        ("/status 4f2a", InputType.COMMAND, "status", "4f2a"),
        ("just some words", InputType.DIRECT, "", "just some words"),
    ],
)
def test_the_prefix_determines_the_input_type(line, type, target, text):
    assert parse_input(line) == ParsedInput(type, target, text)


@pytest.mark.requirement("S0-63")
def test_a_workflow_without_text_has_an_empty_text():
    assert parse_input("  %code_review ") == ParsedInput(InputType.WORKFLOW, "code_review", "")


@pytest.mark.requirement("S1-39")
@pytest.mark.requirement("C-06")
def test_one_colon_starts_a_command_and_three_start_a_reference():
    assert parse_input(":runs failed") == ParsedInput(InputType.COMMAND, "runs", "failed")
    assert parse_input(":::last[files][0]") == ParsedInput(InputType.REFERENCE, "last[files][0]")


@pytest.mark.parametrize(
    "line", [":)", "# Heading", "## 2", "100% sure", "@./src/a.py what is this", "% off", "::3 and ::4"]
)
def test_what_only_looks_like_a_prefix_is_plain_text(line):
    assert parse_input(line) == ParsedInput(InputType.DIRECT, text=line)


@pytest.mark.requirement("D1-1")
@pytest.mark.parametrize(("line", "text"), [("//stop", "/stop"), ("\\@bob hi", "@bob hi"), ("\\:wq", ":wq")])
def test_a_text_that_starts_with_a_prefix_can_be_escaped(line, text):
    assert parse_input(line) == ParsedInput(InputType.DIRECT, text=text)


@pytest.mark.parametrize("line", ["@", "#", "%", "/"])
def test_a_bare_prefix_reports_the_missing_name(line):
    assert " name is missing" in parse_input(line).problem


@pytest.mark.requirement("S1-41")
@pytest.mark.requirement("D1-14")
def test_options_precede_the_text_and_a_bare_option_is_true():
    parsed = parse_input("%research --max-rounds=5 --strict what is  --new\nin it?")
    assert parsed.options == {"max_rounds": "5", "strict": True}
    assert parsed.text == "what is  --new\nin it?"


@pytest.mark.requirement("D1-14")
def test_two_hyphens_end_the_options():
    parsed = parse_input("%research --strict -- --help me")
    assert (parsed.options, parsed.text) == ({"strict": True}, "--help me")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"two words"', "two words"),
        ("'it is \"so\"'", 'it is "so"'),
        (r'"a \"b\" \\ c\n"', r'a "b" \ c\n'),
        ('["a b", 1]', '["a b", 1]'),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("[draft", "[draft"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_the_value_of_an_option_may_be_quoted_or_json(written, value):
    parsed = parse_input(f"%w --name={written} the text")
    assert (parsed.options, parsed.text, parsed.problem) == ({"name": value}, "the text", "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%w --a=1 --a=2 x", "given twice"),
        ("%w --1x y", "--1x is not a valid option"),
        ('%w --a="open', "Missing closing quote for --a"),
    ],
)
def test_an_invalid_option_is_explained(line, expected):
    assert expected in parse_input(line).problem


@given(LINES)
@example("\\\\@x")
@example("\\::3")
def test_any_line_parses_and_round_trips(line):
    parsed = parse_input(line)
    if not parsed.problem:
        assert parse_input(format_input(parsed)) == parsed


@given(
    st.from_regex(r"[a-z]\w{0,8}", fullmatch=True),
    st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.text() | st.just(True), max_size=3),
    st.text().map(str.strip),
)
def test_any_options_and_text_of_a_workflow_round_trip(name, options, text):
    parsed = ParsedInput(InputType.WORKFLOW, name, text, options)
    assert parse_input(format_input(parsed)) == parsed


DECLARED = WorkflowResponse(
    id="ship",
    kind="yaml",
    inputs=[
        InputResponse(name="max_rounds", type="integer"),
        InputResponse(name="dry", type="boolean"),
        InputResponse(name="tags", type="array"),
        InputResponse(name="level", type="string", choices=["low", "high"]),
        InputResponse(name="ratio", type="number"),
        InputResponse(name="extra", type="any"),
    ],
)


@pytest.mark.requirement("D1-14")
def test_options_are_converted_to_the_declared_types():
    line = '%ship --max-rounds=5 --dry --tags=["a"] --level=low --ratio=0.5 --extra={"a":1} go'
    expected = {"max_rounds": 5, "dry": True, "tags": ["a"], "level": "low", "ratio": 0.5, "extra": {"a": 1}}
    assert parse_workflow_options(parse_input(line).options, DECLARED) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_rounds": "five"}, "--max-rounds must be an integer, got 'five'."),
        ({"max_rounds": True}, "--max-rounds requires an integer: write --max-rounds=value."),
        ({"level": "middle"}, "--level must be one of low, high, got 'middle'."),
        ({"max_round": "5"}, "'ship' has no option 'max_round'. Did you mean 'max_rounds'? Options:"),
        ({"ratio": "NaN"}, "--ratio must be a number"),
    ],
)
def test_an_invalid_value_is_explained_with_a_fix(options, expected):
    with pytest.raises(InvalidOption) as raised:
        parse_workflow_options(options, DECLARED)
    assert expected in str(raised.value)


def test_a_missing_option_is_reported():
    needs = WorkflowResponse(
        id="ship", kind="json", inputs=[InputResponse(name="count", type="integer", required=True)]
    )
    with pytest.raises(InvalidOption, match=r"'ship' requires --count \(integer\)"):
        parse_workflow_options({}, needs)


def test_a_python_workflow_accepts_any_option_as_json_or_text():
    flow = WorkflowResponse(id="greet", kind="python")
    assert parse_workflow_options({"a": "5", "b": "x y", "c": True}, flow) == {"a": 5, "b": "x y", "c": True}


@given(st.sampled_from([each.name for each in DECLARED.inputs]), st.text() | st.just(True))
def test_any_option_text_gives_json_or_an_error(name, value):
    with contextlib.suppress(InvalidOption):
        json.dumps(parse_workflow_options({name: value}, DECLARED), allow_nan=False)
