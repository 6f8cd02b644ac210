"""`nerve run`: inputs, answers, outcomes and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nerve.agents import Unavailable
from nerve.session import Session
from nerve_processes import Process

READY = ("--with", "nodes.py", "--count=3")


def test_a_workflow_of_the_project_runs_and_prints_its_result(do, project) -> None:
    done = do("run", "ship", "hello", *READY, "--answer", "approve=yes", "--dry", "--dev-tags=[1, 2]")
    assert done.code == 0
    assert json.loads(done.out) == {
        "inputs": {"count": 3, "dry": True, "dev_tags": [1, 2], "label": "none", "level": "low"},
        "said": "told hello",
    }
    assert "[build] ✓ built 3" in done.err
    assert "completed" in done.err
    assert (project / ".nerve/nerve.db").is_file()


@pytest.mark.requirement("S3-22")
def test_progress_names_the_step_and_its_agent(do, project) -> None:
    (project / "two.yaml").write_text(
        "name: two\ndescription: d\nprovider: notifier\n"
        "nodes: [{id: plan, prompt: Plan it}, {id: build, bash: echo built, depends_on: [plan]}]\n"
    )
    done = do("run", "two.yaml", "--with", "nodes.py")
    assert "[plan] ✓ told Plan it (notifier, " in done.err
    assert "[build] ✓ built (0." in done.err


def test_a_file_runs_and_a_text_result_is_printed_unchanged(do, project) -> None:
    (project / "hello.lisp").write_text('(workflow hello (state start (action (log "hi"))) )')
    assert do("run", ".nerve/workflows/shout.yaml").out == "loud\n"
    assert do("run", "shout").code == 0


def test_the_outcome_as_one_json_object(do) -> None:
    done = do("run", "ship", "hello", *READY, "--answer", "approve=yes", "--json")
    told = done.json
    assert (done.code, told["workflow"], told["state"], told["gates"]) == (0, "ship", "completed", [])
    assert told["result"]["said"] == "told hello"
    assert len(told["run_id"]) == 36


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument: a workflow or a file to run"),
        (
            ["run", "ship"],
            "'ship' requires --count (integer). Options: --count (integer, required), --dry",
        ),
        (["run", "ship", "--count=many"], "--count must be an integer, got 'many'"),
        (["run", "ship", "--count=1.5"], "--count must be an integer, got '1.5'"),
        (["run", "ship", "--count"], "--count requires an integer: write --count=value"),
        (["run", "ship", "--count=1", "--dry=maybe"], "--dry must be true or false, got 'maybe'"),
        (["run", "ship", "--count=1", "--dev-tags={}"], "--dev-tags must be a JSON list, got '{}'"),
        (["run", "ship", "--count=1", "--level=mid"], "--level must be one of low, high, got 'mid'"),
        (
            ["run", "ship", "--cuont=1"],
            "'ship' has no option 'cuont'. Did you mean 'count'? Options:",
        ),
        (["run", "shout", "\udcff"], "The input is not valid UTF-8"),
        (["run", "ship", "--count=1", "--level=\udcff"], "The input is not valid UTF-8"),
        (["run", "ship", "--count=1", "--count=2"], "Input 'count' is given twice"),
        (["run", "ship", "a", "b"], "Unexpected argument: b. Quote an input that contains spaces."),
        (["run", "shout", "a", "--wiht", "b"], "'shout' has no option 'wiht'. Did you mean 'with'?"),
        (
            ["run", "shout", "--x=1"],
            "'shout' has no option 'x'. The workflow has no options.",
        ),
        (["run", "shot"], "File or workflow 'shot' not found. Did you mean 'shout'? Workflows: "),
        (["run", "sh"], "'sh' is ambiguous: ship, shout. Use a longer prefix."),
        (["run", "gone.json"], "File not found: gone.json. See"),
        (["run", "float.py"], "File not found: float.py. See"),
        (["run", "tea.yml"], "File not found: tea.yml. Did you mean 'tea.yaml'? See"),
        (["run", "dir.yaml"], "dir.yaml is a folder. Name a file in it. See"),
        (["run", "dir.yml"], "File not found: dir.yml. See"),
        (["run", "tools"], "tools is a folder. Name a file in it. See"),
        (["run", "shout", "--with", "tools"], "tools is a folder. Name a file in it. See"),
        (["run", "gone.py"], "File not found: gone.py."),
        (
            ["run", "flows.py"],
            "Select a workflow of the file: flows.py:NAME. It registers greet, fail.",
        ),
        (["run", "flows.py:gret"], "Workflow 'gret' not found in flows.py. It registers: greet, fail."),
        (["run", "ship", "--count=1", "--answer", "yes"], "--answer must be GATE=TEXT, got 'yes'"),
        (["run", "ship", *READY, "--answer", "aprove=yes"], "unknown gate 'aprove'. Did you mean 'approve'?"),
        (["run", "ship", *READY, "--answer", "approve=ok"], "the answer must be yes or no, got 'ok'"),
    ],
)
def test_invalid_arguments_are_one_line_before_anything_starts(arguments, message, do, project) -> None:
    (project / "tea.yaml").touch()
    (project / "dir.yaml").mkdir()
    (project / "tools").mkdir()
    done = do(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("nerve: ")
    assert done.err.count("\n") == 1
    assert not (project / ".nerve/nerve.db").exists()
    assert not (project / "effects").exists()


def test_a_missing_agent_is_reported_with_its_location(do, project) -> None:
    done = do("run", "ship", "--count=3")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(".nerve/workflows/ship.json:13:46: Agent not found: notifier")
    assert not (project / ".nerve/nerve.db").exists()


def test_the_configuration_gives_the_answers_of_a_scripted_agent(do, project) -> None:
    (project / ".nerve/config.json").write_text(
        '{"providers": {"robot": {"kind": "scripted", "answers": {"Plan": "one, two", ".": "what?"}}}}'
    )
    (project / "plan.yaml").write_text(
        "name: plan\ndescription: d\nprovider: robot\nnodes: [{id: p, prompt: Plan}]\n"
    )
    assert do("run", "plan.yaml").out == "one, two\n"
    assert "✓ provider robot: configured, kind scripted" in do("doctor").out


def test_a_refusal_is_one_json_object_too(do) -> None:
    done = do("run", "ship", "--count=3", "--json")
    assert done.code == 2
    assert done.json["error"]["code"] == "refused"
    assert done.json["error"]["fix"]
    assert done.json["error"]["details"]["problems"][0]["line"] == 13


def test_inputs_can_have_option_names_and_two_hyphens_end_the_options(do) -> None:
    done = do("run", "ship", *READY, "--input", "label=x", "--answer", "approve=yes", "--", "--json")
    assert json.loads(done.out)["inputs"]["label"] == "x"
    assert json.loads(done.out)["said"] == "told --json"


def test_without_an_answer_the_run_waits_and_prints_the_resume_command(do, project) -> None:
    done = do("run", "ship", "hello", *READY)
    assert (done.code, done.out) == (4, "")
    assert "at gate 'approve': Ship it? (yes or no)" in done.err
    again = done.err.split("Resume with: nerve ")[1].split()
    assert again[2:] == ["--with", "nodes.py", "--answer", "approve=yes"]
    after = do(*again)
    assert after.code == 0
    assert json.loads(after.out)["said"] == "told hello"
    assert (project / "effects").read_text() == "built\n"


def test_a_waiting_run_as_json_names_its_gates(do) -> None:
    done = do("run", "ship", *READY, "--json")
    assert done.code == 4
    assert done.json["state"] == "waiting"
    assert [(gate["name"], gate["choices"]) for gate in done.json["gates"]] == [("approve", ["yes", "no"])]


def test_a_rejection_is_exit_code_3_and_a_failure_1(do) -> None:
    done = do("run", "ship", *READY, "--answer", "approve=no")
    assert (done.code, done.out) == (3, "")
    assert "was cancelled: rejected: no" in done.err
    done = do("run", "flows.py:fail", "--json")
    assert (done.code, done.json["state"], done.json["error"]) == (1, "failed", "no luck")


@pytest.mark.requirement("S1-16")
def test_a_python_file_registers_its_workflows_and_accepts_any_input(do) -> None:
    done = do("run", "flows.py:greet", "--n=3", "--name=x", "--answer", "gate=Ann", "--json")
    assert done.json["result"] == "Ann {'n': 3, 'name': 'x'}"
    assert "noise" in done.err


def test_a_failing_python_file_is_reported_with_its_line(do, project) -> None:
    (project / "bad.py").write_text("import os\nraise OSError('no luck')\n")
    (project / "worse.py").write_text("import os\ndef (\n")
    (project / "empty.py").write_text("")
    assert do("run", "bad.py").err.startswith("nerve: bad.py:2: OSError: no luck.")
    assert ":2: SyntaxError" in do("run", "worse.py").err
    assert "empty.py does not define register(session)" in do("run", "empty.py").err


def test_repeated_answers_are_used_in_order(do, project) -> None:
    (project / "twice.yaml").write_text(
        "name: twice\ndescription: d\nbody: {kind: loop, times: 2, accumulate: false,"
        " body: {kind: gate, id: ask, prompt: 'Again?'}}\n"
    )
    done = do("run", "twice.yaml", "--answer", "ask=one", "--answer", "ask=two")
    assert (done.code, done.out) == (0, "two\n")
    assert do("run", "twice.yaml", "--answer", "ask=one").code == 4


def test_gates_of_child_runs_are_answered_and_shown(do) -> None:
    done = do("run", "parent", "--answer", "colour=red")
    assert (done.code, done.out) == (0, "child said red\n")
    done = do("run", "parent")
    assert done.code == 4
    assert "at gate 'colour': Which colour?" in done.err
    assert (
        do(*done.err.split("Resume with: nerve ")[1].replace("TEXT", "blue").split()).out
        == "child said blue\n"
    )


@pytest.mark.parametrize(
    ("provider", "asked", "answer", "said"),
    [
        ("careful", "plan (careful) wants to use Bash", "allow", "made"),
        ("curious", "Which one?", "this", "it is this"),
    ],
)
def test_a_gate_opened_by_an_agent_waits_and_can_be_answered(
    provider, asked, answer, said, do, project
) -> None:
    text = (project / "plan.yaml").read_text().replace("careful", provider)
    (project / "plan.yaml").write_text(text)
    done = do("run", "plan.yaml", "--with", "careful.py")
    assert (done.code, done.out) == (4, "")
    assert f"at gate 'plan': {provider}" in done.err or "at gate 'plan': plan" in done.err
    assert asked in done.err
    again = done.err.split("Resume with: nerve ")[1].replace("TEXT", answer).split()
    assert again[-2:] == ["--answer", f"plan={answer}"]
    assert do(*again).out == f"{said}\n"
    done = do("run", "plan.yaml", "--with", "careful.py", "--answer", f"plan={answer}")
    assert (done.code, done.out) == (0, f"{said}\n")
    assert do("start", "plan.yaml", "--with", "careful.py", "--answer", f"plan={answer}").code == 0
    assert do("run", "plan.yaml", "--with", "careful.py", "--answer", "pln=x").code == 2


def test_an_awaited_signal_can_be_sent_with_answer(do, project) -> None:
    (project / "wait.yaml").write_text(
        "name: waiting\ndescription: d\n"
        "body: {kind: wait, id: go, any: [{signal: start/now, key: '{{ run.label }}'}]}\n"
    )
    done = do("run", "wait.yaml", "--label", "f42")
    assert done.code == 4
    assert "for signal 'start/now' with key 'f42'" in done.err
    again = done.err.split("Resume with: nerve ")[1].replace("TEXT", "green").split()
    assert do(*again).out == "green\n"


def test_a_key_starts_one_run(do, project) -> None:
    first = do("run", "shout", "--key", "k", "--json").json
    second = do("run", "shout", "--key", "k", "--json").json
    assert first == second
    assert do("run", "asking", "--key", "k").err.startswith("nerve: Key 'k' belongs to run")


def test_the_resume_command_names_another_store(do, project) -> None:
    done = do("run", "asking", "--store", "other.db")
    assert done.err.rstrip().endswith("--store other.db --answer colour=TEXT")
    assert (project / "other.db").is_file()
    assert not (project / ".nerve/nerve.db").exists()


def test_a_disabled_workflow_is_not_run_by_name(do, project) -> None:
    (project / ".nerve/config.json").write_text('{"workflows": {"shout": {"enabled": false}}}')
    done = do("run", "shout")
    assert (done.code, done.out) == (2, "")
    assert "workflow 'shout' is disabled in .nerve/config.json" in done.err


@pytest.mark.requirement("S2-22")
@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('{"workflows": {"asking": {"visible_to": ["plan"]}}}', "workflow 'asking' is visible only to plan"),
        (
            '{"workflows": {"asking": {"visible_to": []}}}',
            "workflow 'asking' is visible to no other workflow",
        ),
        ('{"workflows": {"asking": {"enabled": false}}}', "workflow 'asking' is disabled in"),
    ],
)
def test_a_workflow_calls_only_visible_workflows(config, why, do, project) -> None:
    (project / ".nerve/config.json").write_text(config)
    for verb in ("check", "run"):
        done = do(verb, "parent")
        assert done.code == (1 if verb == "check" else 2)
        assert f".nerve/workflows/parent.yaml:6:45: {why}" in done.out + done.err
    assert not (project / ".nerve/nerve.db").exists()


def test_a_workflow_listed_in_visible_to_may_call(do, project) -> None:
    (project / ".nerve/config.json").write_text('{"workflows": {"asking": {"visible_to": ["parent"]}}}')
    assert do("run", "parent", "--answer", "colour=red").out == "child said red\n"


@pytest.mark.parametrize("target", ["shout", ".nerve/workflows/shout.yaml"])
def test_a_disabled_project_runs_nothing(target, do, project) -> None:
    (project / ".nerve/config.json").write_text('{"enabled": false}')
    done = do("run", target)
    assert (done.code, done.out) == (2, "")
    assert "workflow 'shout' is disabled in .nerve/config.json" in done.err


def test_an_invalid_configuration_is_reported_with_its_location(do, project) -> None:
    (project / ".nerve/config.json").write_text('{"enabled": 1}')
    done = do("run", "shout")
    assert (done.code, done.err) == (2, ".nerve/config.json:1:13: enabled must be true or false\n")


def test_a_missing_provider_is_reported_with_the_install_command(do, project, monkeypatch) -> None:
    monkeypatch.setattr("nerve.agents.registry.installed_provider_names", list)
    (project / "ask.yaml").write_text("name: ask\ndescription: d\nbody: {kind: prompt, text: Hello}\n")
    assert do("check", "ask.yaml").out == "1 workflow, no problems\n"
    done = do("run", "ask.yaml")
    assert (done.code, done.err) == (
        2,
        "ask.yaml:3:7: Agent not found: claude. Install it: pip install '.[claude]' in the clone of Nerve.\n",
    )


def test_a_provider_that_cannot_be_created_reports_the_reason(do, project, monkeypatch) -> None:
    def make(name, settings):
        raise Unavailable(
            "codex is not installed: pip install '.[codex]' in the clone of Nerve, or put codex on the PATH"
        )

    monkeypatch.setattr("nerve.agents.registry.installed_provider_names", lambda: ["codex"])
    monkeypatch.setattr("nerve.agents.registry.create_provider", make)
    (project / "ask.yaml").write_text(
        "name: ask\ndescription: d\nprovider: codex\nbody: {kind: prompt, text: Hello}\n"
    )
    done = do("run", "ask.yaml")
    assert done.code == 2
    assert (
        "Agent not found: codex. codex is not installed: pip install '.[codex]' in the clone of Nerve"
        in done.err
    )


def test_log_lines_of_a_workflow_are_shown_while_it_runs(do, project) -> None:
    assert do("new", "greeting", "--to", "lisp").code == 0
    done = do("run", "greeting")
    assert (done.code, "[start] hello\n" in done.err) == (0, True)


def test_a_store_owned_by_another_process_is_reported(do, project) -> None:
    code = "import sys, nerve; nerve.Session(store='.nerve/nerve.db').engine; print(); sys.stdin.read()"
    # Unbuffered, because the test waits for the line.
    owner = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        owner.stdout.readline()
        for arguments in (["run", "shout"], ["runs"]):
            done = do(*arguments)
            assert (done.code, done.out) == (1, "")
            assert f".nerve/nerve.db is in use by process {owner.pid}. Stop it" in done.err
            assert "run a server: nerve serve" in done.err
            assert json.loads(do(*arguments, "--json").out)["error"]["code"] == "busy"
            assert done.err.count("\n") == 1
    finally:
        owner.communicate()


def test_no_colour_and_no_escapes_in_a_pipe(nerve, project) -> None:
    os.chdir(project)
    done = nerve("run", "shout")
    assert (done.returncode, done.stdout) == (0, "loud\n")
    assert "\x1b" not in done.stderr
    assert nerve("run", "gone").returncode == 2


async def test_the_label_of_a_run_is_stored(do, project) -> None:
    import asyncio

    await asyncio.to_thread(do, "run", "shout", "--label", "first")
    async with Session(store=".nerve/nerve.db") as session:
        [row] = session.engine.store.runs()
        assert '"label":"first"' in session.engine.store.events(row.run)[0].data


@pytest.mark.parametrize("verb", ["run", "show", "check"])
def test_a_name_with_an_invalid_file_reports_the_problems_of_the_file(verb, do, project) -> None:
    (project / ".nerve/workflows/odd.yml").write_text(
        "name: travel\ndescription: d\nsteps:\n  - step: ../passwd\n"
    )
    done = do(verb, "travel")
    assert done.code in (1, 2)
    assert ".nerve/workflows/odd.yml:4:" in done.err + done.out
    other = do(verb, "nothing")
    assert other.code == 2
    assert "Invalid files: .nerve/workflows/odd.yml. To see the problems: nerve check." in other.err


@pytest.mark.parametrize("verb", ["run", "start"])
def test_an_interrupted_run_is_reported_as_parked(verb: str, do, project) -> None:
    (project / "slow.yaml").write_text(
        "name: slow\nbody: {kind: bash, id: work, command: 'while [ ! -e go ]; do sleep 0.05; done'}\n"
    )
    process = Process(verb, "slow.yaml", "--json")
    while "started" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.wait(), json.loads(out)["state"]) == (130, "parked")
    assert "The run is parked." in err
    assert do("runs", "--json").json[0]["state"] == "parked"


AGENT = """
from nerve.agents.provider import AssistantText, ThreadStarted, Capabilities, TurnFinished, ToolCall

class Worker:
    name = "worker"
    capabilities = Capabilities()

    async def query(self, prompt, cwd, resume, options):
        yield ThreadStarted("t")
        yield AssistantText("First I look\\naround.")
        yield ToolCall("Bash", {"command": "make test"}, "1")
        yield AssistantText("All tests pass.")
        yield TurnFinished("t")

def register(session):
    session.providers["worker"] = Worker()
"""


def test_agent_messages_and_tool_calls_are_printed_live_in_a_pipe(do, project: Path) -> None:
    (project / "worker.py").write_text(AGENT)
    (project / "work.yaml").write_text(
        "name: work\ndescription: Works\nprovider: worker\nnodes: [{id: go, prompt: Work}]\n"
    )
    done = do("run", "work.yaml", "--with", "worker.py")
    assert done.code == 0, done.err
    lines = [re.sub(r"\d+\.\d+s", "0.0s", line) for line in done.err.splitlines()[1:-1]]
    assert lines == [
        "[go] First I look around.",
        "[go] ⚒ Bash make test",
        "[go] ✓ All tests pass. (worker, 0.0s)",
    ]


TALKING = """
import logging

def register(session):
    @session.step
    def charge(card: str) -> str:
        print("charging", card)
        logging.getLogger("shop").info("card %s is valid", card)
        logging.getLogger("shop").warning("card %s expires", card)
        return "paid"

    @session.workflow
    async def pay(ctx) -> str:
        logging.getLogger("shop").info("not shown outside of steps")
        return await charge("42")
"""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_a_step_prints_and_logs_is_shown_but_not_mixed_with_the_result(
    do, project: Path, options: list[str]
) -> None:
    (project / "pay.py").write_text(TALKING)
    done = do("run", "pay", "--with", "pay.py", *options)
    assert done.out == "paid\n" if not options else done.json["result"] == "paid"
    shown = ["[charge] charging 42", "[charge] card 42 is valid", "[charge] warning: card 42 expires"]
    assert [line for line in done.err.splitlines() if " 42" in line] == shown
    assert "not shown" not in done.err
    run = do("runs", "--json").json[0]["run_id"]
    assert [line for line in do("logs", run).out.splitlines() if " 42" in line] == shown
    assert [line for line in do("watch", run).err.splitlines() if " 42" in line] == shown


CHAIN = """
def register(session):
    @session.step
    def add_one(number: int) -> int:
        return number + 1

    @session.workflow
    async def count(ctx, number: int = 0) -> int:
        for _ in range(2):
            number = await add_one(number)
            if number == 5:
                return number
        ctx.continue_as_new(number)
"""


def test_a_run_that_continues_as_new_is_followed_to_the_end_of_its_chain(do, project) -> None:
    (project / "count.py").write_text(CHAIN)
    done = do("run", "count", "--with", "count.py", "--label", "chain")
    assert (done.code, done.out.strip()) == (0, "5")
    assert done.err.count("[add_one] ✓") == 5
    assert done.err.count("[workflow] count started") == 1
    runs = do("runs", "--json").json
    first, middle, last = (run["run_id"] for run in runs)
    assert f"✓ run {last} completed" in done.err
    assert [run["continued_as"] for run in runs] == [middle, last, None]
    assert f"continued as {middle}" in do("runs").out
    status = do("status", middle).out
    assert f"completed and continued as {last}" in status
    assert f"continued from {first}" in status
    assert f"[workflow] continued as {middle}" in do("logs", first).out
    assert f"[workflow] count continued from {first}" in do("logs", middle).out
    assert do("watch", first).err.splitlines()[-1] == f"✓ run {first} continued as {middle}"
    assert do("status", "chain").out.splitlines()[0].startswith(f"count  {last}  completed")


def test_a_wrong_input_points_to_the_help_of_the_workflow(do, project) -> None:
    (project / "count.py").write_text(CHAIN)
    done = do("run", "count.py", "--number", "many")
    assert done.err == "nerve: --number must be an integer, got 'many'. See: nerve run count.py --help\n"
    assert "--number  integer" in do("run", "count.py", "--help").out
