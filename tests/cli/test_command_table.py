"""Every verb without a server: the command is the engine for as long as it lasts."""

import ast
import json
import re
import resource
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from rich.console import Console

from nerve.api import OPERATIONS
from nerve.cli.command_table import CLI_COMMANDS, COMMAND_GROUPS, NESTED_TABLES
from nerve.cli.general_help import CYAN, END, print_general_help
from nerve.cli.parser import app
from nerve.store.port import Append, EventRow
from nerve.store.sqlite import SqliteStore
from nerve.ui.sanitize import sanitize_text

SOURCES = Path(__file__).parents[2] / "src/nerve"

NESTED_ENTRIES = {
    f"{group} {name}": entry for group, entries in NESTED_TABLES.items() for name, entry in entries.items()
}


def test_every_command_is_registered_with_a_matching_example() -> None:
    for name, verb in (CLI_COMMANDS | NESTED_ENTRIES).items():
        assert verb.example.startswith(f"nerve {name}")
    assert set(CLI_COMMANDS) <= set(app)
    for group, entries in NESTED_TABLES.items():
        assert set(entries) <= set(app[group])


def test_the_help_lists_every_command_in_its_group(do) -> None:
    help = do("--help").out
    assert "nerve without a command opens the Commander" in help
    titles = re.findall(r"╭─ ([A-Za-z ]+) ─", help)
    assert titles == [*COMMAND_GROUPS, "Options"]
    listed = re.findall(r"^│ ([a-z]+)  ", help, re.MULTILINE)
    assert sorted(listed) == sorted([*CLI_COMMANDS, *NESTED_TABLES])
    assert listed[0] == "run"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_general_help_looks_like_that_of_the_parser(width: int, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for option, value in (("FORCE_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv(option, value)
    print_general_help()
    shown = capsys.readouterr().out
    assert f"{CYAN}start    {END}" in shown
    app.help_print([], console=Console(width=width, force_terminal=False))
    expected = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert re.sub(r"\033\[\d+m", "", shown).splitlines() == expected


@pytest.mark.parametrize("verb", [*CLI_COMMANDS, *NESTED_ENTRIES])
def test_help_shows_an_example_and_the_common_options(verb: str, do) -> None:
    done = do(*verb.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert "Example: nerve" in done.out
    for option in ("--json", "--quiet"):
        assert verb in ("acp", "commander", "mcp") or option in done.out
    assert re.findall(r"^│ +\*? +([A-Z]+) +(?:\[[^]]*\] +)*│$|^│ ([A-Z]+) +│$", done.out, re.MULTILINE) == []


PURE = {
    "check": ["check"],
    "show": ["show", "ship"],
    "convert": ["convert", "ship", "--to", "lisp"],
    "schema": ["schema", "start"],
    "version": ["version"],
    "runs": ["runs"],
    "run": ["run", "shout"],
    "start": ["start", "shout"],
    "dry run": ["run", "shout", "--dry-run"],
    "status": ["status"],
    "gates": ["gates"],
    "facts": ["facts"],
    "gc": ["gc"],
    "doctor": ["doctor"],
    "list": ["workflow", "list"],
}


@pytest.mark.parametrize("arguments", PURE.values(), ids=PURE)
def test_json_prints_one_value_and_quiet_prints_nothing_else(arguments, do) -> None:
    done = do(*arguments, "--json")
    assert done.out.count("\n") == 1
    assert done.json is not None
    done = do(*arguments, "--json", "--quiet")
    assert (done.err, done.out.count("\n")) == ("", 1)
    assert do(*arguments, "--quiet").err == ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "gone"], "not_found"),
        (["run", "bad.yaml"], "refused"),
        (["answer", "gone"], "bad_request"),
        (["show", "gone"], "not_found"),
        (["convert", "gone", "--to", "yaml"], "not_found"),
        (["schema", "gone"], "bad_request"),
        (["runs", "--state", "gone"], "bad_request"),
        (["run", "sh"], "conflict"),
        (["resume", "gone"], "not_found"),
        (["demo", "--resume", "gone"], "bad_request"),
        (["check", "--bogus"], "bad_request"),
        (["status", "gone"], "not_found"),
        (["workflow", "define", "bad.yaml"], "refused"),
    ],
)
def test_an_error_is_one_json_object_with_its_code(arguments, code, do, project: Path) -> None:
    (project / "bad.yaml").write_text("name: bad\nbody: {kind: nothing}\n")
    done = do(*arguments, "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == code
    assert done.json["error"]["message"]
    assert done.json["error"]["fix"]
    assert done.err


OPENING = {
    name: PURE[name] for name in ("runs", "run", "start", "status", "gates", "facts", "gc", "list")
} | {"resume": ["resume", "x"], "answer": ["answer", "x", "yes"], "assert": ["assert", "(x)"]}


@pytest.mark.parametrize("arguments", OPENING.values(), ids=OPENING)
@pytest.mark.parametrize("link", [".nerve", ".nerve/nerve.db"])
def test_no_command_opens_a_symlinked_store(arguments, link, do, project: Path, tmp_path_factory) -> None:
    """A project may come from anywhere, and have a link to the store of another."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if link != ".nerve":
        (project / ".nerve").mkdir(exist_ok=True)
    elif (project / link).exists():
        (project / link).rename(elsewhere / "before")
    SqliteStore(elsewhere / "nerve.db").close()
    before = (elsewhere / "nerve.db").read_bytes()
    (project / link).symlink_to(elsewhere if link == ".nerve" else elsewhere / "nerve.db")
    done = do(*arguments)
    assert (done.code, done.out) == (2, "")
    assert re.search("is a symbolic link|leads out of its folder", done.err)
    assert (elsewhere / "nerve.db").read_bytes() == before


@pytest.mark.parametrize("arguments", [*OPENING.values(), ["serve"]], ids=[*OPENING, "serve"])
def test_a_folder_at_the_store_path_is_an_error(arguments, do, project: Path) -> None:
    (project / ".nerve/nerve.db").mkdir(parents=True)
    done = do(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("nerve: .nerve/nerve.db is not a file. Move it, or select another store. ")


def test_a_file_at_the_path_of_the_store_folder_is_an_error(
    do, tmp_path_factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    Path(".nerve").touch()
    done = do("runs")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("nerve: .nerve is not a folder. Move it, ")


def damaged(kind: str, file: Path) -> None:
    """Something in the place of a store."""
    file.parent.mkdir(exist_ok=True)
    if kind == "folder":
        file.mkdir()
    elif kind == "text":
        file.write_text("no database " * 100)
    else:
        with closing(apsw.Connection(str(file))) as db:
            db.execute(
                "create table notes (text); pragma user_version = 999"
                if kind == "newer"
                else "create table notes (text)"
            )


@pytest.mark.parametrize(
    ("kind", "told", "fix"),
    [
        ("folder", "is not a file", "Move it"),
        ("text", "file is not a database", "Restore it from a backup."),
        ("newer", "has version 999", "Update Nerve."),
        ("another", "is the database of another program", "Use another file."),
    ],
)
def test_a_damaged_store_is_reported_by_doctor_and_by_reading_commands(
    kind: str, told: str, fix: str, do, project: Path
) -> None:
    damaged(kind, project / ".nerve/nerve.db")
    done = do("doctor", "--quiet")
    assert done.code == 1
    assert re.search(f"^✗ store: .*{told}.*{fix}", done.out, re.MULTILINE)
    listed = do("runs", "--json")
    assert listed.code in (1, 2)
    assert told in listed.json["error"]["message"]
    assert "nerve" in listed.json["error"]["fix"]


def test_the_doctor_reports_a_read_only_store(do, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as a user who may do everything."""
    assert do("run", "shout").code == 0
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("nerve.db"))
    assert "✗ store: " in (told := do("doctor", "--quiet")).out
    assert ".nerve/nerve.db is not writable by this user  → Change its permissions" in told.out


def test_a_full_disk_is_reported_as_such(do, project: Path) -> None:
    assert do("run", "shout").code == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the index of the log of SQLite is larger
    try:
        said = {command: do(command) for command in ("doctor", "runs")}
        started = do("run", "shout")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    full = f"{project / '.nerve/nerve.db'} cannot grow: the disk is full"
    assert ".nerve/nerve.db cannot grow: the disk is full  → Free some space, then try again." in (
        said["doctor"].out
    )
    message = f"nerve: {full}. Free some space, then try again.\n"
    assert (said["runs"].err, started.err) == (message, message)


def test_a_store_that_cannot_be_written_is_reported_without_a_traceback(do, project: Path) -> None:
    (project / ".nerve/nerve.db.lock").mkdir()
    message = f"nerve: Cannot lock {project / '.nerve/nerve.db'}: Is a directory. To diagnose: nerve doctor"
    assert do("run", "shout").err == f"{message} [internal]\n"


def test_a_missing_library_for_postgresql_is_named(do, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    fix = "Install it: pip install '.[postgres]' in the clone of Nerve."
    for command in (["runs"], ["run", "shout"]):
        said = do(*command, "--store", "postgresql://db.example/nerve")
        assert (said.code, said.err.count("\n")) == (1, 1)
        assert f"A store in PostgreSQL needs psycopg, which is not installed. {fix}" in said.err
    monkeypatch.setenv("NERVE_STORE", "postgresql://db.example/nerve")
    assert f"✗ store: A store in PostgreSQL needs psycopg, which is not installed. {fix}" in do("doctor").out


def test_the_doctor_reports_a_symlinked_store(do, project: Path, tmp_path_factory) -> None:
    (project / ".nerve").mkdir(exist_ok=True)
    (project / ".nerve/nerve.db").symlink_to(tmp_path_factory.mktemp("elsewhere") / "nerve.db")
    assert re.search(r"store.*nerve\.db is a symbolic link", do("doctor").out)


def test_every_command_that_a_message_names_exists() -> None:
    named = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"(?<!from )\bnerve [a-z]", text):
            continue  # nothing to be found, and parsing takes its time
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"\bnerve ((?:(?:workflow|server|store) )?[a-z][a-z-]*)", node.value))
    known = {*CLI_COMMANDS, *NESTED_TABLES}
    known |= set(NESTED_ENTRIES)
    assert named <= known, named - known


def test_every_api_operation_has_a_command() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (SOURCES / "cli").glob("*.py"))
    calls = {name: (f"client.{name}(", f'(common, "{name}", ', f'common, "{name}", ') for name in OPERATIONS}
    # These read page after page.
    calls |= {"events": ("client.history(",), "audit": ("client.all_audit_entries(",)}
    missing = {name for name, forms in calls.items() if not any(form in text for form in forms)}
    assert missing == {"agents", "definition", "definitions", "sessions", "threads", "usage_history"}


# -- runs --------------------------------------------------------------------------------------


def test_start_returns_when_the_run_waits_and_answer_when_it_ends(do) -> None:
    done = do("start", "asking", "--label", "c1")
    assert (done.code, done.out) == (4, "")
    assert "at gate 'colour': Which colour?" in done.err
    done = do("answer", "c1", "red")
    assert (done.code, done.out) == (0, "red\n")
    done = do("answer", "c1", "blue", "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == "conflict"
    assert done.json["error"]["details"]["winner"]["answer"] == "red"


def test_the_outcome_of_a_start_is_one_json_object(do) -> None:
    told = do("start", "sh", "--json")
    assert told.code == 2  # ship or shout
    assert do("start", "shou", "--json").json["result"] == "loud\n"
    told = do("start", "ask", "--json").json
    assert (told["state"], told["gates"][0]["name"]) == ("waiting", "colour")


def test_inputs_have_the_declared_types_and_unknown_ones_are_refused(do) -> None:
    assert "must be an integer, got 'x'" in do("start", "ship", "--count=x").err
    assert "'ship' has no option 'cuont'. Did you mean 'count'? Options: --count" in (
        do("start", "ship", "--cuont=1").err
    )
    done = do("start", "ship", "it", "--count=2", "--with", "nodes.py", "--answer", "approve=yes", "--json")
    assert done.json["result"]["inputs"]["count"] == 2


def test_a_start_without_its_agent_starts_nothing(do) -> None:
    done = do("start", "ship", "--count=2")
    assert (done.code, done.out) == (2, "")
    assert "notifier" in done.err
    assert do("runs").out.startswith("No runs yet")


def test_output_printed_by_python_code_is_not_part_of_the_result(do) -> None:
    done = do("start", "flows.py:greet", "--answer", "answer=Ann", "--json")
    assert done.json["state"] in ("waiting", "completed")
    assert "noise" in done.err


@pytest.mark.parametrize("verb", [["answer", "Ann"], ["approve"], ["reject"], ["fork"]])
def test_a_run_without_its_code_names_the_missing_file_and_does_not_change(verb: list[str], do) -> None:
    run = do("start", "flows.py:greet", "--json").json["run_id"]
    done = do(verb[0], run, *verb[1:])
    assert (done.code, "Name the file with its code: --with flows.py" in done.err) == (2, True)
    assert do("status", run, "--json").json["state"] == "waiting"


def test_a_child_is_answered_through_the_run_that_called_it(do) -> None:
    run = do("start", "parent", "--json").json
    assert [gate["name"] for gate in run["gates"]] == ["colour"]
    [gate] = do("gates", "--json").json
    assert gate["run_id"] != run["run_id"]
    done = do("answer", gate["run_id"], "green")
    assert (done.code, done.out) == (0, "child said green\n")


def test_approve_and_reject_select_the_choice_and_do_not_guess(do) -> None:
    do("start", "ship", "it", "--count=1", "--with", "nodes.py", "--label", "one")
    done = do("reject", "one", "--with", "nodes.py")
    assert done.code == 3
    do("start", "asking", "--label", "two")
    done = do("approve", "two")
    assert (done.code, done.out) == (2, "")
    assert "Gate 'colour' takes any text. Answer with: nerve answer" in done.err


def test_a_gate_is_answered_by_the_number_of_a_choice(do) -> None:
    do("start", "ship", "it", "--count=1", "--with", "nodes.py", "--label", "one")
    done = do("answer", "one", "1", "--gate", "approve", "--with", "nodes.py", "--json")
    assert done.json["state"] == "completed"


def test_pause_stop_and_resume_by_label(do) -> None:
    do("start", "asking", "--label", "p")
    assert do("pause", "p").out.endswith(" paused\n")
    assert do("status", "p", "--json").json["state"] == "paused"
    assert do("resume", "p").code == 4
    assert do("stop", "p", "--reason", "enough", "--json").json["state"] == "cancelled"
    assert do("status", "p", "--json").json["error"] == "enough"
    assert do("stop", "p").code == 0


def test_a_failed_run_is_retried_and_forked(do, project: Path) -> None:
    (project / ".nerve/workflows/flaky.yaml").write_text(
        "name: flaky\ndescription: Fails\nbody: {kind: sequence, steps: ["
        '{kind: bash, id: one, command: "echo x >> effects"},'
        '{kind: bash, id: two, command: "test -f ready && echo ok"}]}'
    )
    assert do("start", "flaky", "--label", "f").code == 1
    (project / "ready").touch()
    done = do("retry", "f", "--json")
    assert (done.code, done.json["result"]) == (0, "ok\n")
    assert (project / "effects").read_text() == "x\n"
    run = done.json["run_id"]
    assert "(completed, started 20" in do("fork", "f").err  # both runs are called so, and both are over
    done = do("fork", run, "--at", "/two", "--json")
    assert done.json["state"] == "completed"
    assert "--override must be PATH:NAME=VALUE, got 'x'" in do("fork", run, "--override", "x").err
    done = do("fork", run, "--at", "/two", "--limit", "steps=1", "--json")
    assert (done.code, "steps=1" in done.json["error"]) == (1, True)


def test_a_dry_run_of_a_fork_shows_what_would_run_again(do) -> None:
    run = do("start", "shout", "--json").json["run_id"]
    count = len(do("runs", "--json").json)
    [step] = do("fork", run, "--dry-run", "--json").json["steps"]
    assert (step["path"], step["fate"]) == ("/say", "reused")
    assert do("fork", run, "--at", "/say", "--dry-run").out == "/say  runs again\n"
    same_input = do("fork", run, "--input", "null", "--dry-run")
    assert same_input.out == "/say  reused\n"
    changed = do("fork", run, "--input", "another", "--dry-run")
    assert changed.out == "/say  reused if its input stays the same\n"
    assert len(do("runs", "--json").json) == count


def test_events_and_logs_of_one_step(do) -> None:
    run = do("start", "shout", "--json").json["run_id"]
    events = do("events", run, "--path", "/say", "--json").json
    assert {event["path"] for event in events} == {"/say"}
    assert "[workflow]" not in do("logs", run, "--path", "/say").out


def test_commands_that_show_a_run(do) -> None:
    run = do("start", "shout", "--json").json["run_id"]
    done = do("status", run[:13])
    assert re.search(r"└─ ✓ say +loud +\(\d\.\ds\)", done.out)
    assert do("watch", run).out == "loud\n"
    events = do("events", run, "--after", "1", "--json").json
    assert [event["seq"] for event in events] == list(range(2, len(events) + 2))
    assert "workflow_completed" in do("events", run).out
    assert [line["text"] for line in do("logs", run, "--json").json][-1] == "[workflow] completed"
    for verb in "events", "logs":
        whole = do(verb, run, "--json").json
        lines = do(verb, run, "--json", "--follow", "--after", "1").out.splitlines()
        assert [json.loads(line) for line in lines] == [each for each in whole if each["seq"] > 1] != []
    told = do("status", "--json").json
    assert (told["server"], told["runs"]) == (False, {"completed": 1})
    assert do("gates").out == "No open gates.\n"


@pytest.mark.parametrize(
    "verb", ["watch", "status", "events", "logs", "approve", "pause", "stop", "retry", "skip", "fork"]
)
def test_an_unknown_run_is_one_clear_error(verb: str, do) -> None:
    done = do(verb, "gone")
    assert (done.code, done.out) == (2, "")
    assert done.err == "nerve: Workflow run 'gone' not found. See the list: nerve runs [not_found]\n"
    assert do(verb, "gone", "--json").json["error"]["code"] == "not_found"
    assert not Path(".nerve/nerve.db").exists()


@pytest.mark.parametrize("verb", ["status", "events", "logs", "watch", "pause", "stop", "fork", "approve"])
@pytest.mark.parametrize(("name", "said"), [("", "is empty"), ("x" * 999, "has more than 256 characters")])
def test_an_invalid_run_name_is_one_clear_error(verb: str, name: str, said: str, do) -> None:
    told = do(verb, name)
    assert (told.code, told.out) == (2, "")
    assert told.err == f"nerve: The name of the run {said}. See the list: nerve runs [bad_request]\n"


def test_an_out_of_range_number_is_reported_without_validator_jargon(do) -> None:
    assert do("start", "shout", "--label", "v1").code == 0
    assert do("events", "v1", "--after", "-1").err.startswith("nerve: events: 'after' is less than 0. ")


def test_a_gate_is_listed_with_workflow_age_and_answer_command(do) -> None:
    run = do("start", "asking", "--json").json["run_id"]
    [gate] = do("gates", "--json").json
    assert (gate["workflow"], gate["run_id"]) == ("asking", run)
    how = f"nerve answer {run} TEXT --gate {gate['gate_id']}"
    line = do("gates").out
    assert re.fullmatch(rf"⏸ colour of asking, open for \d+(\.\d)?s: Which colour\?  {how}\n", line)


def test_quiet_leaves_only_the_result(do) -> None:
    done = do("start", "shout", "--quiet")
    assert (done.out, done.err) == ("loud\n", "")


# -- facts, workflows, the rest ----------------------------------------------------------------


def test_facts_are_asserted_listed_and_retracted(do) -> None:
    assert do("assert", '(review "main.py" :by "ann")').out == '(review main.py :by "ann")\n'
    assert do("assert", '["review", "b.py"]', "--json").json["record"] == ["review", "b.py"]
    assert len(do("facts", "(review _ ...)", "--json").json) == 2
    assert do("signal", "go", '{"n": 1}', "--key", "k").out == "signal go sent\n"
    assert do("facts", "signal", "--json").json[0]["record"][1] == "go"
    assert do("retract", '["review", "b.py"]').out == "(review b.py)\n"
    assert "is not a pattern" in do("facts", "[]").err


@pytest.mark.requirement("S4-12")
def test_a_definition_stays_defined_and_its_run_is_found_by_its_label(do, project: Path) -> None:
    (project / "hi.lisp").write_text('(workflow hi (state start (action (log "hi"))))')
    assert do("workflow", "define", "hi.lisp").out == "hi defined\n"
    (project / "hi.lisp").unlink()
    assert "hi" in [each["id"] for each in do("workflow", "list", "--json").json["workflows"]]
    assert do("workflow", "start", "hi", "--label", "h1").code == 0
    assert do("workflow", "watch", "h1").code == 0
    assert do("show", "h").out.splitlines()[0].startswith("hi")
    assert do("check", "hi").out == "1 workflow, no problems\n"
    assert do("run", "hi", "--json").json["state"] == "completed"


def test_a_definition_keeps_the_prompts_next_to_its_file(do, project: Path) -> None:
    folder = project / "elsewhere"
    (folder / "steps").mkdir(parents=True)
    (folder / "steps/plan.md").write_text("Plan $ARGUMENTS")
    (folder / "chain.yaml").write_text("name: chain\ndescription: A chain.\nsteps:\n  - step: plan\n")
    done = do("workflow", "define", "elsewhere/chain.yaml")
    assert (done.out, done.err) == ("chain defined\n", "")
    shutil.rmtree(folder)
    assert do("check", "chain").out == "1 workflow, no problems\n"
    assert "Plan $ARGUMENTS" in do("show", "chain", "--json").out
    done = do("workflow", "list")
    assert "chain  A chain.\n  Steps: plan" in done.out
    assert "skipped" not in done.err


def test_a_refused_definition_is_reported_with_its_file(do, project: Path) -> None:
    (project / "hi.lisp").write_text('(workflow "hi there" (state start (log "hi")))')
    assert do("workflow", "define", "hi.lisp").code == 0
    (project / "ho.lisp").write_text('(workflow "hi  There" (state start (log "ho")))')
    done = do("workflow", "define", "ho.lisp")
    assert done.code == 2
    assert "ho.lisp:1:" in done.err


def test_a_bad_definition_is_reported_with_its_location(do, project: Path) -> None:
    (project / "bad.yaml").write_text("name: bad\nbody: {kind: nothing}\n")
    done = do("workflow", "define", "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert "bad.yaml:2:" in done.err


def test_workflows_are_listed_with_their_steps_and_invalid_files(do, project: Path) -> None:
    done = do("workflow", "list")
    assert "shout  Says it loudly\n  Steps: say\n" in done.out
    assert do("workflow", "reload").out == "Reloaded 4 workflow(s).\n"
    (project / ".nerve/workflows/broken.json").write_text("{")
    done = do("workflow", "reload")
    assert (done.code, done.out) == (1, "Reloaded 4 workflow(s).\n")
    assert "broken.json:1:" in done.err
    (project / ".nerve/workflows/broken.json").write_text('{"name": "b", "body": {"kind": "gatee"}}')
    told = "broken.json:1:32: Unknown kind 'gatee'. Did you mean 'gate'?"
    for verb in ("reload", "list"):
        assert told in do("workflow", verb).err


def test_a_text_is_routed(do) -> None:
    done = do("route", "shout", "--json")
    assert done.code == 0
    assert done.json["kind"] in ("workflow", "conversation", "question")


@pytest.mark.parametrize("start", [[], ["--start"]])
def test_a_router_question_is_printed_with_start_commands_and_reason(start: list[str], do) -> None:
    done = do("route", "says another", *start)
    assert done.code == 0
    first, *ways = done.out.splitlines()
    assert first.startswith(
        "question  No agent decided, and several match about equally well. Which workflow"
    )
    assert ways == ["nerve start parent 'says another'", "nerve start shout 'says another'"]
    assert "decided offline, by words: 'parent' has 1" in done.err
    assert "several match about equally well" in done.err
    assert "shout  shout loudly\n" in do("route", "shout loudly").out


def test_a_new_project_runs_without_changes(do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert do("init", "fresh", "--json").json["written"][0] == ".nerve/config.json"
    monkeypatch.chdir(tmp_path / "fresh")
    assert do("init").out == "The project already exists.\n"
    assert do("check").out == "1 workflow, no problems\n"
    done = do("run", "greet", "Ann", "--answer", "well=yes")
    assert (done.code, done.out.splitlines()[0]) == (
        0,
        "This is in the folder:",
    )
    for notation in ("yaml", "json", "lisp"):
        done = do("new", f"next-{notation}", "--to", notation)
        assert done.out == f".nerve/workflows/next-{notation}.{notation}\n"
    assert do("check").out == "4 workflows, no problems\n"
    assert "already exists" in do("new", "next-yaml").err
    assert "Invalid workflow name" in do("new", "../up").err


def test_turns_of_unknown_cost_are_not_reported_as_zero_cost(do, project: Path) -> None:
    (project / ".nerve/config.json").write_text(
        '{"providers": {"robot": {"kind": "scripted", "answers": ["done"]}}}'
    )
    (project / "ask.yaml").write_text("name: ask\nprovider: robot\nbody: {kind: prompt, text: x}\n")
    assert "today: nothing spent\n" in do("status").out
    assert do("run", "ask.yaml").code == 0
    assert "today: 1 turn of unknown cost\n" in do("status").out


def test_the_doctor_reports_missing_and_wrong_items(do, project: Path) -> None:
    done = do("doctor", "--json")
    found = {each["name"]: each for each in done.json["findings"]}
    assert (done.code, done.json["ok"]) == (0, True)
    assert (found["store"]["state"], found["server"]["fix"]) == ("missing", "nerve serve")
    assert found["workflows"]["told"] == "asking, parent, ship, shout"
    assert do("doctor", "--quiet").out == "No problems found.\n"
    (project / ".nerve/config.json").write_text('{"providers": {"me": {"kind": "claud"}}}')
    done = do("doctor", "--quiet")
    assert done.code == 1
    assert "✗ provider me: Unknown provider 'claud'" in done.out
    (project / ".nerve/config.json").write_text("{")
    assert "✗ configuration: .nerve/config.json:1" in do("doctor").out


def test_schemas_and_version_as_json(do) -> None:
    assert json.loads(do("schema").out)["title"] == "A Nerve workflow, full form"
    assert json.loads(do("schema", "openapi").out)["openapi"].startswith("3.1")
    assert set(json.loads(do("schema", "start").out)) == {"asks", "tells"}
    assert "Unknown schema 'x'. Available: workflow, " in do("schema", "x").err
    assert set(do("version", "--json").json) == {"nerve", "python", "platform"}


def test_completion_is_generated_for_every_shell() -> None:
    for shell in ("bash", "zsh", "fish"):
        script = app.generate_completion(shell=shell)
        assert "approve" in script


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓\n\t", "plain ✓\n\t"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb", "aU+202Eb"),
        ("a\u200bb\r", "aU+200Bb\\x0d"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("\x9b", "\\x9b"),
    ],
)
def test_untrusted_text_cannot_move_the_cursor_or_reverse_a_line(text: str, shown: str) -> None:
    assert sanitize_text(text) == shown


# -- old runs ----------------------------------------------------------------------------------


def test_gc_lists_old_runs_and_deletes_them_with_yes(project: Path, do) -> None:
    assert do("start", "shout").code == 0
    [run] = do("runs", "--json").json
    assert do("gc").out == "No old runs.\n"
    with closing(SqliteStore(project / ".nerve/nerve.db")) as store:
        row = store.run(run["run_id"])
        assert row is not None
        head = store.events(row.run)[-1].seq
        old = row._replace(ended=row.ended - 40 * 86_400)  # type: ignore[operator]
        event = EventRow(head + 1, row.ended or 0.0, "log", "", None, "{}")
        store.append([Append(row.run, head, [event], old)])
    done = do("gc")
    assert run["run_id"] in done.out
    assert "1 runs would be deleted" in done.out
    assert done.err == "Nothing was changed. To delete, add --yes\n"
    assert do("gc", "--json").json["runs"] == 1
    assert do("gc", "--older-than", "8w", "--yes").out == "No old runs.\n"
    assert "1 runs deleted" in do("gc", "--yes", "--quiet").out
    assert do("runs", "--json").json == []


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1y", "1h"])
def test_gc_refuses_invalid_and_too_short_durations(text: str, do) -> None:
    for option in ("--older-than", "--output-older-than"):
        done = do("gc", f"{option}={'-1h' if option != '--older-than' and text == '1h' else text}")
        assert (done.code, f"{option} " in done.err, "older_than" in done.err) == (2, True, False)


def test_a_paused_run_with_a_gate_is_reported_as_paused(do) -> None:
    do("start", "asking", "--label", "a")
    do("pause", "a")
    done = do("watch", "a")
    assert (done.code, "is paused" in done.err) == (4, True)
    assert "waits" not in done.err
    assert "at gate 'colour': Which colour?" in done.err


def test_gates_and_workflows_are_found_by_prefix(do, project: Path) -> None:
    do("start", "ship", "it", "--count=1", "--label", "v", "--with", "nodes.py")
    assert do("approve", "v", "--gate", "app", "--with", "nodes.py").code == 0
    do("run", "shout")
    assert [run["workflow"] for run in do("runs", "--workflow", "shi", "--json").json] == ["ship"]
    done = do("runs", "--workflow", "sh")
    assert (done.code, "'sh' is ambiguous: ship, shout" in done.err) == (2, True)
    assert do("runs", "--workflow", "sh", "--json").json["error"]["code"] == "conflict"
    assert do("runs", "--workflow", "nothing").out == "No runs.\n"
    assert "is not a file" in do("runs", "--store", str(project)).err


@pytest.mark.parametrize("verb", ["status", "logs", "events", "watch"])
def test_the_name_of_a_workflow_means_its_newest_run(verb: str, do, project: Path) -> None:
    do("start", "shout", "--label", "first")
    do("start", "shout", "--label", "second")
    newest = do("status", "second", "--json").json["run_id"]
    assert do("status", "shout", "--json").json["run_id"] == newest
    assert do(verb, "shout").code == 0
    missing = do(verb, "shot")
    assert (missing.code, "'shot' not found" in missing.err) == (2, True)


def test_a_misspelled_option_is_not_treated_as_an_input(do, project: Path) -> None:
    done = do("run", "shout", "--anwser=x=y")
    assert (done.code, "Did you mean 'answer'?" in done.err) == (2, True)


def test_shell_completion_offers_workflows_runs_labels_and_states(do, project: Path) -> None:
    do("start", "asking", "--label", "blue")
    assert "shout\tSays it loudly\n" in do("__complete", "run", "").out
    assert "shout" not in do("__complete", "run", "ship", "").out
    assert "blue\tasking, waiting\n" in do("__complete", "status", "").out
    assert "waiting\n" in do("__complete", "runs", "--state", "").out


@pytest.mark.parametrize("verb", ["run", "start", "show", "check"])
def test_the_bash_script_completes_the_names_of_workflows(verb: str, project: Path) -> None:
    script = f"""
        {app.generate_completion(shell="bash")}
        COMP_WORDS=({Path(sys.executable).parent}/nerve {verb} sho) COMP_CWORD=2
        _nerve
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=project, capture_output=True, text=True, timeout=60)
    assert done.stdout == "shout\n", done.stderr


def test_shell_completion_of_an_unreadable_project_offers_nothing(do, project: Path) -> None:
    (project / ".nerve/nerve.db").mkdir()
    done = do("__complete", "status", "")
    assert (done.code, done.err) == (0, "")
