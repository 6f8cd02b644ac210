"""The table of commands, for the parser, the help and the tests. Listing commands imports no command."""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command: its function, help text and an example."""

    import_path: str
    """As `module:function`."""
    help: str
    example: str


APP_HELP = """Durable workflows of agents, shell commands and Python functions.

[bold]nerve[/bold] without a command opens the Commander. To get started: nerve init my-project
"""
RUN_HELP = """Run a workflow in this process and follow it until it ends.

TARGET is a workflow file, a workflow name or a unique prefix of it, or a Python file that defines
register(session), as FILE.py or FILE.py:NAME. INPUT is the input text of the run, or JSON. Each --name value
or --name=value sets an input that the workflow declares; TARGET --help lists them. Put values that start with
"-" after "--".
"""
START_HELP = """Start a run on the project server, print its id and return.

Without a server, the run executes in this process until it ends or waits.

TARGET, INPUT and --name value have the same meaning as in `nerve run`.
"""
CLI_COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(
        "nerve.cli.start:run_workflow_command", RUN_HELP, "nerve run ship --number=3 --answer approve=yes"
    ),
    "start": CommandEntry(
        "nerve.cli.start:start_run_command", START_HELP, "nerve start ship --number=3 --label v3"
    ),
    "watch": CommandEntry(
        "nerve.cli.inspect:watch_command", "Follow a run and answer its gates.", "nerve watch v3"
    ),
    "runs": CommandEntry(
        "nerve.cli.runs:runs_command", "List the runs of this project.", "nerve runs --state waiting"
    ),
    "status": CommandEntry(
        "nerve.cli.inspect:status_command",
        "Show the status of a run, or of the whole project.",
        "nerve status v3",
    ),
    "events": CommandEntry(
        "nerve.cli.inspect:events_command", "Print the events of a run.", "nerve events v3 --after 10 --json"
    ),
    "logs": CommandEntry(
        "nerve.cli.inspect:logs_command", "Print the log of a run.", "nerve logs v3 --follow"
    ),
    "artifacts": CommandEntry(
        "nerve.cli.artifacts:artifacts_command",
        "List the files that the steps of a run have made, print or save one.",
        "nerve artifacts v3 plan.md -o plan.md",
    ),
    "workspaces": CommandEntry(
        "nerve.cli.workspaces:workspaces_command",
        "List the workspaces of runs, show the work in one, or remove it.",
        "nerve workspaces diff v3/fix",
    ),
    "gates": CommandEntry("nerve.cli.inspect:gates_command", "List open gates.", "nerve gates --json"),
    "queues": CommandEntry(
        "nerve.cli.queues:queues_command",
        "List the queues, or pause or resume one.",
        "nerve queues pause emails",
    ),
    "people": CommandEntry(
        "nerve.cli.people:people_command",
        "List the people who answer gates, or add, change or remove one.",
        "nerve people add ann --role lead",
    ),
    "audit": CommandEntry(
        "nerve.cli.audit:audit_command",
        "List everything that was decided, verified against the hash chains.",
        "nerve audit --since 30d --json",
    ),
    "triggers": CommandEntry(
        "nerve.cli.triggers:triggers_command",
        "List the triggers, or pause, resume, fire, backfill, add or remove one.",
        "nerve triggers show nightly",
    ),
    "answer": CommandEntry(
        "nerve.cli.answer:answer_gate_command",
        "Answer an open gate of a run.",
        "nerve answer v3 yes --gate approve",
    ),
    "notify": CommandEntry(
        "nerve.cli.notify:notify_command",
        "List the channels of notifications and what was not delivered, or try one.",
        "nerve notify test phone",
    ),
    "chat": CommandEntry(
        "nerve.cli.chat:chat_command",
        "List the chats whose threads are conversations, and what was not delivered.",
        "nerve chat",
    ),
    "approve": CommandEntry(
        "nerve.cli.answer:approve_gate_command",
        "Answer a gate with its approving choice.",
        "nerve approve v3",
    ),
    "reject": CommandEntry(
        "nerve.cli.answer:reject_gate_command",
        "Answer a gate with its rejecting choice.",
        "nerve reject v3",
    ),
    "pause": CommandEntry(
        "nerve.cli.run_control:pause_command", "Pause a run; running steps finish.", "nerve pause v3"
    ),
    "resume": CommandEntry(
        "nerve.cli.resume:resume_command",
        "Resume a waiting, parked, paused or held run.",
        "nerve resume v3 --answer approve=yes",
    ),
    "steer": CommandEntry(
        "nerve.cli.run_control:steer_command",
        "Send a message to a working agent.",
        "nerve steer v3 'Use tabs.' --path /dev",
    ),
    "stop": CommandEntry(
        "nerve.cli.run_control:stop_command",
        "Stop a run and everything it started.",
        "nerve stop v3 --reason 'no longer needed'",
    ),
    "retry": CommandEntry(
        "nerve.cli.run_control:retry_command", "Retry a held or failed run.", "nerve retry v3 --wait"
    ),
    "skip": CommandEntry(
        "nerve.cli.run_control:skip_command",
        "Skip the step that a run is held at.",
        "nerve skip v3 --output done",
    ),
    "fork": CommandEntry(
        "nerve.cli.run_control:fork_command",
        "Start a run that reuses the completed steps of another.",
        "nerve fork v3 --at /build --wait",
    ),
    "move": CommandEntry(
        "nerve.cli.move:move_command",
        "Move open runs of this machine to a Temporal cluster.",
        "nerve move --all",
    ),
    "rebase": CommandEntry(
        "nerve.cli.rebase:rebase_command",
        "Continue stuck runs of a Temporal cluster from their journals.",
        "nerve rebase v3",
    ),
    "signal": CommandEntry(
        "nerve.cli.facts:signal_command",
        "Send a signal that runs wait for.",
        "nerve signal reviewed '{\"ok\": true}' --key v3",
    ),
    "send": CommandEntry(
        "nerve.cli.run_control:send_command",
        "Send a message to the mailbox of a run.",
        'nerve send v3 orders \'{"item": "tea"}\'',
    ),
    "update": CommandEntry(
        "nerve.cli.run_control:update_command",
        "Let a run handle an update, and print its reply.",
        'nerve update v3 add_item \'{"item": "tea"}\'',
    ),
    "query": CommandEntry(
        "nerve.cli.run_control:query_command",
        "Ask the code of a run about its state.",
        "nerve query v3 progress",
    ),
    "assert": CommandEntry(
        "nerve.cli.facts:assert_command",
        "Assert a fact in the dataspace.",
        'nerve assert \'(review "main.py" :by "ann")\'',
    ),
    "retract": CommandEntry(
        "nerve.cli.facts:retract_command",
        "Retract the facts that match a pattern.",
        "nerve retract '(review _)'",
    ),
    "facts": CommandEntry(
        "nerve.cli.facts:facts_command",
        "List the facts of the dataspace.",
        "nerve facts '(review _ :by ?who)'",
    ),
    "route": CommandEntry(
        "nerve.cli.route:route_command",
        "Find the workflow for a text.",
        "nerve route 'ship version 3' --start",
    ),
    "serve": CommandEntry(
        "nerve.cli.serve:serve_command", "Run the project server.", "nerve serve --port 8000"
    ),
    "worker": CommandEntry(
        "nerve.cli.worker:worker_command",
        "Execute runs and their steps in a Temporal cluster.",
        "nerve worker --leaves claude,bash",
    ),
    "mcp": CommandEntry(
        "nerve.cli.mcp:mcp_command", "Serve MCP, so that agents start and follow workflows.", "nerve mcp"
    ),
    "acp": CommandEntry(
        "nerve.cli.acp:acp_command", "Serve ACP, so that editors run workflows.", "nerve acp"
    ),
    "web": CommandEntry(
        "nerve.cli.web:web_command", "Open the web page of this project, signed in.", "nerve web"
    ),
    "gc": CommandEntry(
        "nerve.cli.gc:gc_command", "Delete runs that ended long ago.", "nerve gc --older-than 30d --yes"
    ),
    "delete": CommandEntry("nerve.cli.gc:delete_command", "Delete a run that has ended.", "nerve delete v3"),
    "commander": CommandEntry(
        "nerve.cli.commander:commander_command",
        "Open the Commander, the terminal interface for all runs.",
        "nerve commander --plain",
    ),
    "check": CommandEntry(
        "nerve.cli.check:check_command", "Report all problems in workflows.", "nerve check ship"
    ),
    "show": CommandEntry(
        "nerve.cli.show:show_command", "Show a workflow as a tree or a diagram.", "nerve show ship --mermaid"
    ),
    "convert": CommandEntry(
        "nerve.cli.convert:convert_command",
        "Convert a workflow to another notation.",
        "nerve convert ship --to lisp",
    ),
    "import": CommandEntry(
        "nerve.cli.import_files:import_command",
        "Bring files of Archon or Claude Code into this project, with a report.",
        "nerve import ../app --dry-run",
    ),
    "init": CommandEntry(
        "nerve.cli.init:init_command", "Create a project with an example workflow.", "nerve init my-project"
    ),
    "new": CommandEntry(
        "nerve.cli.init:new_command",
        "Create a workflow file from a template or a ready-made workflow.",
        "nerve new --from fix-issue",
    ),
    "doctor": CommandEntry(
        "nerve.cli.doctor:doctor_command",
        "Diagnose the installation and the project.",
        "nerve doctor",
    ),
    "trust": CommandEntry(
        "nerve.cli.trust:trust_command",
        "Trust a folder from elsewhere, with its runs and configuration.",
        "nerve trust",
    ),
    "keygen": CommandEntry(
        "nerve.cli.keygen:keygen_command",
        "Add a key to the key file of an encrypted project.",
        "nerve keygen 2026-01",
    ),
    "backup": CommandEntry(
        "nerve.cli.store_copies:backup_command",
        "Write a verified backup of the store into a file, also while a server runs.",
        "nerve backup ../backups/monday.db",
    ),
    "restore": CommandEntry(
        "nerve.cli.store_copies:restore_command",
        "Restore the store of the project from a backup.",
        "nerve restore ../backups/monday.db",
    ),
    "rekey": CommandEntry(
        "nerve.cli.rekey:rekey_command",
        "Encrypt everything that is stored with the newest key.",
        "nerve rekey",
    ),
    "schema": CommandEntry(
        "nerve.cli.schema:schema_command",
        "Print a JSON Schema of workflows or of the API.",
        "nerve schema steps",
    ),
    "version": CommandEntry("nerve.cli.schema:version_command", "Print the version.", "nerve version --json"),
    "demo": CommandEntry(
        "nerve.cli.demo:demo_command",
        "Fix a failing test in a scratch project; needs no API key.",
        "nerve demo",
    ),
}
COMMAND_GROUPS: dict[str, tuple[str, ...]] = {
    "Run workflows": ("run", "start", "commander", "web", "demo"),
    "See runs": (
        "runs",
        "status",
        "watch",
        "logs",
        "events",
        "artifacts",
        "workspaces",
        "gates",
        "queues",
        "triggers",
        "query",
    ),
    "Decide": ("answer", "approve", "reject", "signal", "send", "update", "steer"),
    "Change runs": ("pause", "resume", "stop", "retry", "skip", "fork", "move", "rebase", "delete", "gc"),
    "Write workflows": ("init", "new", "import", "check", "show", "convert", "workflow", "route", "schema"),
    "Facts": ("facts", "assert", "retract"),
    "Project and server": (
        "serve",
        "server",
        "worker",
        "mcp",
        "acp",
        "people",
        "audit",
        "trust",
        "keygen",
        "rekey",
        "backup",
        "restore",
        "notify",
        "chat",
        "store",
        "doctor",
        "version",
    ),
}
"""Commands by task, in the order of the help."""
NESTED_COMMANDS = {
    "workflow": "Define, start, watch and list workflows.",
    "server": "Show, stop or restart the project server, or sign in a browser.",
    "store": "Copy the store of a project into another one.",
}
"""The help of the commands that have commands of their own."""
SERVER_COMMANDS: dict[str, CommandEntry] = {
    "status": CommandEntry(
        "nerve.cli.server:server_status_command",
        "Show whether the project server is running, and where.",
        "nerve server status --json",
    ),
    "stop": CommandEntry(
        "nerve.cli.server:server_stop_command",
        "Stop the server; its runs resume when it restarts.",
        "nerve server stop",
    ),
    "restart": CommandEntry(
        "nerve.cli.server:server_restart_command",
        "Restart the background server.",
        "nerve server restart --with flows.py",
    ),
    "sign-in": CommandEntry(
        "nerve.cli.server:server_sign_in_command",
        "Print a URL that signs in one browser.",
        "nerve server sign-in",
    ),
}
"""The commands of `nerve server`."""
WORKFLOW_COMMANDS: dict[str, CommandEntry] = {
    "define": CommandEntry(
        "nerve.cli.workflow:workflow_define_command",
        "Define a workflow from a file.",
        "nerve workflow define ship.lisp",
    ),
    "start": CommandEntry(
        "nerve.cli.start:start_run_command", START_HELP, "nerve workflow start ship.lisp --label v3"
    ),
    "watch": CommandEntry(
        "nerve.cli.inspect:watch_command",
        "Follow a run and answer its gates.",
        "nerve workflow watch v3",
    ),
    "list": CommandEntry(
        "nerve.cli.workflow:workflow_list_command",
        "List workflows and their open runs.",
        "nerve workflow list",
    ),
    "show": CommandEntry(
        "nerve.cli.show:show_command",
        "Show a workflow as a tree or a diagram.",
        "nerve workflow show ship --mermaid",
    ),
    "reload": CommandEntry(
        "nerve.cli.workflow:workflow_reload_command",
        "Reload the workflow definitions of the project.",
        "nerve workflow reload",
    ),
}
"""The commands of `nerve workflow`."""
STORE_COMMANDS: dict[str, CommandEntry] = {
    "copy": CommandEntry(
        "nerve.cli.store_copies:store_copy_command",
        "Copy a store into a new one, to move a project.",
        "nerve store copy .nerve/nerve.db ../other/.nerve/nerve.db",
    ),
}
"""The commands of `nerve store`."""
NESTED_TABLES = {"workflow": WORKFLOW_COMMANDS, "server": SERVER_COMMANDS, "store": STORE_COMMANDS}
"""The commands below each command of `NESTED_COMMANDS`."""
