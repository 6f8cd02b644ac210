"""The texts of messages: parts, mentions, and what addresses the bot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.chat.adapter import read_button
from nerve.chat.adapter_table import make_chats
from nerve.chat.slack import plain_text
from nerve.chat.texts import MAX_PARTS, SHORTENED, disarm_mentions, split_text
from nerve.project.config import read_config

if TYPE_CHECKING:
    from nerve.chat.adapter import ChatAdapter


@given(st.text(st.characters(codec="utf-8"), max_size=400), st.integers(60, 120))
def test_the_parts_of_a_text_fit_and_lose_only_space(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    assert len(parts) <= MAX_PARTS
    if not parts or not parts[-1].endswith(SHORTENED):
        assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_text_is_split_at_paragraphs_before_lines_and_words() -> None:
    assert split_text("one two\n\nthree four\nfive", 13) == ["one two", "three four", "five"]
    assert split_text("one two three\nfour five", 18) == ["one two three", "four five"]
    assert split_text("  ", 18) == []


def test_mentions_are_disarmed_outside_of_code() -> None:
    text = "@ada wrote `@fixture`\n```\n@main\n```\n@bob"
    disarmed = disarm_mentions(text)
    assert disarmed.replace("\u2060", "") == text
    assert "@ada" not in disarmed
    assert "@bob" not in disarmed
    assert "`@fixture`" in disarmed
    assert "\n@main\n" in disarmed


def test_a_text_of_slack_is_read_as_it_was_typed() -> None:
    assert plain_text("a &lt;b&gt; &amp;amp; <https://x.example/|x.example>") == (
        "a <b> &amp; https://x.example/"
    )
    assert plain_text("ask <@U1|ada> in <#C1|general> or <!here>") == "ask ada in general or !here"


def test_only_buttons_of_nerve_are_read() -> None:
    hash = "0123456789abcdef"
    assert read_button(f"ab12cd34:1:{hash}") == {"gate": "ab12cd34", "choice": 1, "hash": hash}
    for other in ("a:b:c", f"a:-1:{hash}", f"a:1:{hash}0", "a:1", "", None, 7):
        assert read_button(other) is None


@pytest.mark.parametrize(
    ("text", "rest", "is_addressed"),
    [
        ("@Nerve-Bot %greet Bob", "%greet Bob", True),
        ("please @nerve-bot, do", "please , do", True),
        ("!nerve  status", "status", True),
        ("!nerved status", "!nerved status", False),
        ("me@nerve-bot.example", "me@nerve-bot.example", False),
        ("@nerve-bot-2 hello", "@nerve-bot-2 hello", False),
        ("nerve-bot hello", "nerve-bot hello", False),
        ("@nerve-bot", "", True),
    ],
)
def test_a_mention_or_the_prefix_addresses_the_bot(text: str, rest: str, is_addressed: bool) -> None:
    assert make_github().read_address(text) == (rest, is_addressed)


def make_github() -> ChatAdapter:
    settings = (
        '"bot": "@nerve-bot", "repositories": ["a/b"], "token": {"env": "T"}, "secret": {"env": "S"},'
        ' "prefix": "!nerve"'
    )
    config = read_config(f'{{"chat": {{"code": {{"kind": "github", {settings}}}}}}}')
    return make_chats(config.chat, Path(), None, "default")["code"]
