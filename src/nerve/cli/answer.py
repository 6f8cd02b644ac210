"""`nerve answer`, `approve` and `reject`: answer an open gate of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass  # noqa: TID251 - cyclopts reads the signature
from typing import TYPE_CHECKING, Annotated, Any

from nerve.api import ApiError
from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.operations import KeyOption, ReasonOption
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter, WaitOption, format_command
from nerve.core.gates import GateMatch, match_gate_name, select_gates
from nerve.text import with_full_stop
from nerve.ui.gate_names import (
    APPROVE_WORDS,
    REJECT_WORDS,
    AmbiguousAnswer,
    gate_display_name,
    match_choice,
    resolve_typed_choice,
)

if TYPE_CHECKING:
    from nerve.api.models import GateResponse

GateOption = Annotated[
    str | None, Parameter(help="Gate id, name or path. Required if several gates are open.")
]
HashOption = Annotated[
    str | None, Parameter(help="The hash of the gate that you were shown: another question is not answered.")
]


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
