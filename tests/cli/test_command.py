"""The `nerve` command: help, version, and what it says to bad usage."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nerve as package


def test_help_lists_every_command(nerve) -> None:
    done = nerve("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for verb in ("run", "resume", "runs", "check", "show", "convert", "demo"):
        assert f" {verb} " in done.stdout


def test_no_arguments_print_the_help(nerve) -> None:
    assert nerve().stdout == nerve("--help").stdout


def test_version(nerve) -> None:
    assert nerve("--version").stdout == f"{package.__version__}\n"


def test_help_imports_no_command_and_no_store() -> None:
    code = "import sys, nerve.cli\ntry: nerve.cli.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1].split()
    assert "nerve.cli" in loaded
    heavy = {"nerve.cli.demo", "nerve.cli.start", "nerve.session", "nerve.engine", "nerve.store"}
    assert not (heavy | {"apsw", "pydantic", "yaml"}) & set(loaded)


@pytest.mark.parametrize("arguments", ["version", "runs", "facts", "schema --json", "status"])
def test_a_closed_output_is_not_an_error(arguments: str, tmp_path: Path) -> None:
    code = f"import nerve.cli; nerve.cli.main({arguments.split()!r})"
    shell = ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code]
    done = subprocess.run(shell, cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", ["version", "runs", "runs --json", "facts", "schema --json", "--help"])
def test_a_full_output_device_is_one_line_and_exit_code_1(arguments: str, tmp_path: Path) -> None:
    code = f"import nerve.cli; nerve.cli.main({arguments.split()!r})"
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr.endswith(": No space left on device\n")
    assert done.stderr.count("\n") == 1


def test_errors_are_not_printed_on_stdout_if_stderr_is_closed(tmp_path: Path) -> None:
    code = "import nerve.cli; nerve.cli.main(['status', 'gone', '--json'])"
    shell = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    done = subprocess.run(shell, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "not_found"


PRESSED = """
import os, signal, sys

class Press:
    def find_spec(self, name, *_):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
from nerve.__main__ import main
sys.argv[1:] = ["status", sys.argv[1]]
main()
"""


@pytest.mark.parametrize("at", ["nerve.cli", "cyclopts", "nerve.cli.inspect", "pydantic", "nerve.api.models"])
def test_ctrl_c_during_import_exits_quietly(at: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRESSED, at]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmo"], 'nerve: Unknown command "dmo". Did you mean "demo"? Available commands: '),
        (["demo", "--bogus"], "nerve: Unknown option: --bogus."),
        (
            ["runs", "--stat", "x"],
            "nerve: Unknown option: --stat. Did you mean --state? See: nerve runs --help",
        ),
        (["check", "--with"], "nerve: Unknown option: --with. See: nerve check --help"),
        (["status", "--limit", "3"], "nerve: Unknown option: --limit. See: nerve status --help"),
        (["demo", "now"], "nerve: Unexpected argument: now. See: nerve demo --help"),
        (["workflow", "lsit"], 'nerve: Unknown command "lsit". Did you mean "list"? '),
        (
            ["workflow", "define"],
            'nerve: Command "workflow define" parameter FILE requires an argument. '
            "See: nerve workflow define --help",
        ),
        (
            ["run", "x", "-label"],
            'nerve: Unknown option: -label. Put values that start with "-" after "--". See: nerve run --help',
        ),
        (
            ["run", "x", "--limit", "foo=3"],
            "nerve: --limit: Unknown limit 'foo'. Known limits: steps, iterations, errors, "
            "wall_time, depth, tokens, cost, turns, agents. See: ",
        ),
        (["demo", "--resume", "nowhere"], "nerve: nowhere has no journal.db"),
        (
            ["demo", "--resume", "nowhere", "--crash"],
            "nerve: --resume and --crash cannot be used together",
        ),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments, message, nerve, scratch) -> None:
    done = nerve(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert not list(scratch.iterdir())
