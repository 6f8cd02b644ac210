"""A session with a codec: nothing that a run handles is readable in the files of its project."""

import json
import logging
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from nerve import Result, Session, WorkflowContext
from nerve.agents.thread_files import ThreadFiles
from nerve.api import Api
from nerve.client import Client
from nerve.core.step_output import capture_standard_streams
from nerve.crypto import KEY_BYTES, AesGcmCodec, InvalidKeys, add_key, parse_keys
from nerve.errors import KeyMissing, PayloadUnreadable, StoreError
from nerve.server.failure_log import log_failures
from nerve.testing import ScriptedProvider, test_session

PLACES = (
    "input", "param", "output", "step_input", "gate_prompt", "answer", "message", "fact", "signal", "error",
    "printed", "logged", "emitted", "prompt", "agent_answer", "conversation", "update", "code", "reply",
)  # fmt: skip
CANARIES = {place: f"<canary {place} {os.urandom(4).hex()}>" for place in PLACES}
"""A text for each place. Base64 has neither spaces nor angle brackets."""

YAML = f"""name: write
description: Asks an agent
provider: writer
nodes:
  - id: draft
    prompt: "{CANARIES["prompt"]} $ARGUMENTS"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose configuration names a key file outside of it."""
    folder = tmp_path / "project"
    (folder / ".nerve/workflows").mkdir(parents=True)
    (folder / ".nerve/config.json").write_text('{"encryption": {"key_file": "../keys"}}')
    add_key(tmp_path / "keys", "first")
    return folder


def open_session(project: Path, **options: Any) -> Session:
    session = Session(store=project / ".nerve/nerve.db", project=project, **options)

    @session.step
    def work(text: str) -> str:
        print(CANARIES["printed"])  # noqa: T201 - it is captured
        logging.getLogger("work").warning(CANARIES["logged"])
        return CANARIES["output"]

    @session.node
    def fail(context: Any) -> None:
        raise LookupError(CANARIES["error"])

    @session.workflow(channels={"letters": str})
    async def everything(ctx: WorkflowContext, text: str, extra: str = "") -> Any:
        seen: list[Any] = []  # <canary in the code>
        ctx.update("add", seen.append)
        await work(CANARIES["step_input"])
        ctx.emit("noted", {"text": CANARIES["emitted"]})
        failed: Result = await ctx.run("fail")
        answer = await ctx.gate(CANARIES["gate_prompt"])
        letter = await ctx.receive("letters", str)
        await ctx.wait_signal("go", ctx.input)
        return [answer, letter, seen, failed.get("error"), text, extra]

    @session.workflow
    async def ask(ctx: WorkflowContext, text: str) -> str:
        answer: str = await ctx.gate(f"{text}?")
        return f"{text}: {answer}"

    return session


def find_canaries(folder: Path) -> list[str]:
    """Return the canaries that are readable in the files of a folder, with the file."""
    texts = {**CANARIES, "code": "<canary in the code>"}
    return [
        f"{place} in {file.name}"
        for file in folder.rglob("*")
        if file.is_file() and file.suffix not in (".yaml", ".py")
        for place, text in texts.items()
        if any(form in file.read_bytes() for form in (text.encode(), json.dumps(text).encode()[1:-1]))
    ]


def find_logs(project: Path) -> list[Path]:
    return list(project.rglob("*.jsonl"))


def back_up(file: Path, copy: Path) -> None:
    """Copy a store that is in use, as a backup program does."""
    with (
        closing(apsw.Connection(str(file))) as source,
        closing(apsw.Connection(str(copy))) as target,
        target.backup("main", source, "main") as backup,
    ):
        backup.step()


async def run_everything(session: Session) -> None:
    """Execute a run with a canary in every place, and one of a file with prompts."""
    with capture_standard_streams(redirect_stdout=True):
        run = await session.start("everything", CANARIES["input"], {"extra": CANARIES["param"]}, key="once")
        await run.next_gate()
    await run.update("add", CANARIES["update"])
    await run.answer(CANARIES["answer"])
    await run.send("letters", CANARIES["message"])
    await session.dataspace.assert_fact(["note", CANARIES["fact"]])
    await session.signal("go", CANARIES["input"], CANARIES["signal"])
    assert CANARIES["message"] in await run.wait()
    file = session.project / ".nerve/workflows/write.yaml"
    file.write_text(YAML)
    session.providers["writer"] = ScriptedProvider(lambda call: CANARIES["agent_answer"])
    session.load(file)
    writing = await session.start("write", "a letter")
    assert await writing.wait() == CANARIES["agent_answer"]
    session.engine.store.add_message("chat", "user", CANARIES["conversation"], run.run_id)
    client = Client(Api(session))
    asked = await session.start("ask", CANARIES["reply"])
    await asked.next_gate()
    await client.answer(run=asked.run_id, answer="yes", key="answer-1")


async def test_nothing_of_a_run_is_readable_in_the_project(project: Path, tmp_path: Path) -> None:
    async with open_session(project) as session:
        session.engine.watchers.append(log_failures)
        await run_everything(session)
        assert find_canaries(project) == []
        assert (project / ".nerve/nerve.db-wal").stat().st_size > 0
        source, backup = (
            apsw.Connection(str(path)) for path in (project / ".nerve/nerve.db", tmp_path / "b.db")
        )
        with backup.backup("main", source, "main") as copy:
            copy.step()
        source.close()
        backup.close()
        session.engine.store.delete_runs([run.run_id for run in session.runs(workflow="everything")])
    assert find_canaries(project) == find_canaries(tmp_path) == []
    assert len(find_logs(project)) == 1


async def test_without_a_codec_the_same_texts_are_readable(project: Path) -> None:
    (project / ".nerve/config.json").unlink()
    async with open_session(project) as session:
        assert type(session.engine.store).__name__ == "SqliteStore", "nothing is in between"
        await run_everything(session)
    found = {text.split()[0] for text in find_canaries(project)}
    assert found == set(PLACES), "the search finds what is readable"


async def test_an_encrypted_run_continues_after_a_restart(project: Path) -> None:
    async with open_session(project) as session:
        run = await session.start("ask", "tea")
        await run.next_gate()
    async with open_session(project) as session:
        [run] = await session.recover()
        assert run.pending_gates[0].prompt == "tea?"
        await run.answer("green")
        assert await run.wait() == "tea: green"
        assert [found.run_id for found in session.runs(search="TEA")] == [run.run_id]
        assert session.runs(search="coffee") == []


async def test_the_log_of_an_encrypted_run_has_no_texts(project: Path) -> None:
    async with open_session(project) as session:
        await run_everything(session)
    [log] = find_logs(project)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["type"] for line in lines] == [
        "workflow_start",
        "step_start",
        "assistant",
        "step_complete",
        "workflow_complete",
    ]
    assert [line["content"] for line in lines if "content" in line] == ["[encrypted]", "[encrypted]"]


async def test_the_log_of_the_server_names_only_type_and_place_of_an_error(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_session(project) as session:
        session.engine.watchers.append(log_failures)
        run = await session.start("fail")
        await run.wait_until_ended()
        error = run.error
    assert error is not None
    assert CANARIES["error"] in error
    assert CANARIES["error"] not in caplog.text
    assert "step /fail failed: LookupError (" in caplog.text


async def test_keys_are_rotated(project: Path, tmp_path: Path) -> None:
    async with open_session(project) as session:
        old = await session.start("ask", "old")
        await old.next_gate()
    add_key(tmp_path / "keys", "second")
    async with open_session(project) as session:
        [old] = await session.recover()
        await old.answer("yes")
        assert await old.wait() == "old: yes"
        new = await session.start("ask", "new")
        await new.next_gate()
        assert session.codec is not None
        assert session.codec.name == "aes-gcm:second"


async def test_runs_of_a_missing_key_are_held_and_the_others_continue(project: Path, tmp_path: Path) -> None:
    async with open_session(project) as session:
        old = await session.start("ask", "old")
        await old.next_gate()
    keys = tmp_path / "keys"
    before = keys.read_text()
    add_key(keys, "second")
    async with open_session(project) as session:
        new = await session.start("ask", "new")
        await new.next_gate()
    keys.write_text(keys.read_text().removeprefix(before))
    async with open_session(project) as session:
        await session.recover()
        client = Client(Api(session))
        listed = {run.run_id: run for run in (await client.runs()).runs}
        assert listed[old.run_id].state == "held"
        assert "Key 'first' is not among the keys (second). Add it to" in (listed[old.run_id].error or "")
        assert listed[new.run_id].state == "waiting"
        assert [gate.run_id for gate in (await client.gates()).gates] == [new.run_id]
        assert len((await client.threads()).threads) == 0
        assert "Key 'first'" in (await client.health()).held[old.run_id]
        assert [run.run_id for run in session.runs()] == [new.run_id, old.run_id]
        await client.answer(run=new.run_id, answer="yes")
    keys.write_text(before + keys.read_text())
    async with open_session(project) as session:
        await session.recover()
        found = session.get_workflow_run(old.run_id)
        assert found is not None
        await found.answer("yes")
        assert await found.wait() == "old: yes", "nothing was damaged"


async def test_a_wrong_key_is_reported_when_the_session_opens(project: Path, tmp_path: Path) -> None:
    async with open_session(project) as session:
        await session.start("ask", "tea")
    keys = tmp_path / "keys"
    right = keys.read_text()
    keys.write_text("")
    add_key(keys, "first")
    with pytest.raises(PayloadUnreadable, match=r"Restore key 'first' in .*keys"):
        async with open_session(project):
            pass
    keys.write_text("")
    add_key(keys, "other")
    with pytest.raises(KeyMissing, match=r"Key 'first' is not among the keys \(other\). Add it to .*keys"):
        async with open_session(project):
            pass
    keys.unlink()
    with pytest.raises(InvalidKeys, match=r"key file .*keys does not exist"):
        async with open_session(project):
            pass
    (project / ".nerve/config.json").unlink()
    with pytest.raises(StoreError, match=r"The store is encrypted \(aes-gcm:first\)"):
        async with open_session(project):
            pass
    async with open_session(project, codec=AesGcmCodec(parse_keys(right, "the test"))) as session:
        assert [run.input for run in session.runs()] == ["tea"]


async def test_a_plain_project_is_encrypted_from_then_on(project: Path) -> None:
    config = (project / ".nerve/config.json").read_text()
    (project / ".nerve/config.json").unlink()
    async with open_session(project) as session:
        plain = await session.start("ask", CANARIES["input"])
        await plain.next_gate()
    (project / ".nerve/config.json").write_text(config)
    async with open_session(project) as session:
        [plain] = await session.recover()
        await plain.answer(CANARIES["answer"])
        assert await plain.wait() == f"{CANARIES['input']}: {CANARIES['answer']}"
    found = {text.split()[0] for text in find_canaries(project)}
    assert found == {"input"}, "the row from before, and nothing of what was added"


async def test_a_codec_of_the_session_wins_over_the_configuration(project: Path) -> None:
    codec = AesGcmCodec({"mine": os.urandom(KEY_BYTES)})
    async with open_session(project, codec=codec) as session:
        assert session.codec is codec
    with pytest.raises(KeyMissing, match="'mine'"):
        async with open_session(project):
            pass


async def test_a_session_in_memory_needs_no_keys(project: Path) -> None:
    (project.parent / "keys").unlink()
    async with Session(project=project) as session:
        assert session.codec is None


async def test_a_session_is_encrypted_after_a_test_of_it_in_memory(project: Path) -> None:
    session = open_session(project)
    async with test_session(session) as tested:
        assert tested.codec is None
    async with session:
        assert session.codec is not None


def test_an_object_without_the_methods_of_a_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="codec must have the method encode, got int"):
        Session(codec=3)  # type: ignore[arg-type]


async def test_conversations_of_the_llm_provider_are_encrypted(project: Path) -> None:
    class Writer(ScriptedProvider):
        thread_files = ThreadFiles(project / ".nerve/threads")

    async with open_session(project, providers={"writer": Writer([])}) as session:
        assert session.provider("writer") is not None
        files = Writer.thread_files
        (files.folder).mkdir()
        files.path("old").write_text('{"text": "from before"}')
        files.write("t1", CANARIES["prompt"].encode())
        assert files.read("t1") == CANARIES["prompt"].encode()
        assert files.read("old") == b'{"text": "from before"}'
    assert find_canaries(project) == []
    shutil.copy(files.path("t1"), files.path("t2"))
    with pytest.raises(PayloadUnreadable, match="changed or moved"):
        files.read("t2")


def test_the_package_is_not_imported_without_a_codec() -> None:
    code = "import sys; from nerve import Session; Session().engine; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
