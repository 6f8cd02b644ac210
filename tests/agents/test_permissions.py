"""Permissions: what patterns match, and what a person is shown."""

from pathlib import Path

import pytest

from core.workflow.support import within
from nerve import Session
from nerve.agents import Capabilities, PermissionRequest, TurnFinished
from nerve.agents.permissions import Permissions, format_permission_question
from nerve.agents.tool_patterns import ToolUse
from nerve.text.source import InvalidDefinition


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
def test_a_file_pattern_matches_the_resolved_path(path: str, verdict: str) -> None:
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
def test_a_command_pattern_matches_one_command_however_it_is_reported(command, verdict: str) -> None:
    assert Permissions(allow=("shell(git *)",)).verdict("shell", {"command": command}) == verdict


def test_the_first_line_of_a_question_shows_what_will_run() -> None:
    action = ToolUse("Bash", {"command": "git push\n" + "x" * 100, "timeout": 5})
    first, *rest = format_permission_question("dev", action, "it is done").splitlines()
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
    assert format_permission_question("dev", ToolUse("Look")).splitlines()[0] == "dev wants to use Look:"


def test_the_agents_reason_is_not_repeated() -> None:
    action = ToolUse("Bash", {"command": "ls", "description": "list files"})
    assert "The agent says" not in format_permission_question("dev", action, "list files")


def test_agent_text_cannot_imitate_a_field_or_move_the_cursor() -> None:
    question = format_permission_question(
        "dev", ToolUse("Bash", {"command": "rm -rf /\n    command: ls\x1b[2A\r"})
    )
    assert "\n    command: ls" not in question
    assert question.endswith("            command: ls\\u001b[2A\\u000d")


async def test_a_question_names_the_step_and_its_agent() -> None:
    class Asking:
        name = "claude"
        capabilities = Capabilities(permissions=True)

        async def query(self, prompt, cwd, resume, options):
            decision = await options.ask(PermissionRequest("Bash", {"command": "ls"}))
            yield TurnFinished("t", outcome="completed" if decision.allow else "failed")

    session = Session(providers={"claude": Asking()})
    session.load("name: work\ndescription: x\nnodes:\n  - {id: plan, prompt: Plan it.}")
    run = await session.start("work")
    gate = await within(run.next_gate())
    assert gate is not None
    assert (gate.node_id, gate.path) == ("plan", "/plan/permission")
    assert gate.prompt.startswith("plan (claude) wants to use Bash(ls):")
    await run.answer("allow")
    await within(run.wait())


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build",
        "rm  -rf build",
        "true; rm -rf build",
        "rm -rf build ; true",
        "rm -rf build > /dev/null",
        "true && rm -rf build",
        "true | rm -rf build",
        "true\nrm -rf build",
        "(rm -rf build)",
        "{ rm -rf build; }",
        "echo `rm -rf build`",
        'echo "$(rm -rf build)"',
        "/bin/rm -rf build",
        "\\rm -rf build",
        'r"m" -rf build',
        "X=1 rm -rf build",
        "sudo rm -rf build",
        "find . -exec rm -rf {} +",
        "bash -c 'rm -rf build'",
        "bash -lc 'cd /; rm -rf build' arg",
        ["bash", "-lc", "true; rm -rf build"],
        "eval 'rm -rf build'",
        "X=rm; $X -rf build",
        "$(echo rm) -rf build",
        "sudo $X -rf build",
        "/bin/r? -rf build",
        "rm -rf $FOLDER",
        "if true; then rm -rf build; fi",
        "diff <(rm -rf build) x",
    ],
)
@pytest.mark.parametrize("name", ["deny", "ask"])
def test_deny_and_ask_patterns_match_wrapped_commands(name: str, command) -> None:
    permissions = Permissions(allow=("Bash",), **{name: ("Bash(rm *)",)})
    assert permissions.verdict("Bash", {"command": command}) == name


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "ls | wc -l",
        "echo $HOME",
        "[ -f x ] && cat x",
        "npm run build",
        "git log --format=%h",
        "rmdir x",
    ],
)
def test_a_denied_command_does_not_affect_others(command: str) -> None:
    permissions = Permissions(allow=("Bash",), deny=("Bash(rm *)", "Bash(git push*)", "Bash(curl:*)"))
    assert permissions.verdict("Bash", {"command": command}) == "allow"


@pytest.mark.parametrize("command", ["git push --force && true", "git push --force", "git $WORD --force"])
def test_a_deny_pattern_may_match_a_shell_expansion(command: str) -> None:
    permissions = Permissions(allow=("Bash",), deny=("Bash(git push --force*)",))
    assert permissions.verdict("Bash", {"command": command}) == "deny"


@pytest.mark.parametrize(
    ("pattern", "url", "verdict"),
    [
        ("WebFetch(https://evil*)", "https://evil.example/?a=1&b=2", "deny"),
        ("WebFetch(https://evil*)", "https://x:y@evil.example/", "deny"),
        ("WebFetch(https://evil*)", "https://EVIL.example", "deny"),
        ("WebFetch(domain:evil.example)", "https://www.evil.example/a", "deny"),
        ("WebFetch(domain:evil.example)", "https://good.example/?evil.example", "allow"),
    ],
)
def test_a_url_is_denied_however_it_is_written(pattern: str, url: str, verdict: str) -> None:
    assert Permissions(allow=("*",), deny=(pattern,)).verdict("WebFetch", {"url": url}) == verdict


def test_an_allowed_url_must_not_contain_user_info() -> None:
    permissions = Permissions(allow=("WebFetch(https://good.example*)",))
    assert permissions.verdict("WebFetch", {"url": "https://good.example/?a=1&b=2"}) == "allow"
    assert permissions.verdict("WebFetch", {"url": "https://good.example@evil.example/"}) == "ask"


@pytest.mark.parametrize("pattern", ["secrets/*", "./secrets/*", "**/secrets/*", "{cwd}/secrets/*", "*/key"])
@pytest.mark.parametrize("path", ["secrets/key", "{cwd}/secrets/key", "./src/../secrets/key", "link/key"])
def test_a_file_is_denied_however_its_path_is_written(pattern: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "link").symlink_to("secrets")
    permissions = Permissions(allow=("Edit",), deny=(f"Edit({pattern.format(cwd=tmp_path)})",))
    cwd = str(tmp_path)
    assert permissions.verdict("Edit", {"file_path": path.format(cwd=cwd)}, cwd) == "deny"
    assert permissions.verdict("Edit", {"file_path": "src/other"}, cwd) == "allow"


def test_a_relative_pattern_allows_files_below_the_folder_but_not_through_links(
    tmp_path: Path,
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "out").symlink_to("/etc")
    permissions, cwd = Permissions(allow=("Edit(src/*)",)), str(tmp_path)
    assert permissions.verdict("Edit", {"file_path": f"{cwd}/src/slug.py"}, cwd) == "allow"
    assert permissions.verdict("Edit", {"file_path": f"{cwd}/src/out/passwd"}, cwd) == "ask"
    assert permissions.verdict("Edit", {"file_path": f"{cwd}/srcs"}, cwd) == "ask"


def test_a_patch_is_checked_for_every_file_in_it() -> None:
    permissions = Permissions(allow=("apply_patch(src/*)",), deny=("apply_patch(secrets/*)",))
    moved = {"path": "/p/src/a", "kind": {"type": "update", "move_path": "/p/secrets/a"}}
    for paths, verdict in (
        (["/p/src/a", "/p/src/b"], "allow"),
        (["/p/src/a", "/p/b"], "ask"),
        (["/p/src/a", "/p/secrets/b"], "deny"),
    ):
        changes = [{"path": path, "kind": {"type": "add"}, "diff": ""} for path in paths]
        assert permissions.verdict("apply_patch", {"changes": changes}, "/p") == verdict
    assert permissions.verdict("apply_patch", {"changes": [moved]}, "/p") == "deny"


def test_a_call_with_an_unknown_subject_is_denied_and_not_allowed() -> None:
    permissions = Permissions(allow=("edit(src/*)",), deny=("delete(secrets/*)",))
    assert permissions.verdict("delete", {"title": "Tidy up"}) == "deny"
    assert permissions.verdict("edit", {"title": "src/a"}) == "ask"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deny": "Bash"}, "deny must be a list of patterns, like .*, got 'Bash'"),
        ({"allow": [1]}, "allow must be a list of patterns"),
        ({"ask": [""]}, "ask must be a list of patterns"),
        ({"otherwise": "perhaps"}, "otherwise must be allow, ask or deny, got 'perhaps'"),
        ({"forbid": ["Bash"]}, "Unknown permissions key 'forbid'. Available: allow, ask, deny, otherwise"),
        (["Bash"], "permissions must be a mapping"),
    ],
)
def test_invalid_permissions_are_an_error(given, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Permissions.of(given)
    if isinstance(given, dict) and "forbid" not in given:
        with pytest.raises(ValueError, match=message):
            Permissions(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("deny: Bash", r"5:25: 'deny' must be a list, got \"Bash\""),
        (
            "otherwise: perhaps",
            r"5:30: 'otherwise' must be 'allow', 'ask' or 'deny', got \"perhaps\"",
        ),
        ("forbid: [Bash]", r"5:19: Unknown key 'forbid'.*"),
    ],
)
def test_a_file_with_invalid_permissions_is_refused_with_their_position(given: str, message: str) -> None:
    text = (
        f"name: work\ndescription: x\nnodes:\n  - prompt: Do it.\n    permissions: {{{given}}}\n    id: a\n"
    )
    with pytest.raises(InvalidDefinition, match=message):
        Session().load(text)
