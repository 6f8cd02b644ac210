"""A webhook starts a run, agents work, two people approve on page and phone, and a message goes out.

The server is killed in every stage.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from e2e import world as e2e_world
from e2e.invariants import broken
from e2e.web.conftest import PHONE, WIDE
from e2e.world import World, until
from nerve.store.sqlite import SqliteStore
from nerve.triggers.webhook_signatures import sign_request
from nerve_processes import done
from notifications.receiver import PlannedReply, ReceivedRequest, Receiver, receiving
from workspaces.repositories import git, make_repository

AGENTS = Path(__file__).with_name("team_agents.py")
SECRET = "the secret of the webhook"
ISSUE = {"action": "opened", "issue": {"number": 7, "title": "Greet the world"}}
DELIVERY = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
TRIGGER = """
workflow: fix
webhook: {signature: github, secret: {file: webhook-secret}}
when: headers['x-github-event'] == 'issues' && body.action == 'opened'
input: "{{ body.issue.title }}"
label: "issue {{ body.issue.number }}"
"""
WORKFLOW = """
name: fix
description: Fix an issue; two people approve the change before it is merged.
body:
  kind: sequence
  steps:
    - {kind: prompt, id: plan, text: "Plan {{ input }}", provider: scripted}
    - kind: prompt
      id: change
      text: "Change {{ input }}"
      provider: scripted
      workspace: {kind: worktree, base: HEAD, merge: none}
    - kind: gate
      id: approve
      prompt: "Merge the change?"
      choices: [approve, reject]
      quorum: 2 of [lead, security]
    - {kind: merge, of: change, method: squash}
    - {kind: prompt, id: announce, text: "Announce {{ input }}", provider: scripted}
"""


class Team:
    """A project in a git repository, its server, two people, and what goes out to them."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.signs = folder / "signs"
        self.signs.mkdir()
        self.world = World(folder / "project")
        self.receiver = receiver
        self.port = find_free_port()
        project = self.world.folder
        make_repository(project, **{"hello.txt": "hello\n", ".gitignore": ".nerve\nwebhook-secret\n*.log\n"})
        for setting in (("user.name", "Ada"), ("user.email", "ada@example.com")):
            git(project, "config", *setting)
        (project / "webhook-secret").write_text(SECRET)
        for place, text in (("triggers/issue.yaml", TRIGGER), ("workflows/fix.yaml", WORKFLOW)):
            (project / ".nerve" / place).parent.mkdir(parents=True)
            (project / ".nerve" / place).write_text(text)
        (project / ".nerve/config.json").write_text(json.dumps(self._make_config()))

    def _make_config(self) -> dict[str, Any]:
        hook = self.world.folder / "webhook-secret"
        return {
            "public_url": self.url,
            "notify": {
                "channels": {
                    "phone": {"kind": "ntfy", "url": self.receiver.url, "topic": "team"},
                    "ops": {
                        "kind": "webhook",
                        "url": f"{self.receiver.url}/ops",
                        "secret": {"file": str(hook)},
                    },
                },
                "rules": [
                    {"events": ["gate_opened"], "to": ["phone"]},
                    {"events": ["run_completed", "run_failed"], "to": ["ops"]},
                ],
            },
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.world.start(port=self.port)

    def restart(self) -> None:
        """Kill the server as a power cut does, and start it again."""
        self.world.kill()
        self.start()

    def add_person(self, name: str, role: str) -> str:
        """Add a person with the command line; return the token that it prints."""
        added = done("people", "add", name, "--role", role, "--json", cwd=self.world.folder)
        assert added.returncode == 0, added.stderr
        return str(json.loads(added.stdout)["token"])

    # -- the agents ------------------------------------------------------------------------------

    def hold(self, *steps: str) -> None:
        """Let these steps wait where they begin."""
        for step in steps:
            (self.signs / f"hold-{step}").touch()

    def release(self, step: str) -> None:
        (self.signs / f"hold-{step}").unlink()

    def steps(self, what: str) -> Counter[str]:
        """Return how often each step has begun or ended."""
        file = self.signs / "steps.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(entry["step"] for entry in map(json.loads, lines) if entry["what"] == what)

    async def wait_for_step(self, step: str, count: int) -> None:
        await until(lambda: self.steps("began")[step] == count)

    # -- requests and messages -------------------------------------------------------------------

    async def send_webhook(self) -> httpx2.Response:
        body = json.dumps(ISSUE).encode()
        headers = {"content-type": "application/json", "x-github-event": "issues"}
        headers |= sign_request("github", SECRET, body, time.time(), DELIVERY)
        async with httpx2.AsyncClient(trust_env=False) as client:
            return await client.post(f"{self.url}/hooks/issue", content=body, headers=headers)

    def messages(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.receiver.requests if request.path == path]

    async def wait_for_message(self, path: str, count: int = 1) -> list[ReceivedRequest]:
        await until(lambda: len(self.messages(path)) >= count)
        return self.messages(path)


def find_free_port() -> int:
    """Return a port for a server that is started several times with the same address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.setattr(e2e_world, "FLOWS", AGENTS)
    monkeypatch.setenv("TEAM_SIGNS", str(tmp_path / "signs"))
    with receiving() as receiver:
        team = Team(tmp_path, receiver)
        team.start()
        yield team
        team.world.kill()
        assert broken(team.world) == []


async def sign_in(page: Page, url: str, token: str) -> None:
    """Open an address that asks for the sign-in, and open it again as the person."""
    await page.goto(url)
    await page.get_by_label("Your token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/inbox")
    await page.goto(url)


async def test_a_whole_story_survives_a_kill_in_every_stage(team: Team, chromium: Browser) -> None:
    tokens = {name: team.add_person(name, role) for name, role in (("ann", "lead"), ("ben", "security"))}
    team.hold("Plan", "Change", "Announce")

    # The webhook: what has the answer 202 is stored, and the sender may repeat it.
    accepted = await team.send_webhook()
    team.restart()
    assert accepted.status_code == 202
    run_id = accepted.json()["run_id"]
    assert (await team.send_webhook()).json()["run_id"] == run_id

    # The agents: one plans, one works in a worktree of its own.
    team.release("Plan")
    await team.wait_for_step("Change", 1)
    team.restart()
    await team.wait_for_step("Change", 2)
    team.release("Change")

    # Ann answers on the page of her desktop, and the server dies between the two votes.
    desktop = await (await chromium.new_context(viewport=WIDE)).new_page()
    await sign_in(desktop, f"{team.url}/inbox", tokens["ann"])
    await desktop.locator(".gates li a").first.click()
    await desktop.get_by_role("button", name="approve").click()
    await expect(desktop.get_by_label("Who has answered")).to_contain_text(
        "ann (page from 127.0.0.1): approve"
    )
    [asked] = await team.wait_for_message("/")
    team.restart()

    # Ben follows the link of the message on his phone; the run goes on, and the server dies.
    phone = await (
        await chromium.new_context(viewport=PHONE, is_mobile=True, has_touch=True, device_scale_factor=2)
    ).new_page()
    await sign_in(phone, asked.json["click"], tokens["ben"])
    await expect(phone.get_by_label("Who has answered")).to_contain_text("ann (page from 127.0.0.1): approve")
    assert not await phone.evaluate("document.documentElement.scrollWidth > innerWidth")
    await phone.get_by_role("button", name="approve").tap()
    await expect(phone.locator(".gate-card.closed")).to_contain_text("approve")
    await team.wait_for_step("Announce", 1)
    assert team.messages("/ops") == []
    team.restart()
    await team.wait_for_step("Announce", 2)

    # The message: the server dies while the receiver has it and has not answered.
    team.receiver.replies.append(PlannedReply(delay_s=30))
    team.release("Announce")
    await team.wait_for_message("/ops")
    team.restart()
    await team.wait_for_message("/ops", 2)
    await expect(desktop.locator(".gate-card.closed")).to_contain_text("approve")
    await desktop.goto(f"{team.url}/runs/{run_id}")
    await expect(desktop.locator("#run-head .state")).to_have_text("completed")

    team.world.stop()
    check_story(team, run_id)


def check_story(team: Team, run_id: str) -> None:
    """One run, no completed step twice, both votes, one message, the change merged, the journal verified."""
    assert team.steps("ended") == {"Plan": 1, "Change": 1, "Announce": 1}
    assert git(team.world.folder, "show", "HEAD:hello.txt") == "hello, world"
    for path, event in (("/", None), ("/ops", "run_completed")):
        ids = {request.headers["nerve-message-id"] for request in team.messages(path)}
        assert len(ids) == 1, path
        assert event is None or team.messages(path)[-1].json["event"] == event
    store = SqliteStore(team.world.folder / ".nerve/nerve.db")
    try:
        [run] = store.runs()
        events = store.events(run_id)  # raises JournalBroken if the hash chain is not whole
    finally:
        store.close()
    assert (run.run, run.state, run.key) == (run_id, "completed", f"trigger:issue:delivery:{DELIVERY}")
    [answered] = [json.loads(event.data) for event in events if event.type == "gate_answered"]
    assert [(vote["by"], vote["via"], vote["address"], vote["answer"]) for vote in answered["votes"]] == [
        ("person:ann", "page", "127.0.0.1", "approve"),
        ("person:ben", "page", "127.0.0.1", "approve"),
    ]
