"""Open gates: a message that may answer a gate starts no workflow; the user is asked to answer the gate."""

from __future__ import annotations

from collections.abc import Iterable

from nerve.core.gates import APPROVE_WORDS, REJECT_WORDS
from nerve.lazy_dataclass import dataclass
from nerve.router.decision import Decision, QuestionDecision, WorkflowDecision
from nerve.router.keyword_router import PREFIX_PATTERN

YES_NO_WORDS = frozenset((*APPROVE_WORDS, *REJECT_WORDS))
"""Messages that answer any gate, whatever its choices."""
MAX_GATES_SHOWN = 3
"""Maximum number of gates in one question."""


@dataclass(frozen=True, slots=True)
class WaitingGate:
    """An open gate."""

    gate_id: str
    prompt: str
    answers: tuple[str, ...]
    """The choices or the suggested answers."""
    run_id: str
    """The id of the root run."""
    workflow: str
    """The workflow of the root run."""

    def accepts(self, text: str) -> bool:
        """Whether a message is an answer, the number of an answer, or an approving or rejecting word."""
        return normalize_answer(text) in YES_NO_WORDS or self.matching_answer(text) != "…"

    def matching_answer(self, text: str) -> str:
        """Return the answer that a message selects; "…" if the user must choose."""
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
        """Return the prompt of the gate and the command that answers it."""
        prompt = " ".join(self.prompt.split())
        choices = f" ({' or '.join(self.answers)})" if self.answers else ""
        answer = f"/answer {self.gate_id} {self.matching_answer(text)}"
        return f"'{prompt}'{choices} of {self.workflow}: answer with `{answer}`"


def normalize_answer(text: str) -> str:
    """Return a message for comparison: casefolded, without final punctuation."""
    return text.strip().rstrip(".!").casefold()


def ask_for_gate(
    decision: Decision, waiting: Iterable[WaitingGate], watching: str | None = None
) -> QuestionDecision | None:
    """Return the question that replaces a decision if the message may answer an open gate, else None.

    It may if it reads like an answer, or if it would start the workflow of a waiting run, or if the run that
    the user watches is waiting. A message that starts with `%name` never answers a gate.
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
    reason = "No workflow was started, because a gate is waiting for an answer"
    question = f"{reason}:\n\n{rows}{more}\n\n{other.strip()}"
    return QuestionDecision(
        question.rstrip(), text=text, by=decision.by, reason="a gate is waiting", usage=decision.usage
    )
