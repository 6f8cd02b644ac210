"""What a collector gets of the runs of a session."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nerve import Session
from nerve.agents import AgentNode
from nerve.agents.provider import ToolCall, ToolUpdate, TurnUsage
from nerve.codec import Codec
from nerve.core.nodes import BashNode
from nerve.core.policy import Retry
from nerve.errors import NodeFailed
from nerve.project.config import TelemetrySettings
from nerve.telemetry.span_exporter import TelemetryUnavailable
from nerve.testing import ScriptedProvider
from telemetry.collector import Collector

REQUEST = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_run_is_a_trace_of_its_steps_with_their_recorded_times(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.step
        async def double(number: int) -> int:
            return number * 2

        @session.workflow
        async def order(ctx: Any, number: int) -> int:
            return await double(await double(number))

        run = await session.start("order", 4, tags={"customer": "42"})
        assert await run.wait() == 16
        events = run.events
    root, steps = collector.one("invoke_workflow order"), collector.named("step double")
    assert [step.attributes["nerve.step.path"] for step in steps] == ["/double", "/double[2]"]
    assert {step.parent_id for step in steps} == {root.span_id}
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert root.parent_id == ""
    assert not root.has_failed
    assert root.service == "nerve"
    assert root.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert root.attributes["gen_ai.workflow.name"] == "order"
    assert root.attributes["nerve.run.id"] == run.run_id
    assert root.attributes["nerve.tag.customer"] == "42"
    assert (
        root.start == int(events[0].timestamp.timestamp() * 1e9)
        or abs(root.start - events[0].timestamp.timestamp() * 1e9) < 1e4
    )
    assert root.start <= steps[0].start <= steps[0].end <= steps[1].start <= root.end


async def test_retries_are_events_of_the_step_and_a_failure_is_its_status(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.step(retry=Retry(attempts=2, delay=0))
        async def charge() -> None:
            raise ValueError("card declined")

        @session.workflow
        async def pay(ctx: Any) -> None:
            await charge()

        run = await session.start("pay")
        with pytest.raises(NodeFailed, match="card declined"):
            await run.wait()
    step, root = collector.one("step charge"), collector.one("invoke_workflow pay")
    assert step.has_failed
    assert step.message == "ValueError: card declined"
    assert step.attributes["error.type"] == "ValueError"
    assert step.attributes["nerve.attempts"] == 2
    assert [name for name, _ in step.events] == ["retry", "exception"]
    assert step.events[0][1]["exception.message"] == "card declined"
    assert "in charge" in step.events[1][1]["exception.stacktrace"]
    assert root.has_failed
    assert root.attributes["nerve.run.state"] == "failed"


async def test_a_wait_for_a_gate_is_a_span_without_its_prompt(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.workflow
        async def ask(ctx: Any) -> str:
            return str(await ctx.gate("Ship the secret thing?", choices=["yes", "no"]))

        run = await session.start("ask")
        gate = await run.next_gate()
        await run.answer("yes", gate.gate_id)
        assert await run.wait() == "yes"
    [gate_span] = [span for span in collector.spans if span.name.startswith("gate ")]
    assert gate_span.attributes["nerve.outcome"] == "completed"
    assert gate_span.parent_id == collector.one("invoke_workflow ask").span_id
    assert "secret" not in repr(collector.spans)


async def test_a_child_run_is_below_the_call_of_its_parent(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.step
        async def pack() -> str:
            return "packed"

        @session.workflow
        async def ship(ctx: Any) -> str:
            return await pack()

        @session.workflow
        async def order(ctx: Any) -> Any:
            return await ctx.run_workflow("ship")

        run = await session.start("order")
        await run.wait()
    parent, child = collector.one("invoke_workflow order"), collector.one("invoke_workflow ship")
    call = collector.one("step ship")
    assert call.parent_id == parent.span_id
    assert child.parent_id == call.span_id
    assert collector.one("step pack").parent_id == child.span_id
    assert {span.trace_id for span in collector.spans} == {parent.trace_id}
    assert call.attributes["nerve.step.kind"] == "child"


def agent_session(**options: Any) -> Session:
    answers = [
        [
            ToolCall("grep", {"pattern": "hidden needle"}, "call-1"),
            ToolUpdate("call-1", "completed", "hidden haystack"),
            ToolCall("edit", {"file": "a.py"}, "call-2"),
            TurnUsage(input_tokens=10, output_tokens=5, cache_read_tokens=100, cost=0.25, model="m-1"),
            "the hidden answer",
        ]
    ]
    session = Session(
        telemetry=options.pop("telemetry", True),
        providers={"claude": ScriptedProvider(answers, "claude")},
        **options,
    )
    AgentNode("reviewer", session, provider="claude", model="m-1")

    @session.workflow
    async def review(ctx: Any) -> Any:
        return await ctx.run("reviewer", "a hidden prompt")

    return session


async def test_an_agent_step_has_the_conventions_for_generative_ai(collector: Collector) -> None:
    async with agent_session() as session:
        await (await session.start("review")).wait()
    agent, tools = (
        collector.one("invoke_agent reviewer"),
        [span for span in collector.spans if "tool" in span.name],
    )
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["gen_ai.provider.name"] == "anthropic"
    assert agent.attributes["gen_ai.agent.name"] == "reviewer"
    assert agent.attributes["gen_ai.request.model"] == "m-1"
    assert agent.attributes["gen_ai.usage.input_tokens"] == 110
    assert agent.attributes["gen_ai.usage.cache_read.input_tokens"] == 100
    assert agent.attributes["gen_ai.usage.output_tokens"] == 5
    assert agent.attributes["nerve.usage.cost"] == 0.25
    assert agent.attributes["gen_ai.conversation.id"] == "thread-1"
    assert [name for name, _ in agent.events] == ["turn"]
    assert [tool.name for tool in tools] == ["execute_tool grep", "execute_tool edit"]
    assert {tool.parent_id for tool in tools} == {agent.span_id}
    assert tools[0].attributes["gen_ai.tool.call.id"] == "call-1"
    assert "hidden" not in repr(collector.spans)


async def test_content_is_exported_on_request_with_secrets_masked(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "hidden answer")
    async with agent_session(telemetry=TelemetrySettings(content=True)) as session:
        await (await session.start("review")).wait()
    agent = collector.one("invoke_agent reviewer")
    assert "a hidden prompt" in agent.attributes["gen_ai.input.messages"]
    assert "the [SHOP_API_KEY]" in agent.attributes["gen_ai.output.messages"]
    assert "needle" in collector.one("execute_tool grep").attributes["gen_ai.tool.call.arguments"]
    assert "hidden answer" not in repr(collector.spans)


class ReversingCodec:
    """A codec that tests can read."""

    name = "reversed"

    def encode(self, data: bytes, place: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes, name: str, place: bytes) -> bytes:
        return data[::-1]


async def test_a_session_with_a_codec_exports_no_content_and_no_messages(collector: Collector) -> None:
    codec: Codec = ReversingCodec()
    async with agent_session(telemetry=TelemetrySettings(content=True), codec=codec) as session:

        @session.workflow
        async def fail(ctx: Any) -> None:
            raise ValueError("hidden message")

        await (await session.start("review")).wait()
        with pytest.raises(ValueError, match="hidden"):
            await (await session.start("fail")).wait()
    assert "hidden" not in repr(collector.spans)
    assert collector.one("invoke_workflow fail").message == "ValueError"


async def test_a_run_continues_the_trace_of_its_request(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.workflow
        async def hello(ctx: Any) -> str:
            return "hello"

        await (await session.start("hello", traceparent=REQUEST)).wait()
        await (await session.start("hello", traceparent="not a traceparent")).wait()
    [continued] = [span for span in collector.spans if span.trace_id == REQUEST[3:35]]
    assert continued.parent_id == REQUEST[36:52]
    [other] = [span for span in collector.spans if span is not continued]
    assert other.parent_id == ""


async def test_a_trace_that_its_request_did_not_sample_is_not_exported(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.workflow
        async def hello(ctx: Any) -> str:
            return "hello"

        await (await session.start("hello", traceparent=f"{REQUEST[:-2]}00")).wait()
        await (await session.start("hello", traceparent=REQUEST)).wait()
    assert len(collector.spans) == 1


async def test_the_span_of_a_step_is_current_in_its_code(collector: Collector) -> None:
    provider, own_spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(own_spans))
    tracer = provider.get_tracer("shop")
    async with Session(telemetry=True) as session:

        @session.step
        async def fetch() -> None:
            with tracer.start_as_current_span("GET /prices"):
                pass

        @session.step
        def compute() -> None:
            with tracer.start_as_current_span("compute prices"):
                pass

        @session.workflow
        async def prices(ctx: Any) -> None:
            await fetch()
            await compute()

        with tracer.start_as_current_span("request"):
            run = await session.start("prices")
        await run.wait()
    inner = {span.name: span for span in own_spans.get_finished_spans()}
    for own, step in (("GET /prices", "step fetch"), ("compute prices", "step compute")):
        assert f"{inner[own].parent.span_id:016x}" == collector.one(step).span_id
        assert f"{inner[own].context.trace_id:032x}" == collector.one(step).trace_id
    root = collector.one("invoke_workflow prices")
    assert root.parent_id == f"{inner['request'].context.span_id:016x}"
    provider.shutdown()


async def test_commands_and_agents_get_the_span_of_their_step(collector: Collector) -> None:
    provider = ScriptedProvider(["done"])
    async with Session(telemetry=True, providers={"scripted": provider}) as session:
        BashNode("show", session, "printf %s $TRACEPARENT")
        AgentNode("writer", session, provider="scripted")

        @session.workflow
        async def programs(ctx: Any) -> str:
            await ctx.run("writer", "write")
            return str((await ctx.run("show")).output)

        run = await session.start("programs")
        shown = await run.wait()
    command, agent = collector.one("step show"), collector.one("invoke_agent writer")
    assert shown == f"00-{command.trace_id}-{command.span_id}-01"
    assert command.attributes["process.exit.code"] == 0
    [call] = provider.calls
    assert call.options["env"]["TRACEPARENT"] == f"00-{agent.trace_id}-{agent.span_id}-01"


async def test_without_telemetry_programs_get_no_trace() -> None:
    async with Session() as session:
        BashNode("show", session, "printf %s ${TRACEPARENT-none}")

        @session.workflow
        async def programs(ctx: Any) -> str:
            return str((await ctx.run("show")).output)

        assert await (await session.start("programs", traceparent=REQUEST)).wait() == "none"
        assert session.tracing is None
        assert not any("telemetry" in watcher.__module__ for watcher in session.engine.watchers)


async def test_forks_retries_and_chains_link_to_what_they_come_from(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.step
        async def count(number: int) -> int:
            return number + 1

        @session.workflow
        async def repeat(ctx: Any, number: int) -> int:
            if (number := await count(number)) < 2:
                ctx.continue_as_new(number)
            return number

        first = await session.start("repeat", 0)
        await first.wait()
        fork = await session.fork(first.run_id)
        await fork.wait()
    roots = {span.attributes["nerve.run.id"]: span for span in collector.named("invoke_workflow repeat")}
    steps = collector.named("step count")
    origin, forked = roots[first.run_id], roots[fork.run_id]
    [(trace_id, span_id, why)] = forked.links
    assert (trace_id, span_id) == (origin.trace_id, origin.span_id)
    assert why["nerve.link"] == "forked_from"
    chained = roots[first.current.run_id]
    [(trace_id, span_id, why)] = chained.links
    assert (trace_id, span_id) == (origin.trace_id, origin.span_id)
    assert why["nerve.link"] == "continued_from"
    assert len({span.trace_id for span in roots.values()}) == len(roots)
    assert len({step.span_id for step in steps}) == len(steps)


async def test_a_fork_does_not_export_its_copied_steps_again(collector: Collector) -> None:
    async with Session(telemetry=True) as session:

        @session.step
        async def one() -> int:
            return 1

        @session.step
        async def two() -> int:
            return 2

        @session.workflow
        async def both(ctx: Any) -> int:
            return await one() + await two()

        run = await session.start("both")
        await run.wait()
        await (await session.fork(run.run_id, "/two")).wait()
    assert len(collector.named("step one")) == 1
    assert len(collector.named("step two")) == 2


async def test_telemetry_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nerve.telemetry.span_exporter.find_spec", lambda name: None)
    with pytest.raises(TelemetryUnavailable, match=r"pip install '\.\[otel\]'"):
        async with Session(telemetry=True):
            pass


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "must be one of otlp, console, none, got 'zipkin'"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "must be 'http/protobuf', got 'grpc'"),
    ],
)
async def test_a_variable_that_is_not_supported_is_an_error(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(TelemetryUnavailable, match=message):
        async with Session(telemetry=True):
            pass


async def test_the_standard_variable_switches_it_off(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with Session(telemetry=True) as session:
        assert session.tracing is None


async def test_the_configuration_of_a_project_switches_it_on(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / ".nerve").mkdir()
    (tmp_path / ".nerve/config.json").write_text('{"telemetry": {"content": true}}')
    async with Session(project=tmp_path) as session:

        @session.workflow
        async def hello(ctx: Any) -> str:
            return "hello"

        await (await session.start("hello")).wait()
    assert collector.one("invoke_workflow hello").attributes["nerve.output"] == "hello"
    async with Session(project=tmp_path, telemetry=False) as session:
        _ = session.engine
        assert session.tracing is None
