"""The table of verbs: each once, for the command line, its help and its tests. Listing them imports none."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """A command: the function that does it, what it does, and an example."""

    function: str
    """As `module:function`."""
    told: str
    example: str


RUN = """Run a workflow in this process, and show it to its end.

TARGET is a workflow file, the name of a workflow of the project or the beginning of it, or a Python file
that has register(session), as FILE.py or FILE.py:NAME. INPUT is the text the run is given. Every
--name=value is an input that the workflow declares; what stands behind -- is no option.
"""
START = """Start a run in the server of this project; without one, in this process until it ends or waits.

TARGET, INPUT and --name=value are as in `nerve run`. With a server it prints the id of the run and returns.
"""
VERBS: dict[str, Verb] = {
    "run": Verb("nerve.cli.run:run", RUN, "nerve run ship --number=3 --answer approve=yes"),
    "start": Verb("nerve.cli.starting:start", START, "nerve start ship --number=3 --label v3"),
    "watch": Verb(
        "nerve.cli.looking:watch", "Show a run as it goes on, and answer its gates.", "nerve watch v3"
    ),
    "runs": Verb("nerve.cli.runs:runs", "List the runs of this project.", "nerve runs --state waiting"),
    "status": Verb("nerve.cli.looking:status", "Say how a run stands, or everything.", "nerve status v3"),
    "events": Verb(
        "nerve.cli.looking:events", "Print the events of a run.", "nerve events v3 --after 10 --json"
    ),
    "logs": Verb("nerve.cli.looking:logs", "Print what a run did and said.", "nerve logs v3 --follow"),
    "gates": Verb("nerve.cli.looking:gates", "List every open gate.", "nerve gates --json"),
    "answer": Verb(
        "nerve.cli.commanding:answer", "Answer an open gate of a run.", "nerve answer v3 yes --gate approve"
    ),
    "approve": Verb(
        "nerve.cli.commanding:approve", "Answer with the choice that approves.", "nerve approve v3"
    ),
    "reject": Verb("nerve.cli.commanding:reject", "Answer with the choice that rejects.", "nerve reject v3"),
    "pause": Verb("nerve.cli.commanding:pause", "Let nothing new begin in a run.", "nerve pause v3"),
    "resume": Verb(
        "nerve.cli.resume:resume",
        "Go on with a run that waits, is parked or is held.",
        "nerve resume v3 --answer approve=yes",
    ),
    "steer": Verb(
        "nerve.cli.commanding:steer",
        "Say something to an agent at work.",
        "nerve steer v3 'Use tabs.' --path /dev",
    ),
    "stop": Verb(
        "nerve.cli.commanding:stop",
        "End a run, with everything it has started.",
        "nerve stop v3 --reason 'not needed any more'",
    ),
    "retry": Verb("nerve.cli.commanding:retry", "Try a held or failed run again.", "nerve retry v3 --wait"),
    "skip": Verb(
        "nerve.cli.commanding:skip",
        "Settle what a run is held at, as if it had been done.",
        "nerve skip v3 --output done",
    ),
    "fork": Verb(
        "nerve.cli.commanding:fork",
        "Start a run that takes over what another has settled.",
        "nerve fork v3 --at /build --wait",
    ),
    "signal": Verb(
        "nerve.cli.facts:signal",
        "Send a signal that runs wait for.",
        "nerve signal reviewed '{\"ok\": true}' --key v3",
    ),
    "assert": Verb(
        "nerve.cli.facts:assert_",
        "Assert a fact in the dataspace.",
        'nerve assert \'(review "main.py" :by "ann")\'',
    ),
    "retract": Verb(
        "nerve.cli.facts:retract", "Retract the facts that fit a pattern.", "nerve retract '(review _)'"
    ),
    "facts": Verb(
        "nerve.cli.facts:facts", "List the facts of the dataspace.", "nerve facts '(review _ :by ?who)'"
    ),
    "route": Verb(
        "nerve.cli.routing:route",
        "Say which workflow a text asks for.",
        "nerve route 'ship version 3' --start",
    ),
    "serve": Verb(
        "nerve.cli.serving:serve", "Serve this project to everything else.", "nerve serve --port 8000"
    ),
    "gc": Verb(
        "nerve.cli.collecting:gc", "Delete runs that ended long ago.", "nerve gc --older-than 30d --yes"
    ),
    "commander": Verb(
        "nerve.cli.commander:commander",
        "Open the Commander: talk to agents and workflows, and see and steer all runs.",
        "nerve commander --plain",
    ),
    "check": Verb(
        "nerve.cli.checking:check", "Say everything that is wrong with workflows.", "nerve check ship"
    ),
    "show": Verb(
        "nerve.cli.showing:show", "Show a workflow as a tree or a diagram.", "nerve show ship --mermaid"
    ),
    "convert": Verb(
        "nerve.cli.convert:convert",
        "Write a workflow down in another notation.",
        "nerve convert ship --to lisp",
    ),
    "init": Verb("nerve.cli.making:init", "Make a folder a project that runs.", "nerve init my-project"),
    "new": Verb("nerve.cli.making:new", "Write the beginnings of a workflow.", "nerve new tidy --to yaml"),
    "doctor": Verb(
        "nerve.cli.doctor:doctor", "Say what is there, what is missing and how to get it.", "nerve doctor"
    ),
    "trust": Verb(
        "nerve.cli.trust:trust",
        "Trust a folder that came from elsewhere, with its runs and configuration.",
        "nerve trust",
    ),
    "schema": Verb(
        "nerve.cli.about:schema", "Print a JSON Schema of workflows or of the api.", "nerve schema steps"
    ),
    "version": Verb("nerve.cli.about:version", "Print the version.", "nerve version --json"),
    "demo": Verb(
        "nerve.cli.demo:demo", "Fix a scratch project with a failing test; needs no key.", "nerve demo"
    ),
}
GROUPS: dict[str, tuple[str, ...]] = {
    "Run workflows": ("run", "start", "commander", "demo"),
    "See runs": ("runs", "status", "watch", "logs", "events", "gates"),
    "Decide": ("answer", "approve", "reject", "signal", "steer"),
    "Change runs": ("pause", "resume", "stop", "retry", "skip", "fork", "gc"),
    "Write workflows": ("init", "new", "check", "show", "convert", "workflow", "route", "schema"),
    "Facts": ("facts", "assert", "retract"),
    "Project and server": ("serve", "server", "trust", "doctor", "version"),
}
"""The commands by what a user wants to do, in the order of the help."""
SERVER: dict[str, Verb] = {
    "status": Verb(
        "nerve.cli.server:status",
        "Say whether a server is running for this project, and where.",
        "nerve server status --json",
    ),
    "stop": Verb(
        "nerve.cli.server:stop",
        "Stop the server; its runs continue with the next one.",
        "nerve server stop",
    ),
    "restart": Verb(
        "nerve.cli.server:restart",
        "Stop the server in the background, and start another one.",
        "nerve server restart --with flows.py",
    ),
    "sign-in": Verb(
        "nerve.cli.server:sign_in",
        "Print an address that signs in one browser.",
        "nerve server sign-in",
    ),
}
"""The verbs of `nerve server`."""
WORKFLOW: dict[str, Verb] = {
    "define": Verb(
        "nerve.cli.workflows:define", "Define the workflow of a file.", "nerve workflow define ship.lisp"
    ),
    "start": Verb("nerve.cli.starting:start", START, "nerve workflow start ship.lisp --label v3"),
    "watch": Verb(
        "nerve.cli.looking:watch",
        "Show a run as it goes on, and answer its gates.",
        "nerve workflow watch v3",
    ),
    "list": Verb(
        "nerve.cli.workflows:list_", "List the workflows, and their open runs.", "nerve workflow list"
    ),
    "reload": Verb(
        "nerve.cli.workflows:reload", "Read the definitions of the project again.", "nerve workflow reload"
    ),
}
"""The verbs of `nerve workflow`."""
