"""Telling how a run was left: its result on standard output, everything else on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from nerve.cli.outcome import RunOutcome
from nerve.ui.json_forms import form_field_lines as fields
from nerve.ui.json_forms import format_example_answer
from nerve.ui.sanitize import dump_safe_json, indent_lines, sanitize_text

PAUSED_STATES = ("pausing", "paused")
"""States in which nothing goes on, whatever is answered."""


def print_outcome(
    outcome: RunOutcome, resume_hint: str, as_json: bool, out: TextIO | None = None, quiet: bool = False
) -> int:
    """Say how it ended and how to go on; the exit code."""
    if as_json:
        print(dump_safe_json(outcome.to_dict()), file=out)
    if not quiet or outcome.state in ("failed", "held"):
        for line in format_outcome(outcome, resume_hint):
            print(sanitize_text(line), file=sys.stderr)
    if outcome.state == "completed" and not as_json and (text := format_run_result(outcome.result)):
        print_result_text(text, out)
    return outcome.exit_code


def print_result_text(text: str, out: TextIO | None = None) -> None:
    """What was asked for, as it is; a terminal may see only what is harmless."""
    out = out or sys.stdout
    print(sanitize_text(text) if out.isatty() else text, end="" if text.endswith("\n") else "\n", file=out)


def format_outcome(outcome: RunOutcome, resume_hint: str) -> list[str]:
    """What a person is told; `again` is the command that goes on."""
    run = f"run {outcome.run_id}"
    match outcome.state:
        case "completed":
            return [f"✓ {run} completed"]
        case "failed":
            return [f"✗ {run} failed: {outcome.error or 'no reason was given'}"]
        case "cancelled":
            return [f"✗ {run} was cancelled" + (f": {outcome.error}" if outcome.error else "")]
        case "held":
            hold = outcome.held or {}
            options = " --with-changes" if hold.get("reason") == "mismatch" else ""
            if limit := hold.get("limit"):
                options = f" --limit {limit}=NUMBER"
            message = f"✗ {run} is held ({hold.get('reason', 'no reason')}): {hold.get('message', '')}"
            return [message, f"Go on with: {resume_hint}{options}"]
    return format_waiting_outcome(outcome, run, resume_hint)


def format_waiting_outcome(outcome: RunOutcome, run: str, resume_hint: str) -> list[str]:
    """What a run waits for, one line each, and the command that answers."""
    is_waiting = outcome.state not in PAUSED_STATES and (outcome.gates or outcome.waits)
    output_lines = [f"⏸ {run} waits" if is_waiting else f"⏸ {run} is {outcome.state}"]
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
    return [*output_lines, f"Go on with: {resume_hint}{''.join(options)}"]


def describe_wait_condition(wait: dict[str, Any]) -> str:
    if "signal" not in wait:
        return f"the fact {json.dumps(wait['fact'], ensure_ascii=False)}"
    return f"the signal '{wait['signal']}'" + (f" with the key '{wait['key']}'" if "key" in wait else "")


def choices_suffix(choices: Sequence[str]) -> str:
    return f" ({' or '.join(choices)})" if choices else ""


def format_run_result(result: Any) -> str:
    """A result as text: a text as it is, nothing for nothing, anything else as JSON."""
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False, indent=2)
