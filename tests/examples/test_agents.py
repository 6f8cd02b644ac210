"""Developer, coach and reviewer with agents: canned ones always, real programs where they are installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.stubs import anthropic, openai
from agents.stubs.server import StubServer
from agents.stubs.steer import Order
from nerve.agents.claude.provider import find_program
from nerve.agents.codex import executable as codex
from nerve.agents.provider import Unavailable

FILE = Path(__file__).parents[2] / "examples/agents/dev_coach_review.py"
GOOD = '''import re


def slugify(title):
    """Lower case, with a dash between words."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
'''
APPROVED = json.dumps({"approved": True, "comments": ""})
REJECTED = json.dumps({"approved": False, "comments": "Say what it does."})


def missing_codex() -> str:
    try:
        codex.find_executable(None)
    except Unavailable as error:
        return str(error)
    return ""


needs_claude = pytest.mark.skipif(
    find_program() is None,
    reason="Claude Code is not installed: pip install '.[claude]' in the clone of Nerve",
)
needs_codex = pytest.mark.skipif(bool(missing_codex()), reason=missing_codex() or "installed")


def begin(*words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", FILE, *words],
        env={"PATH": os.environ["PATH"], **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def play(folder: Path, *words: str, typed: str = "", env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run the example to its end: its exit code, and what it says."""
    with begin(f"--folder={folder}", *words, env=env) as process:
        try:
            said, complained = process.communicate(typed, timeout=60)
        finally:
            process.kill()
    return process.returncode, said + complained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


# -- canned agents ---------------------------------------------------------------------------------


@pytest.mark.requirement("S0-68")
def test_it_runs_without_any_agent_and_merges_what_passes_its_tests(folder: Path) -> None:
    code, said = play(folder, typed="approve\n")
    assert (code, said.count("✗ /coach"), said.count("✓ /coach")) == (0, 1, 2), said
    assert '{"success": true, "rounds": 2}' in said
    done = subprocess.run([sys.executable, "-m", "unittest"], cwd=folder, capture_output=True, timeout=60)
    assert done.returncode == 0


def test_a_person_has_the_last_word(folder: Path) -> None:
    code, said = play(folder, typed="perhaps\nreject\n")
    assert code == 1
    assert "Please type approve or reject." in said
    assert '{"success": false, "rounds": 2}' in said
    assert "NotImplementedError" in (folder / "slug.py").read_text()


def test_a_run_that_nobody_answers_goes_on_with_the_same_folder(folder: Path) -> None:
    code, said = play(folder)
    assert code == 1
    assert said.endswith(f"\nGo on with: --agent scripted --folder {folder}\n")
    code, said = play(folder, typed="approve\n")
    assert code == 0
    assert "/dev" not in said.replace(str(folder), "")


def test_a_kill_at_the_gate_loses_nothing(folder: Path) -> None:
    with begin(f"--folder={folder}") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Merge?" in line:
                break
        process.send_signal(signal.SIGKILL)
    code, said = play(folder, typed="approve\n")
    assert (code, "/dev" in said.replace(str(folder), "")) == (0, False)


def test_a_program_that_is_not_there_is_named_with_how_to_get_it(folder: Path) -> None:
    if find_program() is not None:
        pytest.skip("Claude Code is installed")
    code, said = play(folder, "--agent=claude")
    assert code == 1
    assert said.splitlines()[-1].endswith(
        "pip install '.[claude]' in the clone of Nerve, or put `claude` on the PATH"
    )
    assert "Traceback" not in said


# -- real programs, whose API is a stub --------------------------------------------------------------


class Script:
    """What the model behind a program does: it writes the file, approves at the second look."""

    def __init__(self, writing: Order) -> None:
        self.writing = writing
        self.prompts: list[str] = []

    def __call__(self, said: Sequence[str], results: Sequence[str]) -> Order:
        prompt = said[-1] if said else ""
        if not results:
            self.prompts.append(prompt)
        if "Review slug.py" in prompt and not results:
            return Order("json", REJECTED if self.asked("Review slug.py") == 1 else APPROVED)
        if any(sign in prompt for sign in ("Implement this", "The reviewer says")) and not results:
            return self.writing
        return Order("say", "done")

    def asked(self, sign: str) -> int:
        return sum(sign in prompt for prompt in self.prompts)


def result_of(said: str) -> Any:
    return next(json.loads(line) for line in said.splitlines() if line.startswith('{"success"'))


@pytest.fixture
def claude(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StubServer, Script]]:
    script = Script(Order("run", f"cat > slug.py <<'EOF'\n{GOOD}EOF"))
    monkeypatch.setattr(anthropic, "order_of", script)
    with anthropic.AnthropicStub() as stub:
        yield stub, script


@needs_claude
def test_claude_develops_and_reviews_and_asks_before_it_runs_a_command(
    claude: tuple[StubServer, Script], folder: Path, tmp_path: Path
) -> None:
    stub, script = claude
    env = {"HOME": str(tmp_path), "ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
    code, said = play(folder, "--agent=claude", typed="allow\nallow\napprove\n", env=env)
    assert code == 0, said
    assert result_of(said) == {"success": True, "rounds": 2}
    assert (folder / "slug.py").read_text() == GOOD
    assert said.count("dev wants to use Bash(cat > slug.py") == 2
    assert script.asked("Say what it does.") == 1


@needs_codex
def test_codex_develops_and_reviews(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(Order("run", f"cat > slug.py <<'EOF'\n{GOOD}EOF"))
    monkeypatch.setattr(openai, "order_of", script)
    home = tmp_path / "codex"
    home.mkdir()
    with openai.OpenAIStub() as stub:
        (home / "config.toml").write_text(
            'model = "stub-model"\nmodel_provider = "stub"\n'
            f'[model_providers.stub]\nname = "stub"\nbase_url = "{stub.url}/v1"\nwire_api = "responses"\n'
        )
        env = {"HOME": str(tmp_path), "CODEX_HOME": str(home)}
        code, said = play(folder, "--agent=codex", "--yes", env=env)
    assert code == 0, said
    assert result_of(said) == {"success": True, "rounds": 2}
    assert (folder / "slug.py").read_text() == GOOD
