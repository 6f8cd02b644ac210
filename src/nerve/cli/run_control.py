"""Commands that are one operation of the API: the request from the arguments, and the output of the response.

`nerve answer`, `approve`, `reject`, `pause`, `steer`, `stop`, `retry`, `skip`, `fork`, `signal`, `assert`,
`retract`, `facts` and `route`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass  # noqa: TID251 - cyclopts reads the signature
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from nerve.api import ApiError
from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, format_api_error, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, REFUSED
from nerve.cli.limit_options import parse_limit_options
from nerve.cli.parameters import (
    DEFAULT_OPTIONS,
    CommonOptions,
    Flag,
    Parameter,
    TextList,
    WaitOption,
    format_command,
    format_resume_command,
)
from nerve.core.gates import GateMatch, match_gate_name, select_gates
from nerve.text.sentences import with_full_stop
from nerve.ui.gate_names import (
    APPROVE_WORDS,
    REJECT_WORDS,
    AmbiguousAnswer,
    gate_display_name,
    match_choice,
    resolve_typed_choice,
)
from nerve.ui.sanitize import dump_safe_json

if TYPE_CHECKING:
    from nerve.api.models import GateResponse, RouteResponse

GateOption = Annotated[
    str | None, Parameter(help="Gate id, name or path. Required if several gates are open.")
]
KeyOption = Annotated[
    str | None, Parameter(help="Idempotency key: a repeated command with the same key has no further effect.")
]
HashOption = Annotated[
    str | None, Parameter(help="The hash of the gate that you were shown: another question is not answered.")
]
ReasonOption = Annotated[str, Parameter(help="Reason, stored with the run.")]
PATTERN_PARAMETER = Parameter(name="PATTERN", help="A record; _ matches anything and ?name captures a value.")
FactArgument = Annotated[
    str, Parameter(name="FACT", help="A record: (label field … :name value …).", allow_leading_hyphen=True)
]
ValueArgument = Annotated[str | None, Parameter(name="VALUE", help="JSON, or plain text.")]
NO_SERVER_NOTICE = (
    "No server is running. To resume runs that wait for this: `nerve resume RUN`, or `nerve serve`."
)
ResponseLines = Callable[[Any], str | list[str]]
"""Returns the output lines of a response."""


def execute_operation(
    common: CommonOptions,
    operation: str,
    request: dict[str, Any],
    format_response: ResponseLines,
    *,
    wakes_runs: bool = False,
    read_only: bool = False,
) -> int:
    """Execute one operation of the API and print its response, or the list in it; return the exit code.

    An operation that `wakes_runs` creates the store if necessary. Without a server, the runs that it wakes
    continue in this process until they are idle.
    """

    async def do(context: CliContext) -> int:
        response: Any = await context.client.perform(operation, request)
        context.print_result(result_payload(response), format_response(response))
        if wakes_runs and context.session is not None:
            from nerve.cli.session_setup import wait_until_idle

            await wait_until_idle(context.session)
            context.info(await describe_woken_run(context, request.get("run")))
        return COMPLETED

    return run_with_api(common, do, writes=wakes_runs, read_only=read_only)


async def describe_woken_run(context: CliContext, run_name: str | None) -> str:
    """Return the state in which this process leaves the run, or all runs that an operation has woken."""
    if run_name is None:
        return NO_SERVER_NOTICE
    from nerve.cli.outcome import PARKED, state_when_idle

    run = await context.client.run(run=run_name)
    state = state_when_idle(run)
    if state == PARKED:
        resume = format_resume_command(context.common, run.run_id)
        return f"Run {run.run_id} is parked. Resume with: {resume}"
    return f"Run {run.run_id} is {state}" + (f" {run.waiting_for}" if run.waiting_for else "")


def result_payload(response: Any) -> Any:
    """Return the JSON form of a response: a run as its outcome, a page of facts as their list."""
    from nerve.api.models import FactPage, RunResponse

    if isinstance(response, RunResponse):
        from nerve.cli.outcome import outcome_from_run

        return outcome_from_run(response).to_dict()
    if isinstance(response, FactPage):
        return response.facts
    return response


def format_run_state(run: Any) -> str:
    return f"{run.run_id} {run.state}"


# -- gates ---------------------------------------------------------------------------------------------


@Parameter(name="*")
@dataclass(frozen=True)
class AnswerOptions:
    """Options of the commands that answer a gate."""

    gate: GateOption = None
    reason: ReasonOption = ""
    key: KeyOption = None
    hash: HashOption = None
    wait: WaitOption = False


DEFAULT_ANSWER_OPTIONS = AnswerOptions()


def answer_gate_command(
    run: RunArgument,
    answer: Annotated[
        str,
        Parameter(name="ANSWER", help="The answer, the number of a choice, or JSON for a form."),
    ],
    /,
    *,
    options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run. A choice can be given by its number."""
    return answer_open_gate(common, run, options, lambda _: answer)


def approve_gate_command(
    run: RunArgument,
    /,
    *,
    options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run with its approving choice."""
    return answer_open_gate(common, run, options, lambda gate: choice_for_words(gate, APPROVE_WORDS))


def reject_gate_command(
    run: RunArgument,
    /,
    *,
    options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Answer an open gate of a run with its rejecting choice."""
    return answer_open_gate(common, run, options, lambda gate: choice_for_words(gate, REJECT_WORDS))


def choice_for_words(gate: GateResponse, words: tuple[str, ...]) -> str:
    """Return the only choice of a gate that matches one of the words, or raise UsageError."""
    try:
        return match_choice(gate, words, lambda gate, text: format_command("answer", gate.run_id, text))
    except AmbiguousAnswer as error:
        raise UsageError(with_full_stop(str(error))) from None


def answer_open_gate(
    common: CommonOptions,
    run: str,
    options: AnswerOptions,
    choose: Callable[[GateResponse], str],
) -> int:
    """Answer the gate with this name, or the only open one, with the answer that `choose` returns for it."""
    gate = options.gate

    async def do(context: CliContext) -> int:
        run_id = await context.ensure_driven(run)
        before = await context.client.run(run=run_id)
        target = select_gate(before.gates, gate)
        if target is None:  # the API reports why: answered, closed or unknown
            from nerve.api.models import GateResponse

            unknown = GateResponse(gate_id="", run_id=run_id, path="/", prompt="", options=["yes", "no"])
            request: dict[str, Any] = {"gate": gate, "answer": choose(unknown)}
        else:
            # For a prefix, the API checks that no closed gate has exactly this name.
            is_prefix = gate is not None and match_gate_name(target, gate) is GateMatch.NAME_PREFIX
            answer = resolve_typed_choice(choose(target), target.choices or [])
            request = {"gate": gate if is_prefix else target.gate_id, "answer": answer, "hash": target.hash}
        if options.hash is not None:
            request["hash"] = options.hash
        await context.client.answer(run=run_id, **request, key=options.key, reason=options.reason)
        after = await context.client.run(run=run_id)
        if target is not None and (still := select_same_gate(after.gates, target)) is not None:
            context.info(f"Your answer is recorded. The gate needs {still.missing}.")
        return await context.follow_or_report(
            after, options.wait, known_seq=before.last_seq, action_text="Answered. The run continues"
        )

    return run_with_api(common, do, serves_as="answer")


def select_same_gate(gates: list[GateResponse], gate: GateResponse) -> GateResponse | None:
    """Return the gate if it is open and people decide it."""
    return next((each for each in gates if each.policy is not None and each.hash == gate.hash), None)


def select_gate(gates: list[GateResponse], name: str | None) -> GateResponse | None:
    """Return the open gate with a name or a prefix of it; without a name, the only open gate."""
    matching = gates if name is None else select_gates(gates, name)
    if len(matching) > 1:
        names = ", ".join(f"{gate.gate_id} ({gate_display_name(gate)})" for gate in matching)
        raise ApiError("conflict", f"Several gates are open: {names}", "Select one: --gate GATE")
    return matching[0] if matching else None


# -- runs ----------------------------------------------------------------------------------------------


def pause_command(
    run: RunArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Pause a run: running steps finish, and no new steps start. Resume it with `nerve resume`."""
    return execute_operation(common, "pause", {"run": run, "key": key}, format_run_state)


def steer_command(
    run: RunArgument,
    text: Annotated[str, Parameter(name="TEXT", help="The message.", allow_leading_hyphen=True)],
    /,
    *,
    path: str | None = None,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a message to a working agent on the project server.

    Parameters
    ----------
    path
        Path of the step. Optional if only one agent is working.
    """
    request = {"run": run, "text": text, "path": path, "key": key}
    return execute_operation(
        common, "steer", request, lambda sent: f"Sent to {sent.path} of run {sent.run_id}"
    )


def send_command(
    run: RunArgument,
    channel: Annotated[str, Parameter(name="CHANNEL", help="The channel that the run receives from.")],
    value: ValueArgument = None,
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a message to the mailbox of a run; it is kept until the run receives it.

    VALUE is JSON, or plain text.
    """
    request = {"run": run, "channel": channel, "value": parse_value(value), "key": key}
    return execute_operation(common, "send", request, format_sent, wakes_runs=True)


def format_sent(response: Any) -> str:
    return f"Sent to channel '{response.channel}' of run {response.run_id}"


def update_command(
    run: RunArgument,
    update: Annotated[str, Parameter(name="UPDATE", help="The name of the update.")],
    value: ValueArgument = None,
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Let the code of a run handle an update, and print its reply as JSON.

    VALUE is JSON, or plain text.
    """
    request = {"run": run, "update": update, "value": parse_value(value), "key": key}
    return execute_operation(common, "update", request, format_reply, wakes_runs=True)


def query_command(
    run: RunArgument,
    query: Annotated[str, Parameter(name="QUERY", help="The name of the query.")],
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Ask the code of a run about its state, and print the answer as JSON."""
    return execute_operation(common, "query", {"run": run, "query": query}, format_reply)


def format_reply(response: Any) -> str:
    """Return the result of a query or an update as JSON."""
    return dump_safe_json(response.result)


def stop_command(
    run: RunArgument,
    /,
    *,
    reason: ReasonOption = "",
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Stop a run and everything it started."""
    return execute_operation(common, "stop", {"run": run, "reason": reason, "key": key}, format_run_state)


def retry_command(
    run: RunArgument,
    /,
    *,
    path: str = "",
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Retry a held run, or start a copy of a failed run from its first failure.

    Parameters
    ----------
    path
        Path of the step to run again, if the run is held.
    """
    request = {"run": run, "path": path, "key": key}
    return continue_run(common, "retry", request, wait, "Retried. The run continues")


def skip_command(
    run: RunArgument,
    /,
    *,
    path: str = "",
    output: str | None = None,
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Skip the step that a run is held at, as if it had completed.

    Parameters
    ----------
    path
        Path of the step. Default: the step the run is held at.
    output
        Output of the skipped step: JSON, or plain text.
    """
    request = {"run": run, "path": path, "output": parse_value(output), "key": key}
    return continue_run(common, "skip", request, wait, "Skipped. The run continues")


def fork_command(
    run: RunArgument,
    /,
    *,
    at: str | None = None,
    input: str | None = None,
    override: TextList = (),
    limit: TextList = (),
    definition: str | None = None,
    dry_run: bool = False,
    key: KeyOption = None,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Start a run that reuses the completed steps of another run up to a path.

    Parameters
    ----------
    at
        Path of the first step to run again.
    input
        New input of that step, or of the workflow: JSON, or plain text.
    override
        PATH:NAME=VALUE changes a setting of a step, which then runs again. Repeatable.
    limit
        NAME=NUMBER raises a limit of the run, /STEP:NAME=NUMBER that of a step. Repeatable.
    definition
        Hash of another definition of the workflow, or `current`. Default: that of the run.
    dry_run
        Only show which steps would be reused and which would run again.
    """
    request: dict[str, Any] = {"run": run, "at": at}
    if definition is not None:
        request["definition"] = definition
    if input is not None:
        request["input"] = parse_value(input)
    if override:
        request["overrides"] = parse_overrides(override)
    if dry_run:
        return run_with_api(common, partial(show_fork_preview, request=request))
    if limit:
        request["limits"] = parse_limit_options(limit)
    return continue_run(common, "fork", {**request, "key": key}, wait, "Started")


FATE_TEXTS = {
    "reused": "reused",
    "reused_if_same": "reused if its input stays the same",
    "continues": "continues",
    "again": "runs again",
    "held": "held: its outcome is unknown",
}


async def show_fork_preview(context: CliContext, request: dict[str, Any]) -> int:
    """Print what a fork would reuse and run again."""
    overrides, has_input = request.pop("overrides", {}), "input" in request
    if has_input and request["at"] is None:
        has_input = request["input"] != (await context.client.run(run=request["run"])).input
    request.pop("input", None)
    preview = await context.client.preview_fork(**request, new_input=has_input, overridden=list(overrides))
    width = max((len(step.path) for step in preview.steps), default=0)
    lines = [f"{step.path:<{width}}  {FATE_TEXTS[step.fate]}" for step in preview.steps]
    if preview.refusal is not None:
        error = ApiError.from_dict(preview.refusal)
        context.info(f"The fork would be refused: {format_api_error(error)}")
    context.print_result(preview, lines)
    return COMPLETED if preview.refusal is None else REFUSED


def continue_run(
    common: CommonOptions, operation: str, request: dict[str, Any], wait: bool, action_text: str
) -> int:
    """Execute an operation after which a run continues, or a new run starts; report or follow it."""

    async def do(context: CliContext) -> int:
        before = await context.client.run(run=request["run"])
        if operation == "skip" and not request["path"]:
            request["path"] = str((before.held or {}).get("path") or "")
        run: Any = await context.client.perform(operation, request)
        known_seq = before.last_seq if run.run_id == before.run_id else 0
        return await context.follow_or_report(run, wait, known_seq=known_seq, action_text=action_text)

    return run_with_api(common, do, serves_as=operation)


def parse_overrides(options: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    parsed: dict[str, dict[str, Any]] = {}
    for option in options:
        target, equals, value = option.partition("=")
        path, colon, name = target.rpartition(":")
        if not (equals and colon and path and name):
            raise UsageError(f"--override must be PATH:NAME=VALUE, got '{option}'.")
        parsed.setdefault(path, {})[name] = parse_value(value)
    return parsed


def parse_value(text: str | None) -> Any:
    """Return an optional argument that is JSON, or plain text."""
    from nerve.ui.typed_options import parse_json_or_text

    return None if text is None else parse_json_or_text(text)


# -- facts and routes ----------------------------------------------------------------------------------


def facts_command(
    pattern: Annotated[str | None, PATTERN_PARAMETER] = None, /, *, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """List the facts that match a pattern, or all facts.

    PATTERN is an S-expression, such as '(review _ :by ?who)', its JSON form, or a label.
    """
    request = {"pattern": parse_fact_argument(pattern)}
    return execute_operation(
        common, "facts", request, lambda page: format_facts(page) or "No facts.", read_only=True
    )


def assert_command(
    fact: FactArgument, /, *, key: KeyOption = None, common: CommonOptions = DEFAULT_OPTIONS
) -> int:
    """Assert a fact in the dataspace and wake the runs that wait for it.

    FACT is an S-expression, such as '(review "main.py" :by "ann")', or its JSON form.
    """
    request = {"fact": parse_fact_argument(fact), "key": key}
    return execute_operation(common, "assert_fact", request, lambda fact: fact.text, wakes_runs=True)


def retract_command(
    pattern: Annotated[str, PATTERN_PARAMETER],
    /,
    *,
    key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Retract the facts that match a pattern, and print them."""
    request = {"fact": parse_fact_argument(pattern), "key": key}
    return execute_operation(
        common, "retract", request, lambda page: format_facts(page) or "No matching facts."
    )


def signal_command(
    label: Annotated[str, Parameter(name="LABEL", help="The label of the signal.")],
    value: ValueArgument = None,
    /,
    *,
    key: str | None = None,
    idempotency_key: KeyOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Send a signal and wake the runs that wait for it.

    VALUE is JSON, or plain text.

    Parameters
    ----------
    key
        The key of the signal, for example the label of a run.
    """
    request = {"label": label, "key": key, "value": parse_value(value), "idempotency_key": idempotency_key}
    return execute_operation(common, "signal", request, lambda _: f"signal {label} sent", wakes_runs=True)


def format_facts(page: Any) -> list[str]:
    return [fact.text for fact in page.facts]


def parse_fact_argument(text: str | None) -> Any:
    """Return a fact or pattern: parsed JSON if it starts with `[`, otherwise the text."""
    return parse_value(text) if (text or "").lstrip().startswith("[") else text


def route_command(
    text: Annotated[str, Parameter(name="TEXT", help="A request in plain language.")],
    /,
    *,
    start: Flag = False,
    wait: WaitOption = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Find the workflow for a text.

    Parameters
    ----------
    start
        Start the workflow.
    """

    async def do(context: CliContext) -> int:
        response = await context.client.route(text=text, start=start)
        for warning in (response.model_extra or {}).get("warnings", ()):
            context.info(f"warning: {warning}")
        if response.run is not None:
            context.info(f"{response.workflow}: {response.reason or 'selected by an agent'}")
            return await context.follow_or_report(response.run, wait, action_text="Started")
        context.print_result(response, format_route(response))
        if response.reason and not common.json:
            context.info(f"({response.reason})")
        return COMPLETED

    return run_with_api(common, do, writes=start)


def format_route(response: RouteResponse) -> list[str]:
    """Return the selected workflow, or the question of the router with the commands that start candidates."""
    if response.kind == "workflow":
        return [f"{response.workflow}  {response.text}".rstrip()]
    extra = response.model_extra or {}
    start_commands = [format_command("start", name, response.text) for name in extra.get("candidates", ())]
    return [
        f"{response.kind}  {extra.get('question') or extra.get('reply') or response.text}".rstrip(),
        *start_commands,
    ]
