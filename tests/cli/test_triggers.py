"""`nerve triggers`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Said

CODE = """
def register(session):
    @session.workflow
    async def hello(ctx, input):
        return input
"""


@pytest.fixture
def triggers(project: Path) -> Path:
    folder = project / ".nerve/triggers"
    folder.mkdir(parents=True)
    (project / "code.py").write_text(CODE)
    (folder / "nightly.yaml").write_text("workflow: hello\nschedule: '0 3 * * *'\n")
    (folder / "inbox.yaml").write_text("workflow: hello\nmail: true\ninput: '{{ mail.subject }}'\n")
    return folder


def test_a_project_without_triggers_says_how_to_define_one(do: Callable[..., Said]) -> None:
    assert "No triggers. Define one in .nerve/triggers/NAME.yaml" in do("triggers").out
    assert json.loads(do("triggers", "--json").out) == []


def test_triggers_are_listed_with_their_next_time_and_state(do: Callable[..., Said], triggers: Path) -> None:
    lines = do("triggers").out.splitlines()
    assert lines[0].split() == ["trigger", "kind", "workflow", "next", "last"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["inbox", "mail", "hello"],
        ["nightly", "schedule", "hello"],
    ]
    (_, nightly) = json.loads(do("triggers", "--json").out)
    assert len(nightly["next_times"]) == 10
    assert nightly["source"] == ".nerve/triggers/nightly.yaml"


def test_a_wrong_action_name_or_option_is_refused(do: Callable[..., Said], triggers: Path) -> None:
    assert "Unknown action 'puase'. Did you mean 'pause'?" in do("triggers", "puase").err
    assert "The name of the trigger is missing: nerve triggers pause NAME." in do("triggers", "pause").err
    assert "Trigger 'nigthly' not found. Did you mean 'nightly'?" in do("triggers", "show", "nigthly").err
    assert "--from is for: nerve triggers backfill" in do("triggers", "pause", "nightly", "--from", "1").err
    assert "The range is missing" in do("triggers", "backfill", "nightly").err
    assert "--event must be a JSON object" in do("triggers", "fire", "nightly", "--event", "[]").err
    assert "A time must have the form" in do("triggers", "backfill", "nightly", "--from", "soon").err


def test_a_trigger_stays_paused_until_it_is_resumed(do: Callable[..., Said], triggers: Path) -> None:
    assert do("triggers", "pause", "nightly").out == "Trigger nightly is paused.\n"
    assert "paused by" in do("triggers", "show", "nightly").out
    assert do("triggers", "resume", "nightly").out == "Trigger nightly is resumed.\n"
    assert "Next times:" in do("triggers", "show", "nightly").out


def test_fire_starts_a_run_with_an_event_and_once_for_a_key(do: Callable[..., Said], triggers: Path) -> None:
    fire = ("triggers", "fire", "inbox", "--with", "code.py", "--event", '{"mail": {"subject": "hi"}}')
    first = do(*fire, "--key", "k").out
    assert do(*fire, "--key", "k").out == first
    assert len(json.loads(do("runs", "--json", "--tag", "trigger=inbox").out)) == 1
    assert do(*fire).out != first


def test_a_mail_starts_one_run_for_its_message_id(
    do: Callable[..., Said], triggers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import BytesIO, TextIOWrapper

    mail = (
        b"From: ann@example.org\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMessage-ID: <1@example.org>\n\nhello\n"
    )
    outputs = []
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(mail)))
        outputs.append(do("triggers", "fire", "inbox", "--mail", "--with", "code.py", "--json").out)
    first, second = (json.loads(output)["run"] for output in outputs)
    assert first["run_id"] == second["run_id"]
    (run,) = json.loads(do("runs", "--json", "--tag", "trigger=inbox").out)
    detail: dict[str, Any] = json.loads(do("status", run["run_id"], "--json").out)
    assert "Grüße" in json.dumps(detail, ensure_ascii=False)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"\n")))
    assert "not an e-mail" in do("triggers", "fire", "inbox", "--mail").err


def test_a_trigger_is_added_from_a_file_and_removed(do: Callable[..., Said], project: Path) -> None:
    (project / "tick.yaml").write_text("workflow: hello\nschedule: {every: 1h}\n")
    assert do("triggers", "add", "tick", "tick.yaml").out == "Trigger tick is added.\n"
    assert "defined in api" in do("triggers", "show", "tick").out
    assert do("triggers", "remove", "tick").out == "Trigger tick is removed.\n"
    assert "not found" in do("triggers", "show", "tick").err
    (project / "bad.yaml").write_text("workflow: hello\nschedule: {every: soon}\n")
    assert "bad.yaml:2:19: every must be seconds or a text" in do("triggers", "add", "bad", "bad.yaml").err
    assert "The file with the definition is missing" in do("triggers", "add", "tick").err


def test_backfill_starts_the_times_of_a_range(do: Callable[..., Said], triggers: Path) -> None:
    done = do(
        *("triggers", "backfill", "nightly", "--with", "code.py"),
        *("--from", "2026-01-01T00:00", "--until", "2026-01-04T00:00"),
    )
    assert len(done.out.splitlines()) == 3, done.err
    occurrences = [run["occurrence"] for run in json.loads(do("triggers", "--json").out)[1]["last_runs"]]
    assert occurrences == ["2026-01-03T03:00:00Z", "2026-01-02T03:00:00Z", "2026-01-01T03:00:00Z"]


def test_check_reports_the_mistakes_of_trigger_files(do: Callable[..., Said], triggers: Path) -> None:
    (triggers / "bad.yaml").write_text("workflow: hello\nschedule:\n  cron: '0 3 * *'\n")
    checked = do("check")
    assert ".nerve/triggers/bad.yaml:3:10: cron '0 3 * *' is not valid: wrong number of fields" in checked.out
    assert "nightly.yaml:1:1: warning: Workflow not found: 'hello'" in checked.out
