"""Open gates: a text that may be meant for one starts nothing; the user is asked to answer the gate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nerve.router.decision import Chosen, Decision, Question
from nerve.router.words import PREFIXED

YES_NO = frozenset(
    ["yes", "no", "y", "n", "ok", "approve", "approved", "accept", "reject", "rejected", "deny"]
)
"""Texts that answer a question, whatever its choices are."""
SHOWN = 3
"""Gates that are named at once."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gate that waits for an answer."""

    gate_id: str
    prompt: str
    answers: tuple[str, ...]
    """The choices, or the answers that are suggested."""
    run_id: str
    """The run that no other run called."""
    workflow: str
    """Its workflow."""

    def fits(self, text: str) -> bool:
        """Whether a text is one of the answers or its number, or a word that approves or rejects."""
        return plain(text) in YES_NO or self.answer_in(text) != "…"

    def answer_in(self, text: str) -> str:
        """The answer that a text is; "…" where the user must say which."""
        if not self.answers and plain(text) in YES_NO:
            return text.strip()
        numbered = enumerate(self.answers, start=1)
        return next((answer for at, answer in numbered if plain(text) in (plain(answer), str(at))), "…")

    def how(self, text: str) -> str:
        """The question, and the command that answers it."""
        prompt = " ".join(self.prompt.split())
        takes = f" ({' or '.join(self.answers)})" if self.answers else ""
        answer = f"/answer {self.gate_id} {self.answer_in(text)}"
        return f"'{prompt}'{takes} of {self.workflow}: answer with `{answer}`"


def plain(text: str) -> str:
    """A text as it is compared: without its case, and without what ends a sentence."""
    return text.strip().rstrip(".!").casefold()


def ask_for_gate(
    decision: Decision, waiting: Iterable[Waiting], watching: str | None = None
) -> Question | None:
    """The question that is asked instead of a decision, if the text may be meant for an open gate.

    It may be if it reads like an answer, or if the run that would be started is of the workflow that waits,
    or if the run that the user watches waits. A text that names its workflow by `%` is never meant for one.
    """
    text = decision.text
    if PREFIXED.fullmatch(text):
        return None
    gates = list(waiting)
    meant = [gate for gate in gates if gate.fits(text)]
    if not meant and isinstance(decision, Chosen):
        meant = [gate for gate in gates if gate.run_id == watching or gate.workflow == decision.workflow]
    if not meant:
        return None
    meant.sort(key=lambda gate: gate.run_id != watching)
    other = f" To start another run, write `%{decision.workflow} …`." if isinstance(decision, Chosen) else ""
    rows = "\n".join(f"- {gate.how(text)}" for gate in meant[:SHOWN])
    more = f"\n- … {len(meant) - SHOWN} more" if len(meant) > SHOWN else ""
    asked = f"Nothing was started, because a gate waits for an answer:\n\n{rows}{more}\n\n{other.strip()}"
    return Question(asked.rstrip(), text=text, by=decision.by, reason="a gate waits", usage=decision.usage)
