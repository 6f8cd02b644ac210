"""Lazy imports: `import nerve` does not load unused packages."""

import asyncio
import json
import subprocess
import sys

import pytest

from nerve import Session

HEAVY = {
    "starlette", "uvicorn", "jinja2", "httpx", "httpx2", "rich", "textual", "prompt_toolkit", "cyclopts",
    "pydantic", "apsw", "anthropic", "claude_agent_sdk", "openai", "acp", "mcp", "pydantic_ai", "psycopg",
    "temporalio", "yaml", "watchfiles", "opentelemetry",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """Return the modules that a new Python process has loaded after this code."""
    told = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import nerve",
        "from nerve import Session, Workflow",
        "from nerve import *",
        "from nerve import Session; Session('test').engine",
        "import nerve.core.nodes.control, nerve.core.workflow, nerve.core.run_view",
    ],
)
def test_importing_nerve_does_not_load_server_terminal_agents_or_database(code):
    assert not {name.split(".")[0] for name in loaded(code)} & HEAVY


def test_importing_nerve_does_not_load_its_packages():
    assert not {name for name in loaded("import nerve") if name.startswith("nerve.")}


def test_a_session_in_memory_runs_without_the_database(tmp_path):
    code = """
import asyncio
from nerve import Session
session = Session()
@session.workflow
async def hello(ctx):
    return "hello"
async def main():
    return await (await session.start("hello")).wait()
assert asyncio.run(main()) == "hello"
"""
    modules = loaded(code)
    assert "apsw" not in modules
    assert not {name for name in modules if name.startswith("nerve.dataspace")}


def test_recovering_runs_does_not_load_readers_of_definitions_or_facts(tmp_path):
    code = f"""
import asyncio
from nerve import Session
async def ask(ctx):
    return await ctx.gate("Go on?")
async def main():
    for part in ("start", "recover"):
        async with Session("test", {str(tmp_path / "nerve.db")!r}) as session:
            session.workflow(ask)
            if part == "start":
                run = await session.start("ask")
                while run.pending_gate is None:
                    await asyncio.sleep(0)
            else:
                (run,) = await session.recover()
                await run.answer("yes")
                assert await run.wait() == "yes"
asyncio.run(main())
"""
    modules = loaded(code)
    assert "pydantic" not in modules
    assert not {name for name in modules if name.startswith(("nerve.dataspace", "nerve.spec"))}


def test_a_first_run_on_disk_loads_nothing_for_forks_logs_views_and_damaged_files(tmp_path):
    code = f"""
import asyncio
from nerve import FunctionNode, Session, Workflow
async def hello(ctx):
    return (await ctx.run("greet", "world"))["output"]
async def main():
    session = Session("test", {str(tmp_path / "nerve.db")!r})
    FunctionNode("greet", session, lambda context: f"hello {{context.input}}")
    Workflow("hello", session, hello)
    async with session:
        assert await (await session.start("hello")).wait() == "hello world"
asyncio.run(main())
"""
    rare = {"engine.fork", "engine.jsonl_log", "journal.fork_point", "journal.run_view", "agents.agent_node"}
    assert not loaded(code) & ({f"nerve.{name}" for name in rare} | {"shutil", "bz2", "lzma", "tempfile"})


def test_opening_a_sqlite_session_loads_the_database(tmp_path):
    code = f"from nerve import Session; Session('test', {str(tmp_path / 'nerve.db')!r}).engine.store.close()"
    modules = loaded(code)
    assert "apsw" in modules
    assert "nerve.store.sqlite" in modules


def loaded_by_command(*arguments: str, folder) -> set[str]:
    """Return the packages that a `nerve` command has loaded when it ends."""
    return {name.split(".")[0] for name in modules_of_command(*arguments, folder=folder)}


def modules_of_command(*arguments: str, folder) -> set[str]:
    code = f"""
import os, runpy
os._exit = sys.exit  # the modules are printed after the command
os.chdir({str(folder)!r})
sys.argv = ["nerve", *{arguments!r}]
try:
    runpy.run_module("nerve", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""
    return loaded(code)


ENGINE_AND_SCREENS = HEAVY | {"asyncio", "jsonschema", "re2", "tree_sitter"}


@pytest.mark.parametrize("argument", ["version", "--version", "--help", "-h"])
def test_version_and_help_load_neither_the_parser_nor_the_engine(argument, tmp_path):
    assert not loaded_by_command(argument, folder=tmp_path) & ENGINE_AND_SCREENS


MODULE_COUNTS = {"version": 100, "--help": 110, "runs": 245, "gates": 240, "check": 365}
"""The modules that a command may load, with those of the interpreter; about 5 % more than it does."""


@pytest.fixture
def project(tmp_path):
    """Create a project with a workflow, a completed run and a run at a gate."""
    subprocess.run([sys.executable, "-m", "nerve", "init", str(tmp_path), "--quiet"], check=True)
    asyncio.run(record_runs(tmp_path / ".nerve/nerve.db"))
    return tmp_path


async def record_runs(store):
    async def ask(ctx):
        if ctx.input:
            await ctx.gate("Go on?")

    async with Session(store=store) as session:
        session.workflow(ask)
        await (await session.start("ask")).wait()
        run = await session.start("ask", "please")
        while run.pending_gate is None:
            await run.wait_for_change()


@pytest.mark.parametrize("command", MODULE_COUNTS)
def test_a_command_starts_with_few_modules(command, project):
    assert len(modules_of_command(command, folder=project)) <= MODULE_COUNTS[command]


ENGINE_PACKAGES = {"nerve.api.models", "nerve.session.session", "nerve.engine.local_engine", "nerve.spec"}


@pytest.mark.parametrize(
    "command", ["runs", "runs --json", "runs --state waiting --all", "gates", "gates --json"]
)
def test_a_list_without_a_server_loads_the_store_and_no_engine(command, project):
    modules = modules_of_command(*command.split(), folder=project)
    assert not {name.split(".")[0] for name in modules} & (ENGINE_AND_SCREENS - {"apsw"})
    assert not modules & ENGINE_PACKAGES
    assert "nerve.store.sqlite" in modules


@pytest.mark.parametrize("command", ["check", "check greet --json"])
def test_checking_workflows_loads_their_models_and_no_engine(command, project):
    modules = modules_of_command(*command.split(), folder=project)
    assert not {name.split(".")[0] for name in modules} & (ENGINE_AND_SCREENS - {"pydantic", "yaml"})
    assert not modules & {"nerve.api.models", "nerve.session.session", "nerve.core.nodes", "nerve.store"}


@pytest.mark.parametrize("command", ["events x", "status"])
def test_a_command_loads_no_screens_server_or_agents(command, tmp_path):
    code = f"""
import os
os.chdir({str(tmp_path)!r})
from nerve.cli import execute_command_line
execute_command_line({command.split()!r})
"""
    packages = {name.split(".")[0] for name in loaded(code)}
    assert not packages & (HEAVY - {"cyclopts", "pydantic"} | {"jsonschema", "re2", "tree_sitter"})


def test_an_unknown_public_name_is_an_attribute_error():
    import nerve

    assert set(nerve.__all__) <= set(dir(nerve))
    with pytest.raises(AttributeError, match="has no attribute 'Sesion'"):
        _ = nerve.Sesion
