"""Whatever is written in a workflow, a terminal that shows it does only what it is told by us."""

import json
from pathlib import Path

import pytest

from cli.terminal import Terminal

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b\u202e"
WORKFLOW = {
    "name": "evil",
    "description": f"d{EVIL}",
    "body": {"kind": "gate", "id": "ask", "prompt": f"go{EVIL}", "choices": ["yes", f"no{EVIL}"]},
}


@pytest.fixture
def evil(project: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    (project / ".nerve/workflows/evil.json").write_text(json.dumps(WORKFLOW))
    return "evil"


def hostile(text: str) -> list[str]:
    return [each for each in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e") if each in text]


@pytest.mark.parametrize("option", ["--tree", "--mermaid"])
def test_output_of_show_is_sanitized(evil: str, do, option: str) -> None:
    done = do("show", evil, option)
    assert "ask" in done.out
    assert hostile(done.out + done.err) == []


@pytest.mark.parametrize("verb", ["runs", "status", "gates", "logs", "watch"])
def test_output_about_a_run_is_sanitized(evil: str, do, verb: str) -> None:
    do("start", evil)
    [run] = do("runs", "--json").json
    done = do(verb, *([run["run_id"]] if verb in ("status", "logs", "watch") else []))
    assert done.out + done.err
    assert hostile(done.out + done.err) == []


def test_a_label_or_description_stays_on_one_line(do, project: Path) -> None:
    source = {**WORKFLOW, "description": "d\n  0 forged waiting"}
    (project / ".nerve/workflows/evil.json").write_text(json.dumps(source))
    do("start", "evil", "--label", "a\n  1 forged waiting\u2028  2 forged")
    lines = do("workflow", "list").out.splitlines()
    [named] = [line for line in lines if line.startswith("evil")]
    [run] = [line for line in lines if "1 forged" in line]
    assert named == "evil  d 0 forged waiting"
    assert run.endswith("1 forged waitingU+2028  2 forged waiting")
    assert not [line for line in lines if line.split()[:1] in (["0"], ["1"], ["2"])]


def test_colour_codes_of_the_program_are_not_escaped(evil: str, do) -> None:
    do("start", evil)
    [run] = do("runs", "--json").json
    out = do("status", run["run_id"]).out
    assert "evil" in out
    assert "\\x1b[1m" not in out


ECHO = {"name": "echo", "body": {"kind": "transform", "expression": "input"}}


@pytest.fixture
def echo(evil: str, project: Path) -> str:
    (project / ".nerve/workflows/echo.json").write_text(json.dumps(ECHO))
    return "echo"


def test_a_result_is_sanitized_in_a_terminal_and_unchanged_in_a_pipe(echo: str, do) -> None:
    with Terminal("run", echo, f"x{EVIL}") as terminal:
        assert terminal.end() == 0
    [run] = do("runs", "--json").json
    with Terminal("watch", run["run_id"], "--json") as watch:
        assert watch.end() == 0
    for shown in (terminal.shown, watch.shown):
        assert "2J" in shown
        assert hostile(shown) == []
    assert do("run", echo, f"x{EVIL}").out == f"x{EVIL}\n"
    told = do("run", echo, f"x{EVIL}", "--json")
    assert told.json["result"] == f"x{EVIL}"
    assert hostile(told.out) == []


def test_a_gate_prompt_is_sanitized(evil: str, do) -> None:
    with Terminal("run", evil) as terminal:
        terminal.until("or the answer:")
        terminal.type("1")
        assert terminal.end() == 0
    assert hostile(terminal.shown) == []


@pytest.mark.parametrize("verb", [("workflow", "list"), ("runs",), ("status", "{run}"), ("watch", "{run}")])
def test_a_label_cannot_start_a_line(evil: str, do, verb: tuple[str, ...]) -> None:
    do("start", evil, "--label", "first\nFORGED")
    [run] = do("runs", "--json").json
    done = do(*(word.format(run=run["run_id"]) for word in verb))
    assert not [line for line in done.out.splitlines() if line.strip().startswith("FORGED")]


def test_problems_of_a_file_are_sanitized(evil: str, do, project: Path) -> None:
    (project / ".nerve/workflows/bad.yaml").write_text('name: bad\nbody: {kind: "no\\e]0;x\\a\\N\\u202e"}\n')
    for verb in ("check", "show", "run"):
        done = do(verb, "bad") if verb == "check" else do(verb, ".nerve/workflows/bad.yaml")
        assert done.code in (1, 2)
        assert hostile(done.out + done.err) == []
        assert hostile(do("check", "bad", "--json").out) == []
