"""Ready-made workflows with the real programs, Claude Code and Codex, against stubs of their APIs."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.stubs.anthropic import AnthropicStub
from agents.stubs.openai import OpenAIStub
from agents.stubs.server import StubServer
from agents.stubs.steer import Order
from agents.test_claude import made, needs_program
from agents.test_codex import missing, settings
from nerve import Session
from nerve.agents.codex import CodexProvider
from nerve.agents.provider import Provider
from nerve.core.workflow import WorkflowRun
from nerve.ready_made import read_ready_made
from nerve.testing import RecordedQuery
from nerve.workspaces.checkout import Workspaces
from nerve.workspaces.records import WorkspaceFiles
from ready_made import test_fix_issue, test_implement_plan, test_refactor
from ready_made.scene import FILES, Scene, edit
from workspaces.repositories import commit, git, read_files

PARAMS = {"tests": "sh run_tests.sh"}


class AgentStub(StubServer):
    """Lets a program do with its tools what a scripted agent does, and answer what that answers.

    The scripted agent writes into an empty folder; the program is told to write the same files. Before a
    value for a schema it is told to read a file.
    """

    reading: str
    """The tool that reads files."""
    writing: str
    """The tool that changes files."""

    def __init__(self, agent: Callable[[RecordedQuery], Any]) -> None:
        self.agent = agent
        self.prompts: list[str] = []
        self.orders: dict[str, list[Order]] = {}
        self.lock = threading.Lock()
        super().__init__()

    def order_of(self, said: Sequence[str], results: Sequence[str]) -> Order:
        prompt = said[-1]
        with self.lock:
            if not results:
                self.prompts.append(prompt)
                self.orders[prompt] = list(self.list_orders(prompt))
            return self.orders[prompt][len(results)]

    def list_orders(self, prompt: str) -> Iterator[Order]:
        with tempfile.TemporaryDirectory() as folder:
            answer = self.agent(RecordedQuery(prompt, folder))
            for name, text in read_files(Path(folder)).items():
                yield from self.write_file(name, text)
        if answer.startswith("{"):
            yield self.read_file("hello.sh")
            yield Order("json", answer)
            yield Order("say", "done")  # if the value was the input of a tool
        else:
            yield Order("say", answer)

    def read_file(self, name: str) -> Order:
        raise NotImplementedError

    def write_file(self, name: str, text: str) -> Iterator[Order]:
        raise NotImplementedError

    def make_provider(self, home: Path) -> Provider:
        raise NotImplementedError

    def start_session(self, scene: Scene, workflow: str) -> Session:
        """Return a session with a ready-made workflow, whose agent is the program in a home of its own."""
        (home := scene.programs / "home").mkdir()
        provider = self.make_provider(home)
        session = Session(project=scene.project, providers={provider.name: provider})
        session.load(f"provider: {provider.name}\n{read_ready_made(workflow)}", "yaml")
        return session


class ClaudeStub(AgentStub, AnthropicStub):
    reading, writing = "Read", "Write"

    def read_file(self, name: str) -> Order:
        return Order("call", f"Read {json.dumps({'file_path': name})}")

    def write_file(self, name: str, text: str) -> Iterator[Order]:
        if name in FILES:
            yield self.read_file(name)
        yield Order("call", f"Write {json.dumps({'file_path': name, 'content': text})}")

    def make_provider(self, home: Path) -> Provider:
        return made(self, env={"HOME": str(home)})


class CodexStub(AgentStub, OpenAIStub):
    reading, writing = "shell", "apply_patch"

    def read_file(self, name: str) -> Order:
        return Order("run", f"cat {name}")

    def write_file(self, name: str, text: str) -> Iterator[Order]:
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {name}\n{lines}*** End Patch"
        yield Order("run", f"apply_patch <<'EOF'\n{patch}\nEOF\n")

    def make_provider(self, home: Path) -> Provider:
        return CodexProvider(**settings(self, env={"STUB_KEY": "sk-stub", "HOME": str(home)}))


needs_codex = pytest.mark.skipif(bool(missing()), reason=missing() or "installed")
each_program = pytest.mark.parametrize(
    "stub_type",
    [
        pytest.param(ClaudeStub, marks=needs_program, id="claude"),
        pytest.param(CodexStub, marks=needs_codex, id="codex"),
    ],
)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Yield a scene on disk: the sandbox of Codex has a /dev of its own, without the files in /dev/shm."""
    monkeypatch.delenv("CODEX_HOME", raising=False)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Scene(Path(folder).resolve(), monkeypatch)


def by_first_words(answers: Mapping[str, Any]) -> Callable[[RecordedQuery], str]:
    """Return an agent that answers a prompt by its first words, with a text or a value."""

    def answer(query: RecordedQuery) -> str:
        found = next(each for words, each in answers.items() if query.prompt.startswith(words))
        return found if isinstance(found, str) else json.dumps(found)

    return answer


async def approve(run: WorkflowRun, *texts: str) -> None:
    """Approve at a gate with each of these texts in turn."""
    for text in texts:
        gate = await run.next_gate()
        assert gate is not None, run.error
        assert text in gate.prompt
        await run.answer("approve")


def outcomes(run: WorkflowRun) -> set[tuple[str, str]]:
    """The tools that the agents used, each with how its calls ended."""
    events = [event.data for event in run.events if event.event_type == "tool_call"]
    names = {data["id"]: data["name"] for data in events if "name" in data}
    return {
        (names[data["id"]], data["status"]) for data in events if data.get("status") not in (None, "running")
    }


@each_program
async def test_an_issue_gets_a_label(scene: Scene, stub_type: type[AgentStub]) -> None:
    issue = {"number": 1, "title": "Crash", "body": "It crashes.", "labels": []}
    scene.set_answers({"issue list": json.dumps([issue]), "label list": json.dumps([{"name": "bug"}])})
    answers = {"Choose the labels of issue 1": {"labels": ["bug"], "reason": "hello.sh:1"}}
    with stub_type(by_first_words(answers)) as stub:
        run = await stub.start_session(scene, "triage").start("triage")
        await approve(run, "1 Crash: bug\n   hello.sh:1")
        await run.wait()
    assert outcomes(run) == {(stub.reading, "completed")}
    assert scene.calls[-1] == ["gh", "issue", "edit", "--add-label", "bug", "--", "1"]


@each_program
async def test_a_question_is_researched(scene: Scene, stub_type: type[AgentStub]) -> None:
    claims = [{"claim": f"{word} tea", "source": "book", "quote": "so"} for word in ("hot", "cold")]
    answers = {
        "Divide this question": {"questions": ["What is hot?", "What is not?"]},
        "Answer this question with claims": {"claims": claims},
        "Try to refute these claims": {"verified": [0]},
        "Answer this question in Markdown": "Tea is hot [1].",
    }
    with stub_type(by_first_words(answers)) as stub:
        run = await stub.start_session(scene, "research").start("research", "Is tea hot?")
        await approve(run, "- What is hot?\n- What is not?")
        assert await run.wait() == 'Tea is hot [1].\n\n## Sources\n\n1. book: "so"\n2. book: "so"'
    assert "[2] {" in stub.bodies
    assert "[3] {" not in stub.bodies


@each_program
async def test_release_notes_are_written(scene: Scene, stub_type: type[AgentStub]) -> None:
    git(scene.project, "tag", "v1")
    new, other = (commit(scene.project, subject, **{"log.txt": subject}) for subject in ("Add bye", "Format"))
    entry = {"group": "New", "text": "It says goodbye.", "commits": [new]}
    notes = {"entries": [entry], "left_out": [{"commit": other, "reason": "only format"}]}
    with stub_type(by_first_words({"Write the release notes of v2": notes})) as stub:
        run = await stub.start_session(scene, "release-notes").start("release-notes", "v2")
        await approve(run, f"- {other[:10]}: only format")
        assert await run.wait() == "## New\n\n- It says goodbye."
    assert "Add bye" in stub.bodies
    assert scene.calls[-1][:3] == ["gh", "release", "create"]


@each_program
async def test_a_pull_request_is_reviewed(scene: Scene, stub_type: type[AgentStub]) -> None:
    scene.push_pull_request("refs/pull/7/head", **{"hello.sh": "echo theirs\n"})
    scene.set_answers({"pr view": "Say theirs", "pr diff": "-echo hello\n+echo theirs"})
    finding = {"file": "hello.sh", "line": 1, "severity": "major", "problem": "wrong", "fix": "say hello"}
    answers = {
        "You are one of three reviewers": {"findings": [finding]},
        "Three reviewers have reported": {"verdict": "comment", "text": "See hello.sh:1.", "refuted": []},
    }
    with stub_type(by_first_words(answers)) as stub:
        run = await stub.start_session(scene, "review-pr").start("review-pr", "7", PARAMS)
        gate = await run.next_gate()
        assert gate is not None, run.error
        assert "See hello.sh:1." in gate.prompt
        await run.answer("comment")
        await run.wait()
    assert "FAILED tests/hello.sh" in stub.bodies
    assert scene.calls[-1] == ["gh", "pr", "review", "--comment", "--body", "See hello.sh:1.", "--", "7"]
    assert scene.workspaces() == []


@each_program
async def test_an_issue_is_fixed(scene: Scene, stub_type: type[AgentStub]) -> None:
    scene.set_answers({"issue view": "hello.sh cannot shout"})
    agent = test_fix_issue.Agent()
    with stub_type(agent) as stub:
        run = await stub.start_session(scene, "fix-issue").start("fix-issue", "21", PARAMS)
        await approve(run, "--hello.sh reads its argument now.")
        await run.wait()
    assert (agent.reproductions, agent.fixes, agent.reviews) == (2, 3, 2)
    assert "FAILED tests/hello.sh" in stub.prompts[3]
    assert "+# loud" in stub.prompts[-1]
    assert outcomes(run) == {(stub.reading, "completed"), (stub.writing, "completed")}
    assert scene.read_pushed("hello.sh") == f"{test_fix_issue.RIGHT}# loud: in capitals"
    assert scene.read_pushed("tests/shout.sh") == test_fix_issue.SHOUT_TEST["tests/shout.sh"].strip()
    assert [call[1] for call in scene.calls] == ["issue", "pr"]
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == []


@each_program
async def test_a_plan_is_implemented(scene: Scene, stub_type: type[AgentStub]) -> None:
    agent = test_implement_plan.Agent()
    with stub_type(agent) as stub:
        session = stub.start_session(scene, "implement-plan")
        run = await session.start("implement-plan", "Say goodbye.", PARAMS)
        await approve(run, "Add ciao.sh", "no reviewer finds a problem")
        await run.wait()
    assert (agent.byes, agent.reviews) == (2, 6)
    assert sum("+echo ciao  # farewell" in prompt for prompt in stub.prompts) == 3
    assert outcomes(run) == {(stub.reading, "completed"), (stub.writing, "completed")}
    subjects = git(scene.remote, "log", "--format=%s", f"main..{scene.branches()[0]}").splitlines()
    assert subjects == ["Solve problems that reviewers found", "Add ciao.sh", "Add bye.sh"]
    assert scene.read_pushed("ciao.sh") == "echo ciao  # farewell"
    assert [call[:5] for call in scene.calls] == [["gh", "pr", "create", "--title", "Say goodbye"]]
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == []


@each_program
async def test_code_is_refactored(scene: Scene, stub_type: type[AgentStub]) -> None:
    with stub_type(test_refactor.Agent()) as stub:
        session = stub.start_session(scene, "refactor")
        run = await session.start("refactor", "Name the word", test_refactor.PARAMS)
        await approve(run, "- Name the word", "hello.sh:1: slower")
        assert await run.wait() == test_refactor.REVIEW["summary"]
    assert "These tests have changed. Restore them." in stub.prompts[2]
    assert "FAILED tests/hello.sh" in stub.prompts[3]
    assert outcomes(run) == {(stub.reading, "completed"), (stub.writing, "completed")}
    assert read_files(scene.project) == FILES | {"hello.sh": "word=hello\necho $word\n"}
    assert git(scene.project, "status", "--porcelain", "--untracked-files=no") == ""


@each_program
async def test_an_agent_that_judges_cannot_write(scene: Scene, stub_type: type[AgentStub]) -> None:
    def plan(query: RecordedQuery) -> str:
        edit(query, **{"new.sh": "echo new\n"})
        return json.dumps({"steps": ["Name the word"], "risks": []})

    with stub_type(plan) as stub:
        session = stub.start_session(scene, "refactor")
        run = await session.start("refactor", "Name the word", test_refactor.PARAMS)
        gate = await run.next_gate()
        assert gate is not None, run.error
        [workspace] = WorkspaceFiles(scene.project).records()
        assert read_files(Workspaces(scene.project).directory(workspace)) == FILES
        # Codex does not report a patch that its sandbox refuses.
        assert outcomes(run) - {(stub.writing, "failed")} == {(stub.reading, "completed")}
        await run.answer("reject")
        await run.wait_until_ended()
    assert len(stub.prompts) == 1
