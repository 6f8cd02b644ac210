"""docs/guides/notifications.md: its configuration is valid, its tables are complete, its receiver works."""

import json
import re
import time
from typing import Any

from docs.pages import FENCE, page, section
from nerve.notifications.http_channels import sign_webhook
from nerve.notifications.messages import MessageWriter, NotifiedEvent, NotifyMessage
from nerve.project.config import read_config
from nerve.project.notify_settings import BUILTIN_CHANNELS, CHANNEL_KEYS, NOTIFIED_EVENTS, NotifyRule

PAGE = page("docs/guides/notifications.md")
BLOCKS = [(fence[1], fence[2]) for fence in FENCE.finditer(PAGE)]


def named_in_first_column(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_the_configuration_is_valid() -> None:
    config = read_config(BLOCKS[0][1])
    assert config.notify is not None
    assert set(config.notify.channels) == {"phone", "ops"}


def test_every_key_event_and_kind_of_channel_is_documented() -> None:
    assert named_in_first_column(section(PAGE, "Rules")) == {*NotifyRule.__slots__, *NOTIFIED_EVENTS}
    channels = section(PAGE, "Channels")
    assert named_in_first_column(channels) == CHANNEL_KEYS.keys() - set(BUILTIN_CHANNELS)
    for kind, keys in CHANNEL_KEYS.items():
        if keys:
            [row] = re.findall(rf"^\| `{kind}` \| (.*) \|$", channels, re.MULTILINE)
            assert keys.keys() <= set(re.findall(r"`(\w+)`", row)), kind


def test_the_receiver_reads_the_documented_message() -> None:
    event = NotifiedEvent(
        "gate_opened", "01a1f502-512c-7f59-903c-2fe8902c2a94", 4, "ship", 1.0, gate="5c92aec6", name="approve"
    )
    message = NotifyMessage("hook", "gate_opened", [event], created_at=1.0)
    sent = MessageWriter("https://nerve.example.com").to_json(message, "default")
    documented = json.loads(next(text for kind, text in BLOCKS if kind == "json" and '"seq"' in text))
    assert sent.keys() == documented.keys()
    assert sent["events"][0].keys() == documented["events"][0].keys()
    assert (sent["title"], sent["url"]) == (documented["title"], documented["url"])
    names: dict[str, Any] = {}
    exec(next(text for kind, text in BLOCKS if kind == "python"), names)  # noqa: S102
    body = json.dumps(sent).encode()
    headers = sign_webhook("whsec_c2VjcmV0", message.id, int(time.time()), body)
    assert names["read_message"](headers, body, "whsec_c2VjcmV0") == sent
