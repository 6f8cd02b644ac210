"""`nerve resume` and `nerve runs`: coming back to runs."""

import json
import re
import signal
import time

import pytest

from nerve_processes import Process


def run_of(said) -> str:
    return said.err.split("Resume with: nerve resume ")[1].split()[0]


def test_a_run_is_found_by_a_prefix_of_its_id(do) -> None:
    run = run_of(do("run", "asking"))
    assert do("resume", run[:13], "--answer", "colour=red").out == "red\n"


@pytest.mark.parametrize("way", [(), ("--with-changes",)])
def test_an_answer_to_an_unknown_gate_is_refused_before_the_run_resumes(way, do) -> None:
    run = run_of(do("run", "asking"))
    done = do("resume", run, *way, "--answer", "color=red")
    assert (done.code, done.out) == (2, "")
    assert "unknown gate 'color'. Did you mean 'colour'? Gates: colour." in done.err
    assert do("resume", run, "--answer", "colour=red").out == "red\n"


def test_resuming_a_finished_run_prints_its_result_again(do) -> None:
    run = do("run", "shout", "--json").json["run_id"]
    done = do("resume", run)
    assert (done.code, done.out) == (0, "loud\n")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("nothing", "Workflow run 'nothing' not found. See the list: nerve runs"),
        ("", "The name of the run is empty"),
        ("0", "'0' is ambiguous: "),
    ],
)
def test_a_run_name_must_match_exactly_one_run(run, message, do) -> None:
    do("run", "shout")
    do("run", "shout")
    done = do("resume", run)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_resume_without_a_store_reports_run_not_found(do, project) -> None:
    done = do("resume", "x")
    assert (done.code, done.err) == (
        2,
        "nerve: Run 'x' not found: .nerve/nerve.db does not exist. See: nerve resume --help\n",
    )
    assert not (project / ".nerve/nerve.db").exists()


def test_a_run_resumes_with_its_original_definition_after_the_file_changed(do, project) -> None:
    run = run_of(do("run", "asking"))
    file = project / ".nerve/workflows/asking.yaml"
    file.write_text(file.read_text() + "    - {kind: transform, expression: \"'new ' + given\"}\n")
    assert do("resume", run, "--answer", "colour=red").out == "red\n"


def test_with_changes_resumes_with_the_current_file(do, project) -> None:
    run = run_of(do("run", "asking"))
    file = project / ".nerve/workflows/asking.yaml"
    file.write_text(file.read_text() + "    - {kind: transform, expression: \"'new ' + given\"}\n")
    assert do("resume", run, "--with-changes", "--answer", "colour=red").out == "new red\n"


def test_a_run_of_a_python_workflow_needs_its_file(do) -> None:
    run = run_of(do("run", "flows.py:greet"))
    done = do("resume", run)
    assert done.code == 2
    assert "'greet'" in done.err
    assert "Name the file with its code: --with flows.py" in done.err
    assert do("resume", run, "--with", "flows.py", "--answer", "gate=Bob").out == "Bob {}\n"


def test_a_run_with_a_missing_agent_is_not_changed(do) -> None:
    run = run_of(do("run", "ship", "hello", "--count=3", "--with", "nodes.py"))
    before = listed(do)
    for options in ([], ["--with-changes"]):
        done = do("resume", run, *options, "--answer", "approve=yes")
        assert (done.code, done.out) == (2, "")
        assert ":13:46: Agent not found: notifier." in done.err
        assert "--with FILE" in done.err
        assert listed(do) == before
    done = do("resume", run, "--with", "nodes.py", "--answer", "approve=yes")
    assert (done.code, json.loads(done.out)["said"]) == (0, "told hello")


def test_a_finished_run_needs_no_agent(do) -> None:
    run = do("run", "ship", "hello", "--count=3", "--with", "nodes.py", "--answer", "approve=yes", "--json")
    assert do("resume", run.json["run_id"]).code == 0


def test_a_held_run_is_exit_code_4_and_prints_the_resume_command(do, project) -> None:
    flow = project / "flow.py"
    text = "def register(s):\n    @s.workflow\n    async def f(ctx):\n        return await ctx.gate('A?')\n"
    flow.write_text(text)
    run = run_of(do("run", "flow.py"))
    flow.write_text(text.replace("'A?'", "'B?'"))
    done = do("resume", run, "--with", "flow.py", "--answer", "gate=x")
    assert done.code == 4
    assert "is held (mismatch)" in done.err
    assert done.err.rstrip().endswith(f"nerve resume {run} --with flow.py --with-changes")
    done = do("resume", run, "--with", "flow.py", "--with-changes", "--answer", "gate=y")
    assert (done.code, done.out) == (0, "y\n")


def test_a_run_resumes_without_its_file_and_finds_called_workflows(do, project) -> None:
    steps = "{kind: gate, id: ask, prompt: A?}, {kind: workflow, id: w, workflow: shout}"
    (project / "here.yaml").write_text(
        f"name: here\ndescription: d\nbody: {{kind: sequence, steps: [{steps}]}}\n"
    )
    run = run_of(do("run", "here.yaml"))
    (project / "here.yaml").unlink()
    assert do("resume", run, "--answer", "ask=x").out == "loud\n"
    assert "Add its file: --with FILE" in do("resume", run, "--with-changes").err


def test_a_run_in_doubt_stays_held(do, project) -> None:
    (project / "once.yaml").write_text(
        "name: once\ndescription: d\n"
        "body: {kind: bash, id: pay, command: 'touch begun; sleep 60', effect: once}\n"
    )
    process = Process("run", "once.yaml")
    deadline = time.monotonic() + 30
    while not (project / "begun").exists():
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for _ in range(2):
        done = do("resume", listed(do)[0]["run_id"])
        assert done.code == 4
        assert 'is held (in doubt): /pay has effect="once"' in done.err


def test_a_killed_run_resumes_where_it_stopped(do, project) -> None:
    (project / "slow.yaml").write_text(
        "name: slow\ndescription: d\nbody: {kind: sequence, steps: ["
        "{kind: bash, id: one, command: 'echo one >> effects'},"
        "{kind: bash, id: two, command: 'test -e go || sleep 60; echo done'}]}\n"
    )
    process = Process("run", "slow.yaml")
    while "[one]" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (project / "go").touch()
    [run] = listed(do)
    told = do("watch", run["run_id"])
    assert (told.code, f"⏸ run {run['run_id']} is parked" in told.err) == (4, True)
    states = [
        run["state"],
        *(do(verb, run["run_id"], "--json").json["state"] for verb in ("watch", "status")),
    ]
    assert states == ["parked"] * 3
    assert do("status", "--json").json["runs"] == {"parked": 1}
    done = do("resume", listed(do)[0]["run_id"])
    assert (done.code, done.out) == (0, "done\n")
    assert "[one]" not in done.err
    assert (project / "effects").read_text() == "one\n"


def listed(do) -> list[dict]:
    return json.loads(do("runs", "--json").out)


def test_runs_are_listed_with_the_newest_last(do) -> None:
    assert do("runs").out == "No runs yet. Start one with: nerve run TARGET\n"
    do("run", "shout")
    do("run", "asking")
    do("run", "parent")
    assert [(run["workflow"], run["state"]) for run in listed(do)] == [
        ("shout", "completed"),
        ("asking", "waiting"),
        ("parent", "waiting"),
    ]
    lines = do("runs").out.splitlines()
    assert lines[0].split() == ["run", "workflow", "state", "started", "took"]
    assert lines[1].split()[1:4] == ["shout", "✓", "completed"]
    assert lines[2].endswith(' for gate "Which colour?"')
    assert re.search(r' for child run \S+ \(for gate "Which colour\?"\)$', lines[3])


def test_only_the_newest_runs_are_listed_unless_all_are_requested(do, monkeypatch) -> None:
    monkeypatch.setattr("nerve.cli.runs.MAX_LISTED_RUNS", 2)
    monkeypatch.setattr("nerve.cli.runs.RUNS_PER_PAGE", 2)
    for label in "abc":
        do("run", "shout", "--label", label)
    newest = do("runs", "--json")
    assert [run["label"] for run in newest.json] == ["b", "c"]
    assert newest.err == "The 2 newest runs. To list all: nerve runs --all\n"
    assert [run["label"] for run in do("runs", "--all", "--json").json] == ["a", "b", "c"]


def test_runs_are_filtered_by_state_and_workflow(do) -> None:
    do("run", "shout")
    do("run", "asking")
    assert [run["workflow"] for run in json.loads(do("runs", "--state", "waiting", "--json").out)] == [
        "asking"
    ]
    assert [run["workflow"] for run in json.loads(do("runs", "--workflow", "shout", "--json").out)] == [
        "shout"
    ]
    assert do("runs", "--state", "held").out == "No runs.\n"
    done = do("runs", "--state", "wating")
    assert (done.code, done.out) == (2, "")
    assert "Unknown state 'wating'. Did you mean 'waiting'? States: " in done.err


def test_runs_are_found_by_tag_label_start_and_text(do) -> None:
    do("run", "shout", "--tag", "customer=42", "--tag", "stage=done", "--label", "first")
    do("run", "asking", "--tag", "customer=42")
    do("run", "shout", "--tag", "customer=7")

    def found(*options: str) -> list[str]:
        return [run["workflow"] + run["tags"]["customer"] for run in do("runs", *options, "--json").json]

    assert found("--tag", "customer=42") == ["shout42", "asking42"]
    assert found("--tag", "customer=42", "--tag", "stage=done") == ["shout42"]
    assert found("--tag", "customer=42", "--state", "waiting") == ["asking42"]
    assert found("--label", "first") == ["shout42"]
    assert found("--since", "2d", "--workflow", "shout") == ["shout42", "shout7"]
    assert found("--since", "2020-01-01", "--search", "CUSTOMER=4") == ["shout42", "asking42"]
    assert found("--search", "asking") == ["asking42"]
    assert do("runs", "--tag", "customer=8").out == "No runs.\n"
    run = do("runs", "--label", "first", "--json").json[0]["run_id"]
    assert "tags: customer=42 stage=done" in do("status", run).out.splitlines()[1:3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tag", "custmer=42"], "Unknown tag 'custmer'. Did you mean 'customer'?"),
        (["--tag", "zzz=42"], "Unknown tag 'zzz'. Known: customer."),
        (["--tag", "customer"], "A tag must have the form name=value, got 'customer'"),
        (["--since", "2x"], "since must be a period or a date, got '2x'. Use a period such as 30s"),
        (["--state", "wating"], "Unknown state 'wating'. Did you mean 'waiting'? States: "),
        (["--patch", "fraud-check"], "Unknown patch 'fraud-check'. No run has a patch."),
    ],
)
def test_a_wrong_filter_of_runs_is_one_clear_error(do, options, message) -> None:
    do("run", "shout", "--tag", "customer=42")
    done = do("runs", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_wrong_tag_starts_no_run(do) -> None:
    done = do("run", "shout", "--tag", "customer")
    problem = "nerve: --tag: A tag must have the form name=value, got 'customer'."
    assert (done.code, done.err) == (2, f"{problem} See: nerve run --help\n")
    assert do("runs", "--json").json == []
