"""A conversation of one step with an agent: turns until there is an answer or a failure."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nerve.agents.agent_request import AgentRequest
from nerve.agents.human_requests import HumanRequests
from nerve.agents.permissions import Permissions
from nerve.agents.provider import Capabilities, Provider, QueryOptions, TurnFinished
from nerve.agents.provider_slots import ProviderSlot, ProviderSlots
from nerve.agents.redaction import Redactor
from nerve.agents.structured_output import MAX_ANSWER_ATTEMPTS, prompt_with_schema, retry_prompt
from nerve.agents.turn_output import TurnOutput
from nerve.agents.turn_usage import UNKNOWN_USAGE, add_usage, usage_entry
from nerve.core.json_codec import replace_invalid_text
from nerve.core.json_schema import find_validation_error, parse_json_answer
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.safe_path import resolve_inside

INTERRUPTED_PROMPT = (
    "You were interrupted before you finished. Continue your task; if it is already done, give your final"
    " answer again. The task was:\n\n"
)
WITHOUT_HISTORY = "the agent starts without the earlier conversation"
STEERING_HEADING = "While you worked on it, you also received these messages:"


@dataclass(slots=True)
class AgentConversation:
    """The request of one step to an agent, and its state so far."""

    context: ExecutionContext
    name: str
    provider: Provider
    request: AgentRequest
    options: QueryOptions
    permissions: Permissions
    provider_slots: ProviderSlots
    redactor: Redactor
    fallback: Callable[[], Provider] | None = None
    """The provider to query while the first one is rate limited; resolved on first use."""
    forks_thread: bool = False
    """Whether the step continues in a copy of the previous conversation."""
    shares_thread: bool = False
    """Whether the step continues a previous conversation at all, with any provider."""
    thread: str | None = None
    forked_thread: str | None = None
    """The conversation to fork, until the fork exists."""
    interrupted_thread: str | None = None
    """The conversation that a crash interrupted: it is resumed, or started if it does not exist yet."""
    usage: dict[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How many turns were started, including those of earlier attempts."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    turn_outputs: list[TurnOutput] = field(default_factory=list)
    slot: ProviderSlot | None = None
    interrupted_record: Mapping[str, Any] | None = None
    """The last record of an earlier attempt that did not finish."""
    last_record: Mapping[str, Any] | None = None
    limited_provider: str = ""
    """The rate-limited provider, if the fallback is in use."""
    is_new_fallback: bool = False
    """Whether the fallback has not answered yet, and does not know the task."""
    refusals_before: int = 0
    """The provider's refusal count when it was last queried."""

    async def result(self) -> Result:
        """Return the answer, as structured data if the request has a schema."""
        schema = self.request.schema
        self.restore_state()
        further: str | None = None
        for _ in range(MAX_ANSWER_ATTEMPTS if schema else 1):
            done = await self.run_turns(further)
            if done.outcome != "completed":
                await self.record_usage()
                return self.finish_result(
                    Result.failed(done.error or done.outcome, ERROR_TYPE_BY_OUTCOME[done.outcome])
                )
            if schema is None:
                return self.finish_result(Result.ok())
            answer, problem = (
                (done.structured, "") if done.structured is not None else parse_json_answer(self.output)
            )
            problem = problem or find_validation_error(answer, schema)
            if not problem:
                if not (result := Result.ok(answer).with_reported_failure()).success:
                    await self.record_usage()
                return self.finish_result(result)
            await self.record_usage()
            further = retry_prompt(problem, schema)
        return self.finish_result(
            Result.failed(f"The answer does not match its schema: {problem}", "SchemaMismatch")
        )

    @property
    def capabilities(self) -> Capabilities:
        return getattr(self.provider, "capabilities", Capabilities(resume=True))

    @property
    def usage_so_far(self) -> dict[str, Any]:
        """The usage of the step so far."""
        return {**self.usage, "turns": self.turns}

    @property
    def output(self) -> str:
        return self.turn_outputs[-1].output if self.turn_outputs else ""

    def restore_state(self) -> None:
        """Restore the conversation to resume: that of an interrupted attempt, or of a previous step."""
        leaf = self.context.leaf_runtime
        self.interrupted_record = leaf.last_recorded("agent_thread") if leaf.is_restarted else None
        if self.interrupted_record is not None:
            self.usage = dict(self.interrupted_record.get("usage") or {})
            self.turns = self.usage.pop("turns", 0)
            self.usage.pop("agents", None)
        self.choose_thread(self.request.resume)

    def choose_thread(self, previous_thread: str | None) -> None:
        """Select the previous conversation, or the interrupted one if it belongs to this provider."""
        record = self.interrupted_record or {}
        own_record = (
            record if record.get("provider") == self.provider.name and self.capabilities.resume else {}
        )
        self.thread, self.forked_thread, self.interrupted_thread, self.totals = (
            previous_thread,
            None,
            None,
            {},
        )
        if own_record and own_record.get("forks") is None:
            self.thread = self.interrupted_thread = own_record["thread"]
            self.totals = own_record.get("totals") or {}
        elif previous_thread is not None and not self.capabilities.resume:
            self.emit_log(f"{self.provider.name} does not store conversations: {WITHOUT_HISTORY}")
            self.thread = None
        elif previous_thread is not None:
            self.fork_thread(previous_thread)

    def fork_thread(self, previous_thread: str) -> None:
        """Fork the previous conversation if it must not change; one inherited from another run never may."""
        inherited_thread = self.context.leaf_runtime.threads.find_inherited(previous_thread)
        if inherited_thread is not None and not self.capabilities.fork:
            self.emit_log(
                f"{self.provider.name} cannot fork the conversation of the previous run: {WITHOUT_HISTORY}"
            )
            self.thread = None
            return
        if inherited_thread is not None:
            self.totals = inherited_thread.totals
            if inherited_thread.has_grown:
                self.emit_log(
                    "the conversation continued in the previous run; the fork includes those messages"
                )
        if inherited_thread is not None or self.forks_thread:
            self.forked_thread = previous_thread

    def prompt(self, further: str | None) -> str:
        """Return the new message, or the complete task for an agent that does not know it yet."""
        if further is not None and self.capabilities.resume and not self.is_new_fallback:
            return further
        text = prompt_with_messages(
            self.request.prompt,
            self.context.leaf_runtime.steering_so_far() if self.context.leaf_runtime.is_restarted else [],
        )
        if further is not None and further not in text:
            text = f"{text}\n\n{further}"
        schema = self.request.schema
        if schema and not self.capabilities.schema and prompt_with_schema("", schema) not in text:
            text = prompt_with_schema(text, schema)
        return INTERRUPTED_PROMPT + text if self.interrupted_thread is not None else text

    async def run_turns(self, further: str | None) -> TurnFinished:
        """Run one turn, and further turns for user messages that the agent has not received yet."""
        leaf = self.context.leaf_runtime
        leaf.steering = asyncio.Queue() if self.capabilities.resume or self.capabilities.steer else None
        try:
            done = await self.run_turn(further)
            while (
                done.outcome == "completed"
                and self.capabilities.resume
                and (message := drain_messages(leaf.steering))
            ):
                await self.record_usage()
                done = await self.run_turn(message)
        finally:
            leaf.steering = None
        return done

    async def run_turn(self, further: str | None) -> TurnFinished:
        """Run one turn; a rate limit blocks every step of the provider until it ends."""
        while True:
            await self.wait_until_available()
            await self.context.leaf_runtime.wait_for_budget(self.usage_so_far)
            done = await self.run_turn_in_slot(self.prompt(further))
            if done is not None and done.outcome != "limited":
                self.is_new_fallback = False
                if self.provider_slots.mark_available(self.provider.name):
                    self.emit_available(over=True)
                return done
            if done is not None:
                self.provider_slots.mark_limited(self.provider.name, done.resets_at, self.refusals_before)
                await self.record_usage()

    async def run_turn_in_slot(self, prompt: str) -> TurnFinished | None:
        """Run a turn in a slot; None if the provider is rate limited or a budget is exhausted by then."""
        leaf = self.context.leaf_runtime
        async with AsyncExitStack() as stack:
            with leaf.timers_paused(self.context.path):
                slot_context = self.provider_slots.acquire(self.provider.name, self.thread)
                self.slot = await stack.enter_async_context(slot_context)
            if self.provider_slots.is_limited(self.provider.name) or not leaf.begin_turn(self.usage_so_far):
                return None
            self.refusals_before = self.provider_slots.refusals(self.provider.name)
            try:
                return await self.query_provider(prompt)
            finally:
                leaf.end_turn(self.usage_so_far)

    async def use_fallback(self) -> None:
        """Switch to the fallback provider if there is one and the first is rate limited."""
        until = self.provider_slots.limited.get(self.provider.name, 0.0)
        if self.fallback is None or until <= time.time():
            return
        other, self.fallback = self.fallback(), None
        if other is not self.provider:
            await self.emit_limit(until)
            self.emit_available()
            self.emit_log(f"{self.provider.name} is rate limited: using {other.name} instead")
            self.limited_provider, self.provider, self.is_new_fallback = self.provider.name, other, True
            previous_thread = (
                self.context.leaf_runtime.threads.last.get((self.name, other.name))
                if self.shares_thread
                else None
            )
            self.request = replace(self.request, model=None)  # the model name belongs to the first provider
            self.options = replace(self.options, model=None)
            self.choose_thread(previous_thread)

    async def wait_until_available(self) -> None:
        """Return when the provider is not rate limited, or the fallback takes over."""
        await self.use_fallback()
        with self.context.leaf_runtime.timers_paused(self.context.path):
            if await self.provider_slots.wait_until_available(self.provider.name, self.emit_limit):
                self.emit_available()

    async def query_provider(self, prompt: str) -> TurnFinished:
        request, options = self.request, self.query_options()
        if self.thread is not None or self.context.leaf_runtime.is_restarted:
            await self.provider_slots.wait_for_orphans()
        turn_output = TurnOutput(self.context, self.on_thread_started, self.redactor)
        self.turn_outputs.append(turn_output)
        usage_before, turns_before = self.usage, self.turns
        self.turns += 1
        self.usage = add_usage(usage_before, UNKNOWN_USAGE)  # until the agent reports its usage
        if (thread := options.thread or self.thread) is not None:
            await self.record_thread(thread)
        if request.artifacts:
            make_artifact_folder(request.cwd, request.artifacts)
        resume = self.thread if self.capabilities.resume else None
        try:
            done = await turn_output.consume(self.provider.query(prompt, request.cwd, resume, options))
        except asyncio.CancelledError:
            model = getattr(turn_output.usage, "model", None) or request.model
            self.context.emit("usage", UNKNOWN_USAGE | ({"model": model} if model else {}))
            raise
        self.thread, self.totals, self.forked_thread = done.thread, done.totals, None
        if turn_output.was_refused:
            self.usage, self.turns = usage_before, turns_before
            return done
        turn_usage = usage_entry(turn_output.usage, self.provider.name, request.model)
        if turn_usage:
            self.context.emit("usage", turn_usage)
        self.usage = add_usage(usage_before, turn_usage or UNKNOWN_USAGE)
        return done

    async def record_usage(self) -> None:
        if self.turn_outputs and (thread := self.turn_outputs[-1].thread or self.thread):
            await self.record_thread(thread)

    async def on_thread_started(self, thread: str) -> None:
        """Record the new conversation; a restart resumes this one."""
        self.forked_thread = None
        await self.record_thread(thread)

    async def record_thread(self, thread: str) -> None:
        """Record the usage so far on disk, so that a retry neither loses nor double-counts it."""
        data = {
            "thread": thread,
            "provider": self.provider.name,
            "totals": dict(self.totals) if thread == self.thread or self.forked_thread is not None else {},
            "usage": {**self.usage_so_far, "agents": 1},
        }
        if self.forked_thread is not None:
            data["forks"] = self.forked_thread  # a crash leaves it unknown whether the fork was created
        if data != self.last_record:
            await self.context.leaf_runtime.record(self.context.path, "agent_thread", data)
            self.last_record = data
        self.context.leaf_runtime.is_restarted = True

    def query_options(self) -> QueryOptions:
        human_requests = HumanRequests(
            self.context,
            self.name,
            self.permissions,
            self.request.cwd or "",
            self.redactor,
            self.slot.released if self.slot is not None else nullcontext,
        )
        fork, thread = self.forked_thread is not None, self.interrupted_thread
        if self.capabilities.names_threads and (fork or self.thread is None):
            thread = str(uuid.uuid4())
        return replace(
            self.options,
            thread=thread,
            fork=fork,
            totals=self.totals or self.context.leaf_runtime.threads.totals.get(self.thread or "", {}),
            ask=human_requests.permission_decider,
            steering=self.context.leaf_runtime.steering if self.capabilities.steer else None,
            host_tools=human_requests.tools if self.capabilities.host_tools else {},
        )

    def emit_log(self, message: str) -> None:
        self.context.emit("log", {"message": message})

    async def emit_limit(self, until: float) -> None:
        reset_time = datetime.fromtimestamp(until).astimezone().strftime("%H:%M")
        data = {"provider": self.provider.name, "until": until}
        message = f"held: {self.provider.name} limit until {reset_time}"
        await self.context.leaf_runtime.record(
            self.context.path, "provider_limited", data | {"message": message}
        )

    def emit_available(self, **more: bool) -> None:
        self.context.emit("provider_open", {"provider": self.provider.name, **more})

    def finish_result(self, result: Result) -> Result:
        """Return the result with the attributes of the conversation."""
        if result.output is None:
            result["output"] = self.output
        result["output"] = replace_invalid_text(result.output)
        attributes: dict[str, Any] = {
            "provider": self.provider.name,
            "thread": self.thread,
            "model": self.request.model,
            "tools": sum(turn_output.tool_count for turn_output in self.turn_outputs),
        }
        if self.limited_provider:
            attributes["instead_of"] = self.limited_provider
        if self.turns:
            attributes["usage"] = {**self.usage_so_far, "agents": 1}
        if self.totals:
            attributes["totals"] = dict(self.totals)
        if dropped := sum(turn_output.dropped_chars for turn_output in self.turn_outputs):
            attributes["dropped_characters"] = dropped
        result["attributes"] = attributes
        return result


def prompt_with_messages(prompt: str, messages: Sequence[str]) -> str:
    """Append the user's later messages to a prompt: which of them the agent received is unknown."""
    return "\n\n".join([prompt, STEERING_HEADING, *messages]) if messages else prompt


def drain_messages(queue: asyncio.Queue[str] | None) -> str:
    messages: list[str] = []
    while queue is not None and not queue.empty():
        messages.append(queue.get_nowait())
    return "\n\n".join(messages)


def make_artifact_folder(cwd: str | None, folder: str) -> None:
    resolve_inside(Path(cwd or "."), folder).mkdir(parents=True, exist_ok=True)


ERROR_TYPE_BY_OUTCOME = {"interrupted": "Interrupted", "failed": "AgentFailed", "limited": "ProviderLimited"}
