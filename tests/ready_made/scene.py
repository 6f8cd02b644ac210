"""What tests of ready-made workflows share: a repository with a remote, `gh` and `glab`, agents."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.core.workflow import WorkflowRun
from nerve.ready_made import read_ready_made
from nerve.testing import RecordedQuery, ScriptedProvider
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import commit, git, make_repository, write

# Writes its name and arguments as one line of JSON, and prints the answer to the first of them.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path

folder, name = Path(__file__).parent, Path(__file__).name
with (folder / "calls.jsonl").open("a") as stream:
    entry = [name, *sys.argv[1:]]
    if "-" in entry[1:]:
        entry.append(sys.stdin.read())
    stream.write(json.dumps(entry) + "\\n")
answers = json.loads((folder / "answers.json").read_text())
print(next((text for words, text in answers.items() if " ".join(sys.argv[1:]).startswith(words)), ""))
"""
TESTS = 'for file in tests/*.sh; do sh "$file" || { echo "FAILED $file"; exit 1; }; done\n'
FILES = {
    "hello.sh": "echo hello\n",
    "run_tests.sh": TESTS,
    "tests/hello.sh": 'test "$(sh hello.sh)" = hello\n',
}


class Scene:
    """A project in a git repository with a remote, and programs `gh` and `glab` that record their calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.remote, self.programs = folder / "project", folder / "remote", folder / "programs"
        make_repository(self.project, **FILES)
        git(folder, "init", "--quiet", "--bare", str(self.remote))
        for setting in (("user.name", "Ada"), ("user.email", "ada@example.com")):
            git(self.project, "config", *setting)
        git(self.project, "remote", "add", "origin", str(self.remote))
        git(self.project, "push", "--quiet", "origin", "main")
        self.programs.mkdir()
        for name in ("gh", "glab"):
            (self.programs / name).write_text(PROGRAM)
            (self.programs / name).chmod(0o755)
        self.set_answers({})
        monkeypatch.setenv("PATH", f"{self.programs}{os.pathsep}{os.environ['PATH']}")

    def set_answers(self, answers: dict[str, str]) -> None:
        """What `gh` and `glab` print, by the first words of their arguments."""
        (self.programs / "answers.json").write_text(json.dumps(answers))

    @property
    def calls(self) -> list[list[str]]:
        file = self.programs / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    async def start(
        self, name: str, input: Any, params: dict[str, Any], agent: Callable[[RecordedQuery], Any]
    ) -> WorkflowRun:
        """Start a run of a ready-made workflow with a scripted agent."""
        self.agent = ScriptedProvider(agent)
        self.session = Session(project=self.project, providers={"claude": self.agent})
        self.session.load(read_ready_made(name), "yaml")
        return await self.session.start(name, input, params)

    @property
    def prompts(self) -> list[str]:
        return [call.prompt for call in self.agent.calls]

    def branches(self) -> list[str]:
        """The branches that were pushed, apart from the main one."""
        names = git(self.remote, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
        return [name for name in names if name != "main"]

    def read_pushed(self, file: str) -> str:
        [branch] = self.branches()
        return git(self.remote, "show", f"{branch}:{file}")

    def workspaces(self) -> list[str]:
        return [record.name for record in WorkspaceFiles(self.project).records()]

    def push_pull_request(self, reference: str, **files: str) -> None:
        """Put a commit with these files under a reference of the remote, as a host does."""
        git(self.project, "checkout", "--quiet", "-b", "theirs")
        commit(self.project, "Theirs", **files)
        git(self.project, "push", "--quiet", "origin", f"HEAD:{reference}")
        git(self.project, "checkout", "--quiet", "main")
        git(self.project, "branch", "--quiet", "-D", "theirs")


def edit(call: RecordedQuery, **files: str) -> None:
    """Write files where the agent works."""
    write(Path(call.cwd or ""), files)
