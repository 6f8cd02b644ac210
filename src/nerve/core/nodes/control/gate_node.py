"""GateNode: waits for a person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.gates import check_gate_settings, validate_answer
from nerve.core.nodes.base import NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.common import (
    ControlNode,
    bind_params,
    call_user_function,
    evaluate_user_condition,
    require_at_least,
    wrap_output_function,
)
from nerve.core.nodes.workspace import read_files
from nerve.core.result import REJECTED_ERROR_TYPE, Result, error_text, result_output
from nerve.core.runtime import GateWait
from nerve.core.validation import describe_value, require_str, require_str_list, require_sync_callable

if TYPE_CHECKING:
    from nerve.core.gate_policy import GatePolicy

INPUT_PREVIEW_CHARS = 200
POLICY_SETTINGS = ("approvers", "quorum", "veto", "self_approval", "author", "claim", "remind", "escalate")
"""The settings that make the policy of a gate; the others are those of any node."""


class GateNode(ControlNode):
    """Asks `prompt`; its output is the answer.

    `choices` are the only accepted answers, `options` are hints, `form` is a JSON Schema for the answer. If
    the `validator` rejects an answer or raises, the gate asks again with the reason, up to `attempts` times
    in all. After `timeout` seconds it fails with "Gate timeout".
    `auto_answer` answers at once, for tests and rehearsals. An answer in `reject` ends the run as cancelled:
    neither `retry` nor `on_error` handles it. `approvers`, `quorum`, `veto`, `self_approval`, `author`,
    `claim`, `remind` and `escalate` are the policy of the gate, as in `ctx.gate`.
    """

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
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
            raise ValueError(
                f"prompt of '{id}' must be a string or a function of the input, got {describe_value(prompt)}"
            )
        if callable(prompt):
            require_sync_callable(f"prompt of '{id}'", prompt)
        if validator is not None:
            require_sync_callable(f"validator of '{id}'", validator)
        check_gate_settings(f"'{id}'", timeout, options, choices, form)
        self.prompt, self.timeout, self.validator = prompt, timeout, validator
        self.options = list(options) if options is not None else None
        self.choices = list(choices) if choices is not None else None
        self.attempts, self.auto_answer = require_at_least(1, id, "attempts", attempts), auto_answer
        self.form, self.reject = form, tuple(require_str_list(f"reject of '{id}'", reject) if reject else ())
        if unknown := [answer for answer in self.reject if choices is not None and answer not in choices]:
            raise ValueError(f"reject of '{id}' contains {unknown[0]!r}, which is not one of its choices")
        if auto_answer is not None:
            validate_answer(auto_answer, self.choices, form)
        settings = {name: policy.pop(name) for name in POLICY_SETTINGS if name in policy}
        self.gate_policy = make_gate_policy(id, settings, self.reject, choices is not None)
        super().__init__(id, session, **policy)
        self._auto_approve = False
        """Whether it is answered automatically; tests of user code set it."""
        self._receivers: list[asyncio.Future[str]] = []

    async def execute(self, context: ExecutionContext) -> Result:
        note = None
        problem = "Invalid response"
        remaining = self.attempts
        while remaining:
            files = await read_files(context, context.next_internal_path("files"))
            try:
                answer = await context.wait(
                    GateWait(
                        context.next_path("answer"),
                        self._prompt_text(context),
                        self.choices,
                        self.options,
                        self.timeout,
                        self.id,
                        preview_input(context.input) if files is None else files["diff"],
                        note,
                        self._automatic_answer(context),
                        self._receivers,
                        form=self.form,
                        policy=self.gate_policy,
                    )
                )
            except TimeoutError:
                return Result.failed("Gate timeout", "TimeoutError")
            # The answer is about the files that were shown, and about no others.
            now = await read_files(context, context.next_internal_path("files"))
            if files is not None and now is not None and files["tree"] != now["tree"]:
                note = f"'{answer}' was for other files: they have changed since the question was asked"
                continue
            remaining -= 1
            try:
                if self._accepts(answer, context):
                    if context.workspace is not None:
                        context.workspace.evidence.note_approval(files)
                    tree = {} if files is None else {"tree": files["tree"]}
                    return answer_result(answer, self.reject, {"gate_input": answer, **tree})
                note, problem = f"'{answer}' was not accepted", "Invalid response"
            except Exception as error:
                note = f"'{answer}' was not accepted: {error_text(error.__cause__ or error)}"
                problem = f"Invalid response: {error_text(error)}"
        return Result.failed(problem, "InvalidResponse", answer)

    def _accepts(self, answer: Any, context: ExecutionContext) -> bool:
        if self.validator is None:
            return True
        return evaluate_user_condition(self, "validator", bind_params(self.validator, context), answer)

    def _prompt_text(self, context: ExecutionContext) -> str:
        if not callable(self.prompt):
            return self.prompt
        prompt = wrap_output_function(bind_params(self.prompt, context))
        return str(
            require_str(f"prompt of '{self.id}'", call_user_function(self, "prompt", prompt, context.input))
        )

    def _automatic_answer(self, context: ExecutionContext) -> str | None:
        if self.auto_answer is not None:
            return self.auto_answer
        if not (self._auto_approve or context.auto_approve):
            return None
        answers = self.choices or self.options or ["approve"]
        answer = "approve" if "approve" in answers else answers[0]
        try:
            validate_answer(answer, self.choices, self.form)
        except ValueError as error:
            raise ValueError(
                f"Gate '{self.id}' cannot be answered automatically; set auto_answer. {error}"
            ) from None
        return answer

    def receive_input(self, input: str) -> None:
        """Answer the gate when it is executed without a run; thread-safe."""
        open_futures = [future for future in self._receivers if not future.done()]
        if not open_futures:
            raise RuntimeError(f"Gate '{self.id}' is not waiting here; if a run executes it, answer the run")
        answer = validate_answer(input, self.choices, self.form)
        self._receivers[:] = open_futures[1:]
        open_futures[0].get_loop().call_soon_threadsafe(settle_answer, open_futures[0], answer)


def make_gate_policy(
    id: str, settings: dict[str, Any], reject: Sequence[str], has_choices: bool
) -> GatePolicy | None:
    """Return the policy of a gate node; None without settings."""
    if not settings:
        return None
    from nerve.core.gate_policy import read_gate_policy  # few gates have a policy

    return read_gate_policy(f"'{id}'", settings, reject, has_choices)


def answer_result(answer: Any, reject: Sequence[str], attributes: dict[str, Any]) -> Result:
    """Return the result of a gate for an answer: the answer, or a rejection."""
    if answer in reject:
        return Result.failed(f"rejected: {answer}", REJECTED_ERROR_TYPE, answer, attributes)
    return Result.ok(answer, attributes)


def preview_input(input: Any) -> str:
    """Return the beginning of the input of a gate."""
    output = result_output(input)
    if output is None:
        return ""
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
    return text[:INPUT_PREVIEW_CHARS]


def settle_answer(future: asyncio.Future[str], answer: str) -> None:
    if not future.done():
        future.set_result(answer)
