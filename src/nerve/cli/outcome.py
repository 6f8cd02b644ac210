"""The outcome of a run: its state, what it waits for, and how both are printed."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TextIO

from nerve.cli.exit_codes import EXIT_CODE_BY_STATE, exit_code_for_state
from nerve.cli.parameters import CommonOptions, file_options, format_command, format_resume_command
from nerve.lazy_dataclass import dataclass
from nerve.ui.failure_text import failure_text
from nerve.ui.formatting import format_result
from nerve.ui.gate_names import example_answer, gate_display_name
from nerve.ui.json_forms import form_field_lines
from nerve.ui.sanitize import dump_safe_json, indent_lines, sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import GateResponse, RunResponse
    from nerve.ui.progress_tree import ProgressTree

PARKED = "parked"
"""The state of a run whose process ended while it was running; no process drives it."""
FAILURE_FIELDS = ("error", "error_type", "location")
OUTCOME_FIELDS = ("run_id", "state", "result", "continued_as", *FAILURE_FIELDS)
"""What the view of a run and the response of the API have alike."""
PAUSED_STATES = ("pausing", "paused")
"""States in which the run does not continue even if a gate is answered."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The state of a run when a command stops following it."""

    run_id: str
    workflow: str
    state: str
    result: Any = None
    error: str | None = None
    gates: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, Any] | None = None
    waits: list[dict[str, Any]] = field(default_factory=list)
    """Signals, facts and messages the run waits for."""
    error_type: str | None = None
    location: str | None = None
    """Where the workflow function raised."""
    waiting_for: str | None = None
    """What it waits for, as a phrase."""
    tracebacks: list[str] = field(default_factory=list)
    """The lines of the tracebacks of a failed run."""
    continued_as: str | None = None
    """The next run of its chain."""

    @property
    def exit_code(self) -> int:
        return exit_code_for_state(self.state)

    def to_dict(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"run_id": self.run_id, "workflow": self.workflow, "state": self.state}
        if self.continued_as is not None:
            payload["continued_as"] = self.continued_as
        elif self.state == "completed":
            payload["result"] = self.result
        if self.error is not None or self.held is not None:
            payload["error"] = self.error if self.held is None else self.held["message"]
        if self.location is not None:
            payload |= {"error_type": self.error_type, "location": self.location}
        if self.waiting_for is not None:
            payload["waiting_for"] = self.waiting_for
        payload["gates"] = self.gates
        if self.waits:
            payload["waits"] = self.waits
        return payload


def iter_wait_conditions(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the conditions that end a wait: signals by label, other facts by pattern."""
    if "patterns" not in data:
        yield signal_condition(data["label"], data.get("key"))
        return
    for pattern in data["patterns"].values():
        match pattern:
            case ["signal", str(label), dict(fields)]:
                yield signal_condition(label, fields.get("key"))
            case _:
                yield {"fact": pattern}


def signal_condition(label: str, key: Any) -> dict[str, Any]:
    return {"signal": label} | ({"key": key} if key is not None else {})


def state_when_idle(run: RunOutcome | RunResponse) -> str:
    """Return the state of a run that no process drives: a running run is parked, or waits in a child."""
    if run.state != "running":
        return run.state
    return "waiting" if run.gates or run.waiting_for else PARKED


def outcome_from_run(run: Any, tree: ProgressTree | None = None) -> RunOutcome:
    """Return the outcome of a run in the form that `nerve run` prints."""
    gates = tree.gates if tree is not None else run.gates
    return make_outcome(run, tree, gates, workflow=run.workflow, held=run.held, waiting_for=run.waiting_for)


def outcome_from_tree(run_id: str, tree: ProgressTree) -> RunOutcome:
    """Return the outcome of a run according to the events seen so far."""
    if not tree.branches:
        return RunOutcome(run_id, "", "running")
    view = tree.root.view
    return make_outcome(view, tree, tree.gates, workflow=view.workflow_id, waiting_for=tree.waiting_for)


def make_outcome(
    run: Any, tree: ProgressTree | None, gates: Iterable[GateResponse], **fields: Any
) -> RunOutcome:
    is_over = run.state in EXIT_CODE_BY_STATE
    return RunOutcome(
        **{name: getattr(run, name) for name in OUTCOME_FIELDS},
        gates=[] if is_over else gate_payloads(gates),
        waits=[] if is_over or tree is None else wait_payloads(tree),
        tracebacks=tree_tracebacks(tree) if tree is not None else [],
        **fields,
    )


def wait_payloads(tree: ProgressTree) -> list[dict[str, Any]]:
    signals = [condition for data in tree.waits for condition in iter_wait_conditions(data)]
    return [*signals, *({"message": channel, "run_id": run_id} for run_id, channel in tree.message_waits)]


def tree_tracebacks(tree: ProgressTree) -> list[str]:
    """Return the lines of the tracebacks of a failed run and its child runs, the innermost first."""
    from nerve.ui.failure_text import failed_run_lines

    views = [branch.view for _, branch in sorted(tree.branches.items(), reverse=True)]
    return [line for view in views for line in failed_run_lines(view)]


def gate_payloads(gates: Iterable[GateResponse]) -> list[dict[str, Any]]:
    payloads = [
        {**gate.model_dump(mode="json", exclude_none=True), "name": gate_display_name(gate)} for gate in gates
    ]
    return [{"choices": None} | gate for gate in payloads]


# -- output --------------------------------------------------------------------------------------------


def print_outcome(
    outcome: RunOutcome, common: CommonOptions, out: TextIO | None = None, has_server: bool = False
) -> int:
    """Print the outcome and how to continue the run; return the exit code."""
    if common.json:
        print(dump_safe_json(outcome.to_dict()), file=out)
    if not common.quiet or outcome.state in ("failed", "held"):
        for line in format_outcome(outcome, common, has_server):
            print(sanitize_text(line), file=sys.stderr)
    if outcome.state == "completed" and not common.json and (text := format_result(outcome.result)):
        print_result_text(text, out)
    return outcome.exit_code


def print_result_text(text: str, out: TextIO | None = None) -> None:
    """Print a result unchanged, or with control characters escaped if the output is a terminal."""
    out = out or sys.stdout
    print(sanitize_text(text) if out.isatty() else text, end="" if text.endswith("\n") else "\n", file=out)


def format_outcome(outcome: RunOutcome, common: CommonOptions, has_server: bool = False) -> list[str]:
    """Return the outcome as lines, with the command that continues the run."""
    run = f"run {outcome.run_id}"
    match outcome.state:
        case "completed" if outcome.continued_as is not None:
            return [f"✓ {run} continued as {outcome.continued_as}"]
        case "completed":
            return [f"✓ {run} completed"]
        case "failed":
            reason = failure_text(outcome.error, outcome.error_type, outcome.location)
            return [f"✗ {run} failed: {reason or 'no reason given'}", *outcome.tracebacks]
        case "cancelled":
            return [f"✗ {run} was cancelled" + (f": {outcome.error}" if outcome.error else "")]
        case "held":
            hold = outcome.held or {}
            options = " --with-changes" if hold.get("reason") == "mismatch" else ""
            if limit := hold.get("limit"):
                options = f" --limit {limit}=NUMBER"
            message = f"✗ {run} is held ({hold.get('reason', 'no reason')}): {hold.get('message', '')}"
            return [message, f"Resume with: {format_resume_command(common, outcome.run_id)}{options}"]
    return format_waiting_outcome(outcome, run, common, has_server)


def format_waiting_outcome(
    outcome: RunOutcome, run: str, common: CommonOptions, has_server: bool
) -> list[str]:
    """Return what a run waits for, one line each, and the commands that send it.

    Without a server, a signal alone does not continue the run; `resume` sends it and continues.
    """
    is_waiting = outcome.state not in PAUSED_STATES and (outcome.gates or outcome.waits)
    state = f"{outcome.state} {outcome.waiting_for}" if outcome.waiting_for else outcome.state
    output_lines = [f"⏸ {run} waits" if is_waiting else f"⏸ {run} is {state}"]
    options, commands = [], []
    for gate in outcome.gates:
        choices = gate["choices"] or []
        output_lines.append(
            f"  at gate '{gate['name']}': {indent_lines(gate['prompt'])}" + choices_suffix(choices)
        )
        form = gate.get("form")
        output_lines += [f"    {line}" for line in (gate.get("note") or "").splitlines()]
        output_lines += [f"    {line}" for line in form_field_lines(form or {})]
        options.append(f" --answer {shlex.quote(gate['name'] + '=' + example_answer(choices, form))}")
    for wait in outcome.waits:
        output_lines.append(f"  for {describe_wait_condition(wait)}")
        if "message" in wait:
            commands.append(["send", wait["run_id"], wait["message"], "VALUE", *file_options(common)])
        elif "signal" in wait and has_server:
            key = ["--key", wait["key"]] if "key" in wait else []
            commands.append(["signal", wait["signal"], "VALUE", *key])
        elif "signal" in wait:
            options.append(f" --answer {shlex.quote(wait['signal'] + '=TEXT')}")
    send_lines = [f"Send it with: {format_command(*words)}" for words in commands] if is_waiting else []
    if send_lines and not options:
        return [*output_lines, *send_lines]
    resume = f"Resume with: {format_resume_command(common, outcome.run_id)}{''.join(options)}"
    return [*output_lines, *send_lines, resume]


def describe_wait_condition(wait: dict[str, Any]) -> str:
    if "message" in wait:
        return f"message '{wait['message']}'"
    if "signal" not in wait:
        return f"fact {json.dumps(wait['fact'], ensure_ascii=False)}"
    return f"signal '{wait['signal']}'" + (f" with key '{wait['key']}'" if "key" in wait else "")


def choices_suffix(choices: Sequence[str]) -> str:
    return f" ({' or '.join(choices)})" if choices else ""
