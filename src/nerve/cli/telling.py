"""Telling how a run was left: its result on standard output, everything else on standard error."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from nerve.cli.outcome import Outcome
from nerve.commander.core.forms import example
from nerve.commander.core.forms import lines as fields
from nerve.commander.core.harmless import harmless, in_json, indent_lines

STILL = ("pausing", "paused")
"""States in which nothing goes on, whatever is answered."""


def tell(outcome: Outcome, again: str, as_json: bool, out: TextIO | None = None, quiet: bool = False) -> int:
    """Say how it ended and how to go on; the exit code."""
    if as_json:
        print(in_json(outcome.to_dict()), file=out)
    if not quiet or outcome.state in ("failed", "held"):
        for line in lines(outcome, again):
            print(harmless(line), file=sys.stderr)
    if outcome.state == "completed" and not as_json and (text := shown(outcome.result)):
        result(text, out)
    return outcome.code


def result(text: str, out: TextIO | None = None) -> None:
    """What was asked for, as it is; a terminal may see only what is harmless."""
    out = out or sys.stdout
    print(harmless(text) if out.isatty() else text, end="" if text.endswith("\n") else "\n", file=out)


def lines(outcome: Outcome, again: str) -> list[str]:
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
            held = outcome.held or {}
            options = " --with-changes" if held.get("reason") == "mismatch" else ""
            if limit := held.get("limit"):
                options = f" --limit {limit}=NUMBER"
            told = f"✗ {run} is held ({held.get('reason', 'no reason')}): {held.get('message', '')}"
            return [told, f"Go on with: {again}{options}"]
    return waiting(outcome, run, again)


def waiting(outcome: Outcome, run: str, again: str) -> list[str]:
    """What a run waits for, one line each, and the command that answers."""
    waits = outcome.state not in STILL and (outcome.gates or outcome.waits)
    told = [f"⏸ {run} waits" if waits else f"⏸ {run} is {outcome.state}"]
    options = []
    for gate in outcome.gates:
        choices = gate["choices"] or []
        told.append(f"  at gate '{gate['name']}': {indent_lines(gate['prompt'])}" + alternatives(choices))
        form = gate.get("form")
        told += [f"    {line}" for line in fields(form or {})]
        answer = choices[0] if choices else "TEXT" if form is None else example(form)
        options.append(f" --answer {shlex.quote(gate['name'] + '=' + answer)}")
    for wait in outcome.waits:
        told.append(f"  for {described(wait)}")
        if "signal" in wait:
            options.append(f" --answer {shlex.quote(wait['signal'] + '=TEXT')}")
    return [*told, f"Go on with: {again}{''.join(options)}"]


def described(wait: dict[str, Any]) -> str:
    if "signal" not in wait:
        return f"the fact {json.dumps(wait['fact'], ensure_ascii=False)}"
    return f"the signal '{wait['signal']}'" + (f" with the key '{wait['key']}'" if "key" in wait else "")


def alternatives(choices: Sequence[str]) -> str:
    return f" ({' or '.join(choices)})" if choices else ""


def shown(result: Any) -> str:
    """A result as text: a text as it is, nothing for nothing, anything else as JSON."""
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False, indent=2)
