"""CommandProvider: any command as an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.contract import Judged, ProviderContract, done, text
from agents.stubs.chat import ChatStub
from nerve.agents import command_provider
from nerve.agents.command_provider import CommandProvider
from nerve.agents.provider import AssistantText, Chunk, QueryOptions, ThreadStarted, TurnFinished, Unavailable

AGENT = str(Path(__file__).parent / "stubs" / "command_agent.py")


async def asked(*argv: str, prompt: str = "", cwd: str | None = None, **options: Any) -> list[Chunk]:
    turn = CommandProvider(argv).query(prompt, cwd, None, QueryOptions(**options))
    return [chunk async for chunk in turn]


class TestCommand(ProviderContract):
    shell = False

    @pytest.fixture
    def stub(self) -> Iterator[ChatStub]:
        with ChatStub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: ChatStub) -> CommandProvider:
        return CommandProvider([sys.executable, AGENT, f"{stub.url}/v1"])

    async def test_partial_messages_precede_and_add_up_to_the_message(self, ask: Any) -> None:
        chunks = await ask("[[say one two three four]]")
        said = [chunk for chunk in chunks if isinstance(chunk, AssistantText)]
        assert "".join(chunk.content for chunk in said if chunk.partial) == "one two three four"
        assert said[-1] == AssistantText("one two three four")

    async def test_a_killed_program_counts_as_crashed_and_its_thread_can_be_resumed(
        self, provider: Any, cwd: Path, options: QueryOptions
    ) -> None:
        chunks = await asked("bash", "-c", "kill -KILL $$")
        assert done(chunks) == TurnFinished(
            done(chunks).thread, outcome="failed", error="bash: terminated by signal 9"
        )


async def test_the_prompt_is_the_input_and_the_output_is_the_answer() -> None:
    chunks = await asked("cat", prompt="a heron")
    assert text(chunks) == "a heron"
    assert isinstance(chunks[0], ThreadStarted)
    assert done(chunks).outcome == "completed"


async def test_the_system_prompt_comes_first() -> None:
    assert text(await asked("cat", prompt="which?", system="You know birds.")) == "You know birds.\n\nwhich?"


async def test_a_command_that_reads_nothing_may_answer() -> None:
    assert text(await asked("echo", "hello", prompt="x" * 1_000_000)) == "hello\n"


async def test_output_before_a_failure_is_kept() -> None:
    chunks = await asked("bash", "-c", "echo half; echo broken >&2; exit 3")
    assert text(chunks) == "half\n"
    assert done(chunks).outcome == "failed"
    assert done(chunks).error == "bash: exit code 3: broken"


async def test_stderr_is_not_part_of_the_answer() -> None:
    assert text(await asked("bash", "-c", "echo noise >&2; echo yes")) == "yes\n"


async def test_a_long_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_provider, "MAX_ANSWER_BYTES", 1000)
    chunks = await asked("bash", "-c", "head -c 300000 /dev/zero | tr '\\0' a; echo the end")
    pieces = [chunk.content for chunk in chunks if isinstance(chunk, AssistantText) and chunk.partial]
    assert sum(map(len, pieces)) == 1000
    assert len(text(chunks)) < 2100
    assert "left out here" in text(chunks)
    assert text(chunks).endswith("the end\n")


async def test_a_missing_program_raises_unavailable() -> None:
    with pytest.raises(Unavailable, match="no-such-program"):
        await asked("no-such-program")


async def test_a_missing_folder_is_not_reported_as_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await asked("cat", cwd=str(tmp_path / "nowhere"))


async def test_it_runs_with_the_given_folder_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_KEY", "grey")
    monkeypatch.setenv("STORK_KEY", "white")
    provider = CommandProvider(["bash", "-c", "pwd; env"], {"OWN": "1"}, pass_env=["HERON_KEY"])
    turn = provider.query("", str(tmp_path), None, QueryOptions(env={"MORE": "2"}))
    lines = text([chunk async for chunk in turn]).splitlines()
    assert lines[0] == str(tmp_path)
    assert {"HERON_KEY=grey", "OWN=1", "MORE=2"} <= set(lines)
    assert "STORK_KEY=white" not in lines


def test_resuming_is_refused() -> None:
    with pytest.raises(ValueError, match="does not support resuming"):
        CommandProvider(["cat"]).query("hello", None, "thread-1", QueryOptions())


@pytest.mark.parametrize("argv", ["cat -", []])
def test_a_command_must_be_a_list(argv: Any) -> None:
    with pytest.raises(ValueError, match="a list"):
        CommandProvider(argv)


@pytest.mark.parametrize("policy", [{"deny": ["Bash"]}, {"ask": ["*"]}, {"otherwise": "deny"}])
async def test_a_policy_that_cannot_be_enforced_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"'command' cannot enforce the permissions \((deny: Bash|ask|otherwise)"
    ):
        await asked("cat", prompt="hello", **Judged(policy).options)
    assert text(await asked("cat", prompt="hello", **Judged({"allow": ["Bash"]}).options)) == "hello"


@pytest.mark.parametrize("script", ["true", "echo", "echo trouble >&2"])
async def test_an_empty_answer_is_a_failure_despite_exit_code_0(script: str) -> None:
    end = done(await asked("bash", "-c", script))
    assert end.outcome == "failed"
    assert end.error.startswith("bash: no output")
    assert ("trouble" in end.error) == ("trouble" in script)


@pytest.mark.parametrize("stream", ["", ">&2"])
async def test_a_command_that_reports_a_rate_limit_is_limited(stream: str) -> None:
    said = "error 429: usage limit, resets at 1893456000"
    end = done(await asked("bash", "-c", f"echo '{said}' {stream}; exit 1"))
    assert (end.outcome, end.resets_at) == ("limited", 1893456000)
    assert said in end.error


async def test_an_answer_about_limits_is_not_a_rate_limit() -> None:
    assert done(await asked("echo", "the rate limit is 429 a day")).outcome == "completed"


async def test_an_error_in_line_429_is_not_a_rate_limit() -> None:
    end = done(await asked("bash", "-c", "echo 'a.py:429: wrong, see line 429' >&2; exit 1"))
    assert end.outcome == "failed"
