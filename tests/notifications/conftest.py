"""Receivers, and the channel that sends to them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notifications.receiver import MailServer, Receiver, receiving, receiving_mail, write_config

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as received:
        yield received


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with receiving_mail() as received:
        yield received


@pytest.fixture
def project(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose rules send everything to one webhook."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    write_rules(tmp_path, receiver)
    return tmp_path


def write_rules(project: Path, receiver: Receiver, **rule: Any) -> None:
    events = ["gate_opened", "run_completed", "run_failed", "run_cancelled", "run_held", "budget_held"]
    channels = {"hook": {"kind": "webhook", "url": receiver.url, "secret": {"env": "HOOK_SECRET"}}}
    rules = [{"events": events, "to": ["hook"], **rule}]
    write_config(
        project, public_url="https://nerve.example.com", notify={"channels": channels, "rules": rules}
    )
