"""Permissions: what patterns mean, and what a person is shown."""

import pytest

from core.workflow.support import within
from nerve import Session
from nerve.agents import Capabilities, Done, Permission
from nerve.agents.permissions import Action, Permissions, question


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/project/src/slug.py", "allow"),
        ("/project/src/../src/slug.py", "allow"),
        ("/project/src/../../etc/passwd", "ask"),
        ("/project/srcs", "ask"),
        ("src/slug.py", "ask"),
    ],
)
def test_a_pattern_of_files_means_where_a_path_leads(path: str, verdict: str) -> None:
    permissions = Permissions(allow=("Write(/project/src/*)",))
    assert permissions.verdict("Write", {"file_path": path}) == verdict


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git status", "allow"),
        ("git status; rm -rf .", "ask"),
        ("/bin/bash -lc 'git status'", "allow"),
        (["bash", "-lc", "git status"], "allow"),
        ("/bin/bash -lc 'git status; rm -rf .'", "ask"),
        ("/bin/bash -lc 'git status' ; rm -rf .", "ask"),
        ("/bin/bash -lc 'rm -rf .' 'git status'", "ask"),
        ("./git -lc 'git status'", "ask"),
        ("bash -lc 'git status", "ask"),
    ],
)
def test_a_pattern_of_commands_means_one_command_however_it_is_told(command, verdict: str) -> None:
    assert Permissions(allow=("shell(git *)",)).verdict("shell", {"command": command}) == verdict


def test_a_question_says_in_its_first_line_what_is_to_be_run() -> None:
    action = Action("Bash", {"command": "git push\n" + "x" * 100, "timeout": 5})
    first, *rest = question("dev", action, "it is done").splitlines()
    assert first == f"dev wants to use Bash(git push {'x' * 51}…):"
    assert rest == [
        "",
        "    command: git push",
        "        " + "x" * 100,
        "    timeout: 5",
        "",
        "The agent says: it is done",
    ]


def test_a_question_without_an_input_names_the_tool() -> None:
    assert question("dev", Action("Look")).splitlines()[0] == "dev wants to use Look:"


def test_what_the_agent_says_is_not_said_twice() -> None:
    action = Action("Bash", {"command": "ls", "description": "list files"})
    assert "The agent says" not in question("dev", action, "list files")


def test_no_text_of_an_agent_passes_for_another_field_or_moves_the_cursor() -> None:
    told = question("dev", Action("Bash", {"command": "rm -rf /\n    command: ls\x1b[2A\r"}))
    assert "\n    command: ls" not in told
    assert told.endswith("            command: ls\\u001b[2A\\u000d")


async def test_a_question_names_the_step_and_the_agent_that_does_it() -> None:
    class Asking:
        name = "claude"
        capabilities = Capabilities(permissions=True)

        async def query(self, prompt, cwd, resume, options):
            decision = await options.ask(Permission("Bash", {"command": "ls"}))
            yield Done("t", outcome="completed" if decision.allow else "failed")

    session = Session(providers={"claude": Asking()})
    session.load("name: work\ndescription: x\nnodes:\n  - {id: plan, prompt: Plan it.}")
    run = await session.start("work")
    gate = await within(run.next_gate())
    assert gate is not None
    assert (gate.node_id, gate.path) == ("plan", "/plan/permission")
    assert gate.prompt.startswith("plan (claude) wants to use Bash(ls):")
    await run.answer("allow")
    await within(run.wait())
