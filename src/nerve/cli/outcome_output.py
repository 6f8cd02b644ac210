"""Output of a run outcome: the result on standard output, everything else on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from nerve.cli.outcome import RunOutcome
from nerve.ui.failure_text import failure_text
from nerve.ui.json_forms import form_field_lines as fields
from nerve.ui.json_forms import format_example_answer
from nerve.ui.sanitize import dump_safe_json, indent_lines, sanitize_text

PAUSED_STATES = ("pausing", "paused")
"""States in which the run does not continue even if a gate is answered."""


def print_outcome(
    outcome: RunOutcome, resume_hint: str, as_json: bool, out: TextIO | None = None, quiet: bool = False
) -> int:
    """Print the outcome and how to resume the run; return the exit code."""
    if as_json:
        print(dump_safe_json(outcome.to_dict()), file=out)
    if not quiet or outcome.state in ("failed", "held"):
        for line in format_outcome(outcome, resume_hint):
            print(sanitize_text(line), file=sys.stderr)
    if outcome.state == "completed" and not as_json and (text := format_run_result(outcome.result)):
        print_result_text(text, out)
    return outcome.exit_code


def print_result_text(text: str, out: TextIO | None = None) -> None:
    """Print a result unchanged, or with control characters escaped if the output is a terminal."""
    out = out or sys.stdout
    print(sanitize_text(text) if out.isatty() else text, end="" if text.endswith("\n") else "\n", file=out)


def format_outcome(outcome: RunOutcome, resume_hint: str) -> list[str]:
    """Return the outcome as lines; `resume_hint` is the command that resumes the run."""
    run = f"run {outcome.run_id}"
    match outcome.state:
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
            return [message, f"Resume with: {resume_hint}{options}"]
    return format_waiting_outcome(outcome, run, resume_hint)


def format_waiting_outcome(outcome: RunOutcome, run: str, resume_hint: str) -> list[str]:
    """Return what a run waits for, one line each, and the command that answers and resumes."""
    is_waiting = outcome.state not in PAUSED_STATES and (outcome.gates or outcome.waits)
    state = f"{outcome.state} {outcome.waiting_for}" if outcome.waiting_for else outcome.state
    output_lines = [f"⏸ {run} waits" if is_waiting else f"⏸ {run} is {state}"]
    options = []
    for gate in outcome.gates:
        choices = gate["choices"] or []
        output_lines.append(
            f"  at gate '{gate['name']}': {indent_lines(gate['prompt'])}" + choices_suffix(choices)
        )
        form = gate.get("form")
        output_lines += [f"    {line}" for line in fields(form or {})]
        answer = choices[0] if choices else "TEXT" if form is None else format_example_answer(form)
        options.append(f" --answer {shlex.quote(gate['name'] + '=' + answer)}")
    for wait in outcome.waits:
        output_lines.append(f"  for {describe_wait_condition(wait)}")
        if "signal" in wait:
            options.append(f" --answer {shlex.quote(wait['signal'] + '=TEXT')}")
    return [*output_lines, f"Resume with: {resume_hint}{''.join(options)}"]


def describe_wait_condition(wait: dict[str, Any]) -> str:
    if "signal" not in wait:
        return f"fact {json.dumps(wait['fact'], ensure_ascii=False)}"
    return f"signal '{wait['signal']}'" + (f" with key '{wait['key']}'" if "key" in wait else "")


def choices_suffix(choices: Sequence[str]) -> str:
    return f" ({' or '.join(choices)})" if choices else ""


def format_run_result(result: Any) -> str:
    """Return a result as text: a string unchanged, None as "", everything else as JSON."""
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False, indent=2)
