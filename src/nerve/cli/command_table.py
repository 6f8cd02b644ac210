"""The table of verbs: each once, for the command line, its help and its tests. Listing them imports none."""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command: the function that does it, what it does, and an example."""

    import_path: str
    """As `module:function`."""
    help: str
    example: str


RUN_HELP = """Run a workflow in this process, and show it to its end.

TARGET is a workflow file, the name of a workflow of the project or the beginning of it, or a Python file
that has register(session), as FILE.py or FILE.py:NAME. INPUT is the text the run is given. Every
--name=value is an input that the workflow declares; what stands behind -- is no option.
"""
START_HELP = """Start a run in the server of this project.

Without a server, the run is executed in this process until it ends or waits.

TARGET, INPUT and --name=value are as in `nerve run`. With a server it prints the id of the run and returns.
"""
CLI_COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(
        "nerve.cli.run:run_workflow_command", RUN_HELP, "nerve run ship --number=3 --answer approve=yes"
    ),
    "start": CommandEntry(
        "nerve.cli.start:start_run_command", START_HELP, "nerve start ship --number=3 --label v3"
    ),
    "watch": CommandEntry(
        "nerve.cli.inspect:watch_command", "Show a run as it goes on, and answer its gates.", "nerve watch v3"
    ),
    "runs": CommandEntry(
        "nerve.cli.runs:runs_command", "List the runs of this project.", "nerve runs --state waiting"
    ),
    "status": CommandEntry(
        "nerve.cli.inspect:status_command", "Say how a run stands, or everything.", "nerve status v3"
    ),
    "events": CommandEntry(
        "nerve.cli.inspect:events_command", "Print the events of a run.", "nerve events v3 --after 10 --json"
    ),
    "logs": CommandEntry(
        "nerve.cli.inspect:logs_command", "Print what a run did and said.", "nerve logs v3 --follow"
    ),
    "gates": CommandEntry("nerve.cli.inspect:gates_command", "List every open gate.", "nerve gates --json"),
    "answer": CommandEntry(
        "nerve.cli.run_control:answer_gate_command",
        "Answer an open gate of a run.",
        "nerve answer v3 yes --gate approve",
    ),
    "approve": CommandEntry(
        "nerve.cli.run_control:approve_gate_command",
        "Answer with the choice that approves.",
        "nerve approve v3",
    ),
    "reject": CommandEntry(
        "nerve.cli.run_control:reject_gate_command", "Answer with the choice that rejects.", "nerve reject v3"
    ),
    "pause": CommandEntry(
        "nerve.cli.run_control:pause_command", "Let nothing new begin in a run.", "nerve pause v3"
    ),
    "resume": CommandEntry(
        "nerve.cli.resume:resume_command",
        "Go on with a run that waits, is parked or is held.",
        "nerve resume v3 --answer approve=yes",
    ),
    "steer": CommandEntry(
        "nerve.cli.run_control:steer_command",
        "Say something to an agent at work.",
        "nerve steer v3 'Use tabs.' --path /dev",
    ),
    "stop": CommandEntry(
        "nerve.cli.run_control:stop_command",
        "End a run, with everything it has started.",
        "nerve stop v3 --reason 'not needed any more'",
    ),
    "retry": CommandEntry(
        "nerve.cli.run_control:retry_command", "Try a held or failed run again.", "nerve retry v3 --wait"
    ),
    "skip": CommandEntry(
        "nerve.cli.run_control:skip_command",
        "Settle what a run is held at, as if it had been done.",
        "nerve skip v3 --output done",
    ),
    "fork": CommandEntry(
        "nerve.cli.run_control:fork_command",
        "Start a run that takes over what another has settled.",
        "nerve fork v3 --at /build --wait",
    ),
    "signal": CommandEntry(
        "nerve.cli.facts:signal_command",
        "Send a signal that runs wait for.",
        "nerve signal reviewed '{\"ok\": true}' --key v3",
    ),
    "assert": CommandEntry(
        "nerve.cli.facts:assert_command",
        "Assert a fact in the dataspace.",
        'nerve assert \'(review "main.py" :by "ann")\'',
    ),
    "retract": CommandEntry(
        "nerve.cli.facts:retract_command",
        "Retract the facts that fit a pattern.",
        "nerve retract '(review _)'",
    ),
    "facts": CommandEntry(
        "nerve.cli.facts:facts_command",
        "List the facts of the dataspace.",
        "nerve facts '(review _ :by ?who)'",
    ),
    "route": CommandEntry(
        "nerve.cli.route:route_command",
        "Say which workflow a text asks for.",
        "nerve route 'ship version 3' --start",
    ),
    "serve": CommandEntry(
        "nerve.cli.serve:serve_command", "Serve this project to everything else.", "nerve serve --port 8000"
    ),
    "gc": CommandEntry(
        "nerve.cli.gc:gc_command", "Delete runs that ended long ago.", "nerve gc --older-than 30d --yes"
    ),
    "commander": CommandEntry(
        "nerve.cli.commander:commander_command",
        "Open the Commander: talk to agents and workflows, and see and steer all runs.",
        "nerve commander --plain",
    ),
    "check": CommandEntry(
        "nerve.cli.check:check_command", "Say everything that is wrong with workflows.", "nerve check ship"
    ),
    "show": CommandEntry(
        "nerve.cli.show:show_command", "Show a workflow as a tree or a diagram.", "nerve show ship --mermaid"
    ),
    "convert": CommandEntry(
        "nerve.cli.convert:convert_command",
        "Write a workflow down in another notation.",
        "nerve convert ship --to lisp",
    ),
    "init": CommandEntry(
        "nerve.cli.init:init_command", "Make a folder a project that runs.", "nerve init my-project"
    ),
    "new": CommandEntry(
        "nerve.cli.init:new_command", "Write the beginnings of a workflow.", "nerve new tidy --to yaml"
    ),
    "doctor": CommandEntry(
        "nerve.cli.doctor:doctor_command",
        "Say what is there, what is missing and how to get it.",
        "nerve doctor",
    ),
    "trust": CommandEntry(
        "nerve.cli.trust:trust_command",
        "Trust a folder that came from elsewhere, with its runs and configuration.",
        "nerve trust",
    ),
    "schema": CommandEntry(
        "nerve.cli.schema:schema_command",
        "Print a JSON Schema of workflows or of the api.",
        "nerve schema steps",
    ),
    "version": CommandEntry("nerve.cli.schema:version_command", "Print the version.", "nerve version --json"),
    "demo": CommandEntry(
        "nerve.cli.demo:demo_command",
        "Fix a scratch project with a failing test; needs no key.",
        "nerve demo",
    ),
}
COMMAND_GROUPS: dict[str, tuple[str, ...]] = {
    "Run workflows": ("run", "start", "commander", "demo"),
    "See runs": ("runs", "status", "watch", "logs", "events", "gates"),
    "Decide": ("answer", "approve", "reject", "signal", "steer"),
    "Change runs": ("pause", "resume", "stop", "retry", "skip", "fork", "gc"),
    "Write workflows": ("init", "new", "check", "show", "convert", "workflow", "route", "schema"),
    "Facts": ("facts", "assert", "retract"),
    "Project and server": ("serve", "server", "trust", "doctor", "version"),
}
"""The commands by what a user wants to do, in the order of the help."""
SERVER_COMMANDS: dict[str, CommandEntry] = {
    "status": CommandEntry(
        "nerve.cli.server:server_status_command",
        "Say whether a server is running for this project, and where.",
        "nerve server status --json",
    ),
    "stop": CommandEntry(
        "nerve.cli.server:server_stop_command",
        "Stop the server; its runs continue with the next one.",
        "nerve server stop",
    ),
    "restart": CommandEntry(
        "nerve.cli.server:server_restart_command",
        "Stop the server in the background, and start another one.",
        "nerve server restart --with flows.py",
    ),
    "sign-in": CommandEntry(
        "nerve.cli.server:server_sign_in_command",
        "Print an address that signs in one browser.",
        "nerve server sign-in",
    ),
}
"""The verbs of `nerve server`."""
WORKFLOW_COMMANDS: dict[str, CommandEntry] = {
    "define": CommandEntry(
        "nerve.cli.workflow:workflow_define_command",
        "Define the workflow of a file.",
        "nerve workflow define ship.lisp",
    ),
    "start": CommandEntry(
        "nerve.cli.start:start_run_command", START_HELP, "nerve workflow start ship.lisp --label v3"
    ),
    "watch": CommandEntry(
        "nerve.cli.inspect:watch_command",
        "Show a run as it goes on, and answer its gates.",
        "nerve workflow watch v3",
    ),
    "list": CommandEntry(
        "nerve.cli.workflow:workflow_list_command",
        "List the workflows, and their open runs.",
        "nerve workflow list",
    ),
    "reload": CommandEntry(
        "nerve.cli.workflow:workflow_reload_command",
        "Read the definitions of the project again.",
        "nerve workflow reload",
    ),
}
"""The verbs of `nerve workflow`."""
