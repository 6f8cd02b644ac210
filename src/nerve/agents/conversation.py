"""A conversation of one step with an agent: turns until there is an answer or a failure."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from nerve.agents.agent_request import AgentRequest, prompt_with_messages, prompt_with_schema, retry_prompt
from nerve.agents.agent_tool import ASK_HUMAN, AgentTool, ToolRecorder
from nerve.agents.human_requests import HumanRequests
from nerve.agents.provider import Capabilities, HostTool, Provider, QueryOptions, TurnFinished
from nerve.agents.provider_slots import ProviderSlot, ProviderSlots
from nerve.agents.rate_limits import limit_message
from nerve.agents.redaction import Redactor
from nerve.agents.setting_support import PreparedOptions, describe_context
from nerve.agents.turn_output import TurnOutput
from nerve.agents.turn_usage import UNKNOWN_USAGE, add_usage, usage_entry
from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import replace_invalid_text
from nerve.core.json_schema import find_validation_error, parse_json_answer
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.safe_path import resolve_inside
from nerve.core.steering import SteeringQueue
from nerve.lazy_dataclass import dataclass

INTERRUPTED_PROMPT = (
    "You were interrupted before you finished. Continue your task; if it is already done, give your final"
    " answer again. The task was:\n\n"
)
WITHOUT_HISTORY = "the agent starts without the earlier conversation"
MAX_ANSWER_ATTEMPTS = 3
"""Maximum number of turns to get an answer that matches the schema."""
ERROR_TYPE_BY_OUTCOME = {"interrupted": "Interrupted", "failed": "AgentFailed", "limited": "ProviderLimited"}


@dataclass(slots=True)
class ConversationState:
    """The thread of a conversation and what it has used so far; a restart restores it from the journal."""

    thread: str | None = None
    forked_thread: str | None = None
    """The thread to fork, until the fork exists."""
    interrupted_thread: str | None = None
    """The thread that a crash interrupted: it is resumed, or started if it does not exist yet."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    turns: int = 0
    """How many turns were started, including those of earlier attempts."""

    @classmethod
    def restore(cls, record: Mapping[str, Any] | None) -> ConversationState:
        """Return the state with the usage of an earlier attempt."""
        usage = dict((record or {}).get("usage") or {})
        usage.pop("agents", None)
        return cls(turns=usage.pop("turns", 0), usage=usage)

    def to_record(self, thread: str, provider: str) -> dict[str, Any]:
        record: dict[str, Any] = {
            "thread": thread,
            "provider": provider,
            "totals": dict(self.totals) if thread == self.thread or self.forked_thread is not None else {},
            "usage": {**self.usage_so_far, "agents": 1},
        }
        if self.forked_thread is not None:
            record["forks"] = self.forked_thread  # a crash leaves it unknown whether the fork was created
        return record

    @property
    def usage_so_far(self) -> dict[str, Any]:
        return {**self.usage, "turns": self.turns}


@dataclass(slots=True)
class AgentConversation:
    """The request of one step to an agent: its turns, in one thread, in a slot of the provider each."""

    context: ExecutionContext
    name: str
    provider: Provider
    request: AgentRequest
    prepare: Callable[..., PreparedOptions]
    """Returns the options of queries of a provider."""
    provider_slots: ProviderSlots
    fallback: Callable[[], Provider] | None = None
    """The provider to query while the first one is rate limited; resolved on first use."""
    forks_thread: bool = False
    """Whether the step continues in a copy of the previous thread."""
    shares_thread: bool = False
    """Whether the step continues a previous thread at all, with any provider."""
    tools: Sequence[AgentTool] = ()
    """The Python functions that the agent can call."""
    state: ConversationState = field(default_factory=ConversationState)
    turn_outputs: list[TurnOutput] = field(default_factory=list)
    interrupted_record: Mapping[str, Any] | None = None
    """The last record of an earlier attempt that did not finish."""
    last_record: Mapping[str, Any] | None = None
    limited_provider: str = ""
    """The rate-limited provider, if the fallback is in use."""
    is_new_fallback: bool = False
    """Whether the fallback has not answered yet, and does not know the task."""
    options: QueryOptions = field(init=False)
    redactor: Redactor = field(init=False)

    def __post_init__(self) -> None:
        self.options, self.redactor = self.prepare(self.provider)

    async def result(self) -> Result:
        """Return the answer, as structured data if the request has a schema."""
        schema = self.request.schema
        leaf = self.context.leaf_runtime
        self.interrupted_record = leaf.recorded_thread() if leaf.is_restarted else None
        self.state = ConversationState.restore(self.interrupted_record)
        self.choose_thread(self.request.resume)
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
    def output(self) -> str:
        return self.turn_outputs[-1].output if self.turn_outputs else ""

    # -- threads and prompts -----------------------------------------------------------------------

    def choose_thread(self, previous_thread: str | None) -> None:
        """Select the previous thread, or the interrupted one if it belongs to this provider."""
        state, record = self.state, self.interrupted_record
        state.thread, state.forked_thread, state.interrupted_thread = previous_thread, None, None
        state.totals = {}
        is_own_record = record is not None and record.get("provider") == self.provider.name
        if record is not None and is_own_record and self.capabilities.resume and record.get("forks") is None:
            state.thread = state.interrupted_thread = record["thread"]
            state.totals = record.get("totals") or {}
        elif previous_thread is not None and not self.capabilities.resume:
            self.emit_log(f"{self.provider.name} does not store conversations: {WITHOUT_HISTORY}")
            state.thread = None
        elif previous_thread is not None:
            self.fork_thread(previous_thread)

    def fork_thread(self, previous_thread: str) -> None:
        """Fork the previous thread if it must not change; one inherited from another run never may."""
        inherited_thread = self.context.leaf_runtime.threads.find_inherited(previous_thread)
        if inherited_thread is not None and not self.capabilities.fork:
            self.emit_log(
                f"{self.provider.name} cannot fork the conversation of the previous run: {WITHOUT_HISTORY}"
            )
            self.state.thread = None
            return
        if inherited_thread is not None:
            self.state.totals = inherited_thread.totals
            if inherited_thread.has_grown:
                self.emit_log(
                    "the conversation continued in the previous run; the fork includes those messages"
                )
        if inherited_thread is not None or self.forks_thread:
            self.state.forked_thread = previous_thread

    def prompt(self, further: str | None) -> str:
        """Return the new message, or the complete task for an agent that does not know it yet."""
        if further is not None and self.capabilities.resume and not self.is_new_fallback:
            return further
        leaf = self.context.leaf_runtime
        text = prompt_with_messages(self.request.prompt, leaf.steering_so_far() if leaf.is_restarted else [])
        if further is not None and further not in text:
            text = f"{text}\n\n{further}"
        schema = self.request.schema
        if schema and not self.capabilities.schema and prompt_with_schema("", schema) not in text:
            text = prompt_with_schema(text, schema)
        return INTERRUPTED_PROMPT + text if self.state.interrupted_thread is not None else text

    # -- turns -------------------------------------------------------------------------------------

    async def run_turns(self, further: str | None) -> TurnFinished:
        """Run one turn, and further turns for user messages that the agent has not received yet."""
        leaf = self.context.leaf_runtime
        messages = SteeringQueue() if self.capabilities.resume or self.capabilities.steer else None
        leaf.steering = messages
        try:
            done = await self.run_turn(further)
            while (
                done.outcome == "completed"
                and self.capabilities.resume
                and messages is not None
                and (further_messages := await messages.take_all())
            ):
                await self.record_usage()
                done = await self.run_turn("\n\n".join(further_messages))
        finally:
            leaf.steering = None
        return done

    async def run_turn(self, further: str | None) -> TurnFinished:
        """Run one turn; a rate limit blocks every step of the provider until it ends."""
        while True:
            await self.wait_until_available()
            await self.context.leaf_runtime.wait_for_budget(self.state.usage_so_far)
            done = await self.run_turn_in_slot(self.prompt(further))
            if done is not None:
                self.is_new_fallback = False
                if self.provider_slots.rate_limits.mark_available(self.provider.name):
                    await self.provider_slots.share_limit(self.provider.name)
                    self.emit_available(over=True)
                return done

    async def wait_until_available(self) -> None:
        """Return when the provider is not rate limited, or the fallback takes over."""
        await self.use_fallback()
        with self.context.leaf_runtime.timers_paused(self.context.path):
            if await self.provider_slots.rate_limits.wait_until_available(
                self.provider.name, self.emit_limit
            ):
                self.emit_available()

    async def use_fallback(self) -> None:
        """Switch to the fallback provider if there is one and the first is rate limited."""
        until = self.provider_slots.rate_limits.limited_until(self.provider.name)
        if self.fallback is None or not until:
            return
        other, self.fallback = self.fallback(), None
        if other is self.provider:
            return
        await self.emit_limit(until)
        self.emit_available()
        self.emit_log(f"{self.provider.name} is rate limited: using {other.name} instead")
        self.limited_provider, self.provider, self.is_new_fallback = self.provider.name, other, True
        self.options, self.redactor = self.prepare(other, is_fallback=True)
        last_threads = self.context.leaf_runtime.threads.last
        self.choose_thread(last_threads.get((self.name, other.name)) if self.shares_thread else None)

    async def run_turn_in_slot(self, prompt: str) -> TurnFinished | None:
        """Run a turn in a slot; None if a rate limit or an exhausted budget prevents it."""
        leaf, rate_limits = self.context.leaf_runtime, self.provider_slots.rate_limits
        async with AsyncExitStack() as stack:
            with leaf.timers_paused(self.context.path):
                slot_context = self.provider_slots.acquire(self.provider.name, self.state.thread)
                slot = await stack.enter_async_context(slot_context)
            if rate_limits.limited_until(self.provider.name):
                return None
            if not await leaf.begin_turn(self.state.usage_so_far):
                return None
            refusals_before = rate_limits.refusals(self.provider.name)
            try:
                done = await self.query_provider(prompt, slot)
            finally:
                await leaf.end_turn(self.state.usage_so_far)
        if done.outcome != "limited":
            return done
        rate_limits.mark_limited(self.provider.name, done.resets_at, refusals_before, done.error)
        await self.provider_slots.share_limit(self.provider.name)
        await self.record_usage()
        return None

    async def query_provider(self, prompt: str, slot: ProviderSlot) -> TurnFinished:
        request, state, options = self.request, self.state, self.query_options(slot)
        if state.thread is not None or self.context.leaf_runtime.is_restarted:
            await self.provider_slots.wait_for_orphans()
        self.report_context()
        turn_output = TurnOutput(self.context, self.on_thread_started, self.redactor)
        self.turn_outputs.append(turn_output)
        usage_before, turns_before = state.usage, state.turns
        state.turns += 1
        state.usage = add_usage(usage_before, UNKNOWN_USAGE)  # until the agent reports its usage
        if (thread := options.thread or state.thread) is not None:
            await self.record_thread(thread)
        if request.artifacts:
            resolve_inside(Path(request.cwd or "."), request.artifacts).mkdir(parents=True, exist_ok=True)
        resume = state.thread if self.capabilities.resume else None
        try:
            done = await turn_output.consume(self.provider.query(prompt, request.cwd, resume, options))
        except asyncio.CancelledError:
            if self.finishes_silent_turn(turn_output):
                return turn_output.finish_silent_turn(state.thread or "")
            model = getattr(turn_output.usage, "model", None) or options.model
            self.context.emit(WorkflowEventType.USAGE, UNKNOWN_USAGE | ({"model": model} if model else {}))
            raise
        state.thread, state.totals, state.forked_thread = done.thread, done.totals, None
        if turn_output.was_refused:
            state.usage, state.turns = usage_before, turns_before
            return done
        turn_usage = usage_entry(turn_output.usage, self.provider.name, options.model)
        if turn_usage:
            self.context.emit(WorkflowEventType.USAGE, turn_usage)
        state.usage = add_usage(usage_before, turn_usage or UNKNOWN_USAGE)
        return done

    def finishes_silent_turn(self, turn_output: TurnOutput) -> bool:
        """Return whether a silent agent has ended its turn, with what it has written as its answer."""
        request, leaf = self.request, self.context.leaf_runtime
        if request.on_idle in (None, "fail") or request.schema or not leaf.is_silent(self.context.path):
            return False
        turn_output.keep_unfinished_text()
        if request.on_idle == "finish_with_text" and not turn_output.output.strip():
            return False
        self.emit_log(f"{self.provider.name} is silent: what it has written is its answer")
        return True

    def query_options(self, slot: ProviderSlot) -> QueryOptions:
        state, leaf = self.state, self.context.leaf_runtime
        human_requests = HumanRequests(
            self.context,
            self.name,
            self.options.permissions,
            self.request.cwd or "",
            self.redactor,
            slot.released,
        )
        recorder = ToolRecorder(
            lambda call: self.turn_outputs[-1].record_tool_call(call),
            lambda chunk: self.turn_outputs[-1].handle_chunk(self.redactor.redact_chunk(chunk)),
            human_requests.decide_permission,
            self.options.permissions,
            self.options.tools or (),
            self.redactor,
        )
        fork, thread = state.forked_thread is not None, state.interrupted_thread
        if self.capabilities.names_threads and (fork or state.thread is None):
            thread = str(uuid.uuid4())
        return replace(
            self.options,
            thread=thread,
            fork=fork,
            totals=state.totals or leaf.threads.totals.get(state.thread or "", {}),
            ask=human_requests.decide_permission,
            steering=leaf.steering if self.capabilities.steer else None,
            host_tools=self.host_tools(recorder, human_requests),
            record_tool=recorder.offer,
        )

    def host_tools(self, recorder: ToolRecorder, human_requests: HumanRequests) -> dict[str, HostTool]:
        """Return the tools of Nerve that the agent can call."""
        able = self.capabilities
        tools = {
            tool.name: recorder.offer(tool.name, tool.description, tool.schema, tool.call)
            for tool in self.tools
        }
        if (able.host_tools and able.ask_human) or ASK_HUMAN in (self.options.tools or ()):
            tools[ASK_HUMAN] = human_requests.question_tool
        return tools

    # -- records, events and the result --------------------------------------------------------------

    async def record_usage(self) -> None:
        if self.turn_outputs and (thread := self.turn_outputs[-1].thread or self.state.thread):
            await self.record_thread(thread)

    async def on_thread_started(self, thread: str) -> None:
        """Record the new thread; a restart resumes this one."""
        self.state.forked_thread = None
        await self.record_thread(thread)

    async def record_thread(self, thread: str) -> None:
        """Record the usage so far on disk, so that a retry neither loses nor double-counts it."""
        record = self.state.to_record(thread, self.provider.name)
        if record != self.last_record:
            await self.context.leaf_runtime.record(self.context.path, WorkflowEventType.AGENT_THREAD, record)
            self.last_record = record
        self.context.leaf_runtime.is_restarted = True

    def report_context(self) -> None:
        """Report what the agent reads in its folder, once in a run for each provider and folder."""
        folder = Path(self.request.cwd or ".")
        reported = self.context.leaf_runtime.threads.reported_contexts
        if (place := (self.provider.name, str(folder))) in reported:
            return
        reported.add(place)
        if found := describe_context(self.capabilities, folder, self.options):
            self.emit_log(f"{self.provider.name} reads {found}")

    def emit_log(self, message: str) -> None:
        self.context.emit(WorkflowEventType.LOG, {"message": message})

    async def emit_limit(self, until: float) -> None:
        name = self.provider.name
        reason = self.provider_slots.rate_limits.reasons.get(name, "")
        data = {"provider": name, "until": until, "message": limit_message(name, until, reason)}
        await self.context.leaf_runtime.record(
            self.context.path,
            WorkflowEventType.PROVIDER_LIMITED,
            data | ({"reason": reason} if reason else {}),
        )

    def emit_available(self, **more: bool) -> None:
        self.context.emit(WorkflowEventType.PROVIDER_OPEN, {"provider": self.provider.name, **more})

    def finish_result(self, result: Result) -> Result:
        """Return the result with the attributes of the conversation."""
        if result.output is None:
            result["output"] = self.output
        result["output"] = replace_invalid_text(result.output)
        attributes: dict[str, Any] = {
            "provider": self.provider.name,
            "thread": self.state.thread,
            "model": self.options.model,
            "tools": sum(turn_output.tool_count for turn_output in self.turn_outputs),
        }
        if self.limited_provider:
            attributes["instead_of"] = self.limited_provider
        if self.state.turns:
            attributes["usage"] = {**self.state.usage_so_far, "agents": 1}
        if self.state.totals:
            attributes["totals"] = dict(self.state.totals)
        if dropped := sum(turn_output.dropped_chars for turn_output in self.turn_outputs):
            attributes["dropped_characters"] = dropped
        result["attributes"] = attributes
        return result
