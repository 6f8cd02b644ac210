"""A leaf that a worker executes, as the engine in a workflow sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import NO_POLICY
from nerve.core.result import Result
from nerve.core.runtime import NodeCall
from nerve.core.tracebacks import FailureTrace, RecordedTrace
from nerve.engine.leaf_references import describe_leaf
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.engine.temporal.messages import HOST_LOST, LeafInput, LeafResult, leaf_queue
from nerve.journal.events import RunOnHold

if TYPE_CHECKING:
    from nerve.engine.temporal.outbox import Outbox


class RemoteLeaf(Node):
    """Sends a leaf to a worker and waits for its result."""

    def __init__(self, call: NodeCall, session: NodeRegistry, outbox: Outbox) -> None:
        super().__init__()
        self._call, self._names, self._outbox = call, session, outbox
        self.asks = getattr(call.node, "asks", False)

    async def execute(self, context: ExecutionContext) -> Result:
        call, runtime = self._call, context.runtime
        assert isinstance(runtime, LeafRuntime)
        policy, threads = call.policy, runtime.threads
        leaf = LeafInput(
            self._names.name,
            context.run_id,
            context.workflow_id,
            call.path,
            call.node_id,
            describe_leaf(call.node, self._names, call.node_id),
            0,
            context.input,
            context.params,
            context.overrides,
            policy.timeout,
            policy.idle_timeout,
            policy.effect,
            None if policy.limits is None else policy.limits.to_dict(),
            runtime.is_restarted,
            runtime.derive_run_id(),
            [[agent, provider, thread] for (agent, provider), thread in threads.last.items()],
            threads.totals,
            folder=context.folder,
            workspace=None if context.workspace is None else context.workspace.to_data(),
            is_limited=runtime.is_agent and runtime.is_limited,
        )
        queue = leaf_queue(self._names.name, provider_name(call.node, self._names))
        while (
            result := restore_leaf_result(await self._outbox.execute(leaf, queue))
        ).error_type == HOST_LOST:
            # It has not begun, and its files may be elsewhere only if a person says so.
            await runtime.hold(RunOnHold("host_lost", result.error, call.path))
        return result


def provider_name(node: Node, session: NodeRegistry) -> str | None:
    """Return the name that the session has for the provider of an agent; None for another node."""
    provider = getattr(node, "provider", None)
    if provider is None or isinstance(provider, str):
        return provider
    providers: Mapping[str, object] = getattr(session, "providers", {})
    name: str | None = getattr(provider, "name", None)
    return next((key for key, each in providers.items() if each is provider), name)


def replace_leaf(call: NodeCall, session: NodeRegistry, outbox: Outbox) -> NodeCall:
    """Return the call that executes a leaf on a worker, which measures its timeouts itself."""
    policy = call.policy
    if policy.timeout is not None or policy.idle_timeout is not None:
        policy = replace(policy, timeout=None, idle_timeout=None)
    policy = NO_POLICY if policy == NO_POLICY else policy
    return replace(call, node=RemoteLeaf(call, session, outbox), policy=policy)


def restore_leaf_result(message: LeafResult) -> Result:
    """Return the result that a worker has sent."""
    result = Result(message.result)
    result.settlement = message.settlement  # type: ignore[assignment]
    result.timeout_seconds = message.timeout_seconds
    if message.location is not None or message.traceback is not None:
        result.interruption = RecordedTrace(FailureTrace(message.location, message.traceback))
    return result
