"""docs/guides/chat.md: its configuration is valid and its tables are complete."""

import re

from docs.pages import FENCE, page, section
from nerve.chat.adapter_table import ADAPTERS
from nerve.project.chat_settings import ANSWER_PLACES, CHAT_KEYS, UNKNOWN_ACCOUNTS
from nerve.project.config import read_config

PAGE = page("docs/guides/chat.md")


def test_the_configuration_is_valid() -> None:
    [example] = [fence[2] for fence in FENCE.finditer(PAGE) if fence[1] == "json"]
    config = read_config(example)
    assert {chat.kind for chat in config.chat.values()} == ADAPTERS.keys()


def test_every_key_and_value_is_documented() -> None:
    settings = section(PAGE, "Settings")
    documented = set(re.findall(r"^\| `(\w+)` \|", settings, re.MULTILINE))
    assert documented == {"kind"}.union(*CHAT_KEYS.values())
    for value in (*CHAT_KEYS, *UNKNOWN_ACCOUNTS, *ANSWER_PLACES):
        assert f"`{value}`" in settings
