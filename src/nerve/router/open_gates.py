"""Open gates: a text that may be meant for one starts nothing; the user is asked to answer the gate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nerve.router.decision import Decision, QuestionDecision, WorkflowDecision
from nerve.router.keyword_router import PREFIX_PATTERN

YES_NO_WORDS = frozenset(
    ["yes", "no", "y", "n", "ok", "approve", "approved", "accept", "reject", "rejected", "deny"]
)
"""Texts that answer a question, whatever its choices are."""
MAX_GATES_SHOWN = 3
"""Gates that are named at once."""


@dataclass(frozen=True, slots=True)
class WaitingGate:
    """A gate that waits for an answer."""

    gate_id: str
    prompt: str
    answers: tuple[str, ...]
    """The choices, or the answers that are suggested."""
    run_id: str
    """The run that no other run called."""
    workflow: str
    """Its workflow."""

    def accepts(self, text: str) -> bool:
        """Whether a text is one of the answers or its number, or a word that approves or rejects."""
        return normalize_answer(text) in YES_NO_WORDS or self.matching_answer(text) != "…"

    def matching_answer(self, text: str) -> str:
        """The answer that a text is; "…" where the user must say which."""
        if not self.answers and normalize_answer(text) in YES_NO_WORDS:
            return text.strip()
        numbered = enumerate(self.answers, start=1)
        return next(
            (
                answer
                for at, answer in numbered
                if normalize_answer(text) in (normalize_answer(answer), str(at))
            ),
            "…",
        )

    def answer_instruction(self, text: str) -> str:
        """The question, and the command that answers it."""
        prompt = " ".join(self.prompt.split())
        takes = f" ({' or '.join(self.answers)})" if self.answers else ""
        answer = f"/answer {self.gate_id} {self.matching_answer(text)}"
        return f"'{prompt}'{takes} of {self.workflow}: answer with `{answer}`"


def normalize_answer(text: str) -> str:
    """A text as it is compared: without its case, and without what ends a sentence."""
    return text.strip().rstrip(".!").casefold()


def ask_for_gate(
    decision: Decision, waiting: Iterable[WaitingGate], watching: str | None = None
) -> QuestionDecision | None:
    """The question that is asked instead of a decision, if the text may be meant for an open gate.

    It may be if it reads like an answer, or if the run that would be started is of the workflow that waits,
    or if the run that the user watches waits. A text that names its workflow by `%` is never meant for one.
    """
    text = decision.text
    if PREFIX_PATTERN.fullmatch(text):
        return None
    gates = list(waiting)
    matching_gates = [gate for gate in gates if gate.accepts(text)]
    if not matching_gates and isinstance(decision, WorkflowDecision):
        matching_gates = [
            gate for gate in gates if gate.run_id == watching or gate.workflow == decision.workflow
        ]
    if not matching_gates:
        return None
    matching_gates.sort(key=lambda gate: gate.run_id != watching)
    other = (
        f" To start another run, write `%{decision.workflow} …`."
        if isinstance(decision, WorkflowDecision)
        else ""
    )
    rows = "\n".join(f"- {gate.answer_instruction(text)}" for gate in matching_gates[:MAX_GATES_SHOWN])
    more = (
        f"\n- … {len(matching_gates) - MAX_GATES_SHOWN} more" if len(matching_gates) > MAX_GATES_SHOWN else ""
    )
    question = f"Nothing was started, because a gate waits for an answer:\n\n{rows}{more}\n\n{other.strip()}"
    return QuestionDecision(
        question.rstrip(), text=text, by=decision.by, reason="a gate waits", usage=decision.usage
    )
