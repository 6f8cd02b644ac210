"""Arguments of frequent commands are read without the parser, with the same result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.cli.parser import app
from nerve.cli.simple_arguments import SIMPLE_COMMANDS, CommandOptions, read_simple_command

WORDS = [
    "greet",
    "a=b",
    "2d",
    "none",
    "None",
    "null",
    "true",
    "0",
    "1e3",
    "",
    "-1",
    "-",
    "--",
    "~",
    "./x y",
    "é",
    "[]",
]
OPTIONS = [
    *(
        "--state",
        "--workflow",
        "--label",
        "--tag",
        "--since",
        "--search",
        "--patch",
        "--all",
        "--json",
        "--quiet",
    ),
    *("--with", "--store", "--no-json", "--Json", "--sta", "-h", "--unknown"),
]
argument = st.one_of(
    st.sampled_from(WORDS + OPTIONS),
    st.builds("{}={}".format, st.sampled_from(OPTIONS), st.sampled_from(WORDS)),
)


@given(st.sampled_from(SIMPLE_COMMANDS), st.lists(argument, max_size=5))
def test_what_is_read_without_the_parser_is_what_the_parser_reads(command, arguments):
    call = read_simple_command([command, *arguments])
    if call is not None:
        function, bound, _ = app.parse_args([command, *arguments], exit_on_error=False, print_error=False)
        assert (call.func, call.args, call.keywords) == (function, bound.args, bound.kwargs)


@pytest.mark.parametrize(
    "line",
    [
        "runs",
        "gates --json --quiet",
        "runs --state waiting --tag a=b --tag c=d --all --json",
        "check greet --json",
        "runs --workflow=greet --since 2d --store nerve.db --with flows.py",
        "runs --label v3 --search x --patch p",
    ],
)
def test_frequent_arguments_are_read_without_the_parser(line):
    assert read_simple_command(line.split()) is not None


@pytest.mark.parametrize(
    "line", ["", "run x", "runs --help", "runs x", "runs --state", "runs --json=true", "gates -h"]
)
def test_other_arguments_are_left_to_the_parser(line):
    assert read_simple_command(line.split()) is None


@pytest.mark.parametrize("command", SIMPLE_COMMANDS)
def test_every_option_of_a_frequent_command_can_be_read(command):
    function, _, _ = app.parse_args([command], exit_on_error=False, print_error=False)
    names = {name for parameter in app[command].assemble_argument_collection() for name in parameter.names}
    options = CommandOptions(function)
    assert {name for name in names if name.startswith("--")} == set(options._kinds)
