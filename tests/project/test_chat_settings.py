"""The key `chat` of the configuration: its defaults, and every problem with its position."""

from __future__ import annotations

import pytest

from nerve.project.config import read_config
from nerve.project.notify_settings import SecretSource
from nerve.text.source import InvalidDefinition

SLACK = '"kind": "slack", "bot": "U1", "token": {"env": "T"}, "secret": {"file": "s"}'


def test_a_chat_has_defaults() -> None:
    chat = read_config(f'{{"chat": {{"team": {{{SLACK}}}}}}}').chat["team"]
    assert chat.kind == "slack"
    assert dict(chat.values) == {
        "bot": "U1",
        "token": SecretSource(env="T"),
        "secret": SecretSource(file="s"),
        "content": False,
        "unknown": "ignore",
        "answers": "addressed",
    }


@pytest.mark.parametrize(
    ("chat", "problem"),
    [
        ("[]", "'chat' must be an object"),
        ('{"Team": {' + SLACK + "}}", "The name of a chat must have up to 64 lower-case letters"),
        ('{"team": {"kind": "slak"}}', "Unknown kind 'slak' of chat 'team'. Did you mean 'slack'?"),
        ('{"team": {"kind": "slack", "bot": "U1"}}', "Chat 'team' needs token"),
        (
            '{"team": {"kind": "slack", "token": "xoxb-1"}}',
            "token of chat 'team' must say where the secret is",
        ),
        ('{"team": {' + SLACK + ', "chats": ["1"]}}', "Unknown key 'chats' in chat 'team'"),
        ('{"team": {' + SLACK + ', "channels": "C1"}}', "must be a list with at least one entry"),
        ('{"team": {' + SLACK + ', "unknown": "answer"}}', "must be one of ignore, refuse"),
        ('{"team": {' + SLACK + ', "answers": true}}', "must be one of addressed, thread"),
        ('{"team": {' + SLACK + ', "content": 1}}', "content of chat 'team' must be true or false"),
        ('{"team": {' + SLACK + ', "url": "slack.com"}}', "must be a URL that starts with https://"),
    ],
)
def test_a_wrong_chat_is_reported(chat: str, problem: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"config\.json") as raised:
        read_config(f'{{"chat": {chat}}}')
    assert problem in str(raised.value)


def test_an_encrypted_store_refuses_content() -> None:
    text = '{"encryption": {"key_env": "KEYS"}, "chat": {"team": {%s, "content": %s}}}'
    assert read_config(text % (SLACK, "false")).chat
    with pytest.raises(InvalidDefinition, match="content of 'team' of 'chat' must be false"):
        read_config(text % (SLACK, "true"))
