"""The table of commands."""

import pytest

from nerve.commander.core.command_table import (
    COMMANDS,
    COMMANDS_BY_NAME,
    find_command,
    help_text,
    unknown_command_message,
)

ASKED_FOR = (
    "agents answer approve diff export facts fork gates help import logs pause query queues quit reject "
    "resume retry runs send signal status stop target theme triggers tui update usage watch workflow "
    "workflows"
)


@pytest.mark.requirement("S1-42")
def test_every_command_is_listed_once():
    assert sorted(each.name for each in COMMANDS) == ASKED_FOR.split()
    assert len(COMMANDS_BY_NAME) == sum(1 + len(each.aliases) for each in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_every_command_has_a_one_sentence_summary(command):
    assert command.summary.endswith(".")
    assert command.usage.startswith(f"/{command.name}")
    if command.example:
        assert find_command(command.example.split()[0][1:]) is command
    required = [not each.optional for each in command.arguments]
    assert all(len(each.words) != 1 for each in command.arguments)
    assert command.usage in help_text()
    assert command.summary in help_text(command.name)
    assert len(required) <= 2


def test_a_command_is_found_by_alias_and_case_insensitively():
    assert find_command("Q") is find_command("exit") is find_command("quit")
    assert find_command("nonsense") is None


def test_an_unknown_command_suggests_a_similar_one():
    assert "Did you mean /status?" in unknown_command_message("statsu")
    assert "write //usr/bin" in unknown_command_message("usr/bin")


def test_the_last_argument_takes_the_rest():
    assert find_command("answer").split_arguments("1 looks  good") == ["1", "looks  good"]
    assert find_command("answer").split_arguments("") == []
