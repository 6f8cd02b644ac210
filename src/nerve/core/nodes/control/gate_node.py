"""GateNode: waits for a person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nerve.core.checks import a_decision, a_text, texts, told
from nerve.core.gates import check_gate, taken
from nerve.core.nodes.base import Names
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.base import ControlNode, ask, at_least, holds, on_output, with_params
from nerve.core.result import REJECTED, Result, output_of, text_of
from nerve.core.runtime import Gate

PREVIEW = 200


class GateNode(ControlNode):
    """Asks `prompt` and gives the answer as its output.

    `choices` are the only answers it takes, `options` are hints, `form` is a JSON Schema that the answer
    fits. An answer that the `validator` refuses, or raises on, is asked for again with the reason,
    `attempts` times in all. After `timeout` seconds it fails with "Gate timeout".
    `auto_answer` answers at once, for tests and rehearsals. An answer in `reject` ends the run as cancelled:
    neither a retry nor an `on_error` takes it for a failure.
    """

    def __init__(
        self,
        id: str,
        session: Names,
        prompt: str | Callable[[Any], str],
        options: Sequence[str] | None = None,
        timeout: float | None = None,
        validator: Callable[[str], bool] | None = None,
        *,
        choices: Sequence[str] | None = None,
        form: Mapping[str, Any] | None = None,
        attempts: int = 3,
        auto_answer: str | None = None,
        reject: Sequence[str] = (),
        **policy: Any,
    ) -> None:
        if not callable(prompt) and not isinstance(prompt, str):
            raise ValueError(f"prompt of '{id}' is text, or a function of the input, not {told(prompt)}")
        if callable(prompt):
            a_decision(f"prompt of '{id}'", prompt)
        if validator is not None:
            a_decision(f"validator of '{id}'", validator)
        check_gate(f"'{id}'", timeout, options, choices, form)
        self.prompt, self.timeout, self.validator = prompt, timeout, validator
        self.options = list(options) if options is not None else None
        self.choices = list(choices) if choices is not None else None
        self.attempts, self.auto_answer = at_least(1, id, "attempts", attempts), auto_answer
        self.form, self.reject = form, tuple(texts(f"reject of '{id}'", reject) if reject else ())
        if unknown := [answer for answer in self.reject if choices is not None and answer not in choices]:
            raise ValueError(f"reject of '{id}' has {unknown[0]!r}, which is not one of its choices")
        if auto_answer is not None:
            taken(auto_answer, self.choices, form)
        super().__init__(id, session, **policy)
        self._auto_approve = False
        """Whether it answers itself; set from outside, by the tests of programs."""
        self._receivers: list[asyncio.Future[str]] = []

    async def execute(self, context: ExecutionContext) -> Result:
        note = None
        problem = "Invalid response"
        for _ in range(self.attempts):
            try:
                answer = await context.wait(self._gate(context, note))
            except TimeoutError:
                return Result.failed("Gate timeout", "TimeoutError")
            try:
                if self._accepts(answer, context):
                    return judge_answer(answer, self.reject, {"gate_input": answer})
                note, problem = f"'{answer}' was not accepted", "Invalid response"
            except Exception as error:
                note = f"'{answer}' was not accepted: {text_of(error.__cause__ or error)}"
                problem = f"Invalid response: {text_of(error)}"
        return Result.failed(problem, "InvalidResponse", answer)

    def _accepts(self, answer: Any, context: ExecutionContext) -> bool:
        if self.validator is None:
            return True
        return holds(self, "validator", with_params(self.validator, context), answer)

    def _gate(self, context: ExecutionContext, note: str | None) -> Gate:
        return Gate(
            context.take("answer"),
            self._asked(context),
            self.choices,
            self.options,
            self.timeout,
            self.id,
            preview(context.input),
            note,
            self._answer_of_its_own(context),
            self._receivers,
            form=self.form,
        )

    def _asked(self, context: ExecutionContext) -> str:
        if not callable(self.prompt):
            return self.prompt
        prompt = on_output(with_params(self.prompt, context))
        return str(a_text(f"prompt of '{self.id}'", ask(self, "prompt", prompt, context.input)))

    def _answer_of_its_own(self, context: ExecutionContext) -> str | None:
        if self.auto_answer is not None:
            return self.auto_answer
        if not (self._auto_approve or context.auto_approve):
            return None
        known = self.choices or self.options or ["approve"]
        answer = "approve" if "approve" in known else known[0]
        try:
            taken(answer, self.choices, self.form)
        except ValueError as error:
            raise ValueError(
                f"gate '{self.id}' cannot answer itself; give it an auto_answer. {error}"
            ) from None
        return answer

    def receive_input(self, input: str) -> None:
        """Answer the gate where it is executed without a run; from any thread."""
        waiting = [future for future in self._receivers if not future.done()]
        if not waiting:
            raise RuntimeError(f"gate '{self.id}' does not wait here; in a run, answer the run")
        answer = taken(input, self.choices, self.form)
        self._receivers[:] = waiting[1:]
        waiting[0].get_loop().call_soon_threadsafe(answer_to, waiting[0], answer)


def judge_answer(answer: Any, reject: Sequence[str], attributes: dict[str, Any]) -> Result:
    """What a gate gives for an answer: the answer, or a rejection."""
    if answer in reject:
        return Result.failed(f"rejected: {answer}", REJECTED, answer, attributes)
    return Result.ok(answer, attributes)


def preview(input: Any) -> str:
    """The beginning of what a gate is asked about."""
    shown = output_of(input)
    if shown is None:
        return ""
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)
    return text[:PREVIEW]


def answer_to(waiting: asyncio.Future[str], answer: str) -> None:
    if not waiting.done():
        waiting.set_result(answer)
