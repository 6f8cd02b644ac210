"""`nerve triggers`: list the triggers; pause, resume, fire, backfill, add or remove one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter
from nerve.ui.formatting import format_table, format_trigger_notes, format_trigger_time

if TYPE_CHECKING:
    from nerve.api.models import ApiResponse, TriggerPage, TriggerResponse
    from nerve.client import Client

ACTIONS = ("show", "pause", "resume", "fire", "backfill", "add", "remove")
PAST = {"pause": "paused", "resume": "resumed", "add": "added", "remove": "removed"}
HEADINGS = ("trigger", "kind", "workflow", "next", "last", "")
MAX_MAIL_BYTES = 10 * 1024 * 1024
MAX_MAIL_CHARS = 100_000


def triggers_command(
    action: Annotated[str | None, Parameter(name="ACTION", help=", ".join(ACTIONS))] = None,
    name: Annotated[str | None, Parameter(name="NAME", help="The trigger.")] = None,
    file: Annotated[
        Path | None, Parameter(name="FILE", help="The definition to add, in YAML or JSON.")
    ] = None,
    /,
    *,
    event: Annotated[
        str | None, Parameter(help="What expressions of the trigger read, as a JSON object.")
    ] = None,
    mail: Flag = False,
    key: Annotated[str | None, Parameter(help="The same key starts a run once.")] = None,
    since: Annotated[str | None, Parameter(name="--from", help="The first time of a backfill.")] = None,
    until: Annotated[str | None, Parameter(help="The last time of a backfill; default: now.")] = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the triggers with their next times, last starts and states.

    `show NAME` prints one with the next ten times, the last runs and what was skipped or refused.
    `pause NAME` and `resume NAME` hold across restarts. `fire NAME` starts a run now. `backfill NAME --from
    TIME` starts the runs of a schedule for times that have none. `add NAME FILE` stores a definition,
    `remove NAME` removes it.

    Parameters
    ----------
    mail
        Fire with the e-mail in the standard input, once for its Message-ID.
    """
    check_action(action, ACTIONS)
    if action is not None and name is None:
        raise UsageError(f"The name of the trigger is missing: nerve triggers {action} NAME.")
    check_options(action, event=event, mail=mail, key=key, since=since, until=until, file=file)
    arguments: dict[str, Any] = {} if name is None else {"trigger": name}
    if action == "add":
        arguments["definition"] = read_definition(name or "", file)
    elif action == "fire":
        arguments |= read_event(event, mail, key)
    elif action == "backfill":
        arguments |= {"since": since, "until": until or datetime.now(UTC).isoformat()}

    async def do(context: CliContext) -> int:
        client = context.client
        if action is None:
            page = await client.triggers()
            context.print_result(page.triggers, list_lines(page))
        elif action == "show":
            shown = await client.trigger(**arguments)
            context.print_result(shown, detail_lines(shown))
        elif action == "fire":
            fired = await client.fire_trigger(**arguments)
            text = fired.run.run_id if fired.run is not None else f"Nothing was started: {fired.reason}."
            context.print_result(fired, text)
        elif action == "backfill":
            started = (await client.backfill_trigger(**arguments)).runs
            lines = [f"{run.run_id}  {run.state}" for run in started] or "The range has no times."
            context.print_result(started, lines)
        else:
            changed = await change_trigger(client, action, arguments)
            context.print_result(changed, f"Trigger {name} is {PAST[action]}.")
        return COMPLETED

    is_reading = action in (None, "show")
    return run_with_api(common, do, writes=not is_reading, read_only=is_reading)


async def change_trigger(client: Client, action: str, arguments: dict[str, Any]) -> ApiResponse:
    match action:
        case "add":
            return await client.define_trigger(**arguments)
        case "remove":
            return await client.remove_trigger(**arguments)
        case "pause":
            return await client.pause_trigger(**arguments)
    return await client.resume_trigger(**arguments)


def check_options(action: str | None, **options: Any) -> None:
    """Raise UsageError for an option of another action, or one that is missing."""
    allowed = {"fire": ("event", "mail", "key"), "backfill": ("since", "until"), "add": ("file",)}
    for option, value in options.items():
        if value not in (None, False) and option not in allowed.get(action or "", ()):
            shown = {"since": "--from", "file": "FILE"}.get(option, f"--{option}")
            owner = next(name for name, names in allowed.items() if option in names)
            raise UsageError(f"{shown} is for: nerve triggers {owner} NAME.")
    if action == "add" and options["file"] is None:
        raise UsageError("The file with the definition is missing: nerve triggers add NAME FILE.")
    if action == "backfill" and options["since"] is None:
        raise UsageError("The range is missing: nerve triggers backfill NAME --from 2027-01-01T00:00.")
    if options["event"] is not None and options["mail"]:
        raise UsageError("Give either --event or --mail.")


def read_definition(name: str, file: Path | None) -> dict[str, Any]:
    """Return the definition in a file; InvalidDefinition with the positions of its mistakes."""
    from nerve.core.triggers import TriggerReader
    from nerve.project.safe_files import FileRefused, read_user_file
    from nerve.text.json_reader import parse_located_json
    from nerve.text.yaml_reader import load_yaml

    assert file is not None
    try:
        text = read_user_file(file)
    except (OSError, FileRefused) as error:
        raise UsageError(f"Cannot read {file}: {error}.") from None
    data = (parse_located_json if file.suffix == ".json" else load_yaml)(text, str(file))
    return dict(TriggerReader(str(file)).read(name, data, str(file)).data)


def read_event(event: str | None, mail: bool, key: str | None) -> dict[str, Any]:
    from nerve.core.json_codec import parse_strict_json

    if mail:
        return read_mail(sys.stdin.buffer.read(MAX_MAIL_BYTES)) | ({} if key is None else {"key": key})
    arguments: dict[str, Any] = {} if key is None else {"key": key}
    if event is not None:
        try:
            value = parse_strict_json(event)
        except ValueError as error:
            raise UsageError(f"--event must be a JSON object: {error}.") from None
        if not isinstance(value, dict):
            raise UsageError("--event must be a JSON object.")
        arguments["event"] = value
    return arguments


def read_mail(data: bytes) -> dict[str, Any]:
    """Return an e-mail as the event of a trigger; its Message-ID is the id of the delivery."""
    from email import message_from_bytes, policy
    from hashlib import sha256

    message = message_from_bytes(data, policy=policy.default)
    if not message.keys():
        raise UsageError("The standard input is not an e-mail: it has no headers.")
    part = message.get_body(("plain", "html"))
    try:
        text = str(part.get_content()) if part is not None else ""
    except (LookupError, ValueError):  # an unknown character set
        text = ""
    headers = {name.lower(): str(value) for name, value in message.items()}
    id = headers.get("message-id", "").strip() or sha256(data).hexdigest()
    mail = {name: headers.get(name, "") for name in ("from", "to", "subject", "date")}
    return {
        "event": {"mail": {**mail, "id": id, "headers": headers, "text": text[:MAX_MAIL_CHARS]}},
        "delivery": id if len(id) <= 200 else sha256(id.encode()).hexdigest(),
    }


def list_lines(page: TriggerPage) -> list[str] | str:
    problems = [f"{problem['file']}:{problem['line']}: {problem['message']}" for problem in page.problems]
    if not page.triggers:
        return [
            *problems,
            "No triggers. Define one in .nerve/triggers/NAME.yaml, or: nerve triggers add NAME FILE",
        ]
    return [*format_table([HEADINGS, *map(format_trigger, page.triggers)]), *problems]


def format_trigger(trigger: TriggerResponse) -> tuple[str, ...]:
    last = trigger.last_runs[0] if trigger.last_runs else None
    return (
        trigger.name,
        trigger.kind,
        trigger.workflow,
        format_trigger_time(trigger.next_times[0]) if trigger.next_times else "",
        f"{format_trigger_time(last.started_at)} {last.state}" if last is not None else "",
        format_trigger_notes(trigger),
    )


def detail_lines(trigger: TriggerResponse) -> list[str]:
    """Return everything about one trigger."""
    lines = [
        f"{trigger.name}: {trigger.kind} trigger of {trigger.workflow}, defined in {trigger.source}",
        *([format_trigger_notes(trigger)] if format_trigger_notes(trigger) else []),
    ]
    sections = {
        "Next times": [format_trigger_time(at) for at in trigger.next_times],
        "Last runs": [
            f"{format_trigger_time(run.started_at)}  {run.run_id}  {run.state}  {run.occurrence}"
            for run in trigger.last_runs
        ],
        "Not started": [
            f"{format_trigger_time(skip.at)}  {skip.occurrence}: {skip.reason}" for skip in trigger.skipped
        ],
        "Refused requests": [f"{format_trigger_time(each.at)}  {each.reason}" for each in trigger.refused],
    }
    for title, entries in sections.items():
        if entries:
            lines += [f"{title}:", *(f"  {entry}" for entry in entries)]
    return lines
