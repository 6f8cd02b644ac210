"""Connections to Temporal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile
from temporalio.runtime import PrometheusConfig, Runtime
from temporalio.service import RPCError, RPCStatusCode

from nerve.engine.temporal.core_log import forward_core_log, make_runtime
from nerve.errors import EngineUnavailable

if TYPE_CHECKING:
    from nerve.project.engine_url import TemporalAddress


REFUSED_STATUSES = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.NOT_FOUND,
        RPCStatusCode.ALREADY_EXISTS,
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.OUT_OF_RANGE,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.UNAUTHENTICATED,
    }
)
"""With these, Temporal has refused a call. With others, only Temporal knows whether it took effect."""


@contextmanager
def report_no_answer(call: str) -> Iterator[None]:
    """Raise EngineUnavailable in place of an error that is not an answer of Temporal to a call."""
    try:
        yield
    except RPCError as error:
        if error.status in REFUSED_STATUSES:
            raise
        raise no_answer_error(call, str(error)) from error


def no_answer_error(call: str, problem: str) -> EngineUnavailable:
    return EngineUnavailable(
        f"Temporal does not answer ({problem}), so {call} may not have taken effect",
        "Check it with nerve doctor, then repeat",
    )


def serve_sdk_metrics(address: str) -> None:
    """Serve the metrics of the workers of this process for Prometheus; call it before the first client."""
    try:
        metrics = PrometheusConfig(
            address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
        )
        Runtime.set_default(make_runtime(metrics))
    except (RuntimeError, ValueError) as error:
        raise EngineUnavailable(
            f"Cannot serve metrics on {address}: {error}", "Select another address"
        ) from None


async def connect_client(
    address: TemporalAddress, converter: DataConverter = DataConverter.default
) -> Client:
    """Return a client; TLS, certificates and the API key come from the variables TEMPORAL_… of the SDK."""
    forward_core_log()
    settings = ClientConfigProfile.load(disable_file=True).to_client_connect_config()
    settings["target_host"], settings["namespace"] = address
    try:
        client = await Client.connect(**settings, data_converter=converter)
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=address.namespace)
        )
    except (RuntimeError, RPCError) as error:
        problem = str(error).splitlines()[0]
        fix = "Start Temporal there, or select another address"
        raise EngineUnavailable(f"Cannot use {address}: {problem}", fix) from None
    return client
