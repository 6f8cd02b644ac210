"""The builds of body workers: which code can execute the history of a run.

The engine and the workflow functions of a project decide in which order a workflow starts what it starts, and
a history can be continued only in the same order. So the workers of a build execute the runs that were begun
by it, and a run goes over to a newer build when it continues in a new history.
"""

from __future__ import annotations

import asyncio
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

if TYPE_CHECKING:
    from temporalio.client import Client

    from nerve.core.nodes.base import NodeRegistry

ENGINE_PACKAGES = ("core", "dataspace", "engine", "expr", "journal", "spec")
"""The packages of Nerve that decide what a workflow does."""
PROMOTION_RETRY_S = 0.2
NOT_YET = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,  # several workers start at the same time
)
"""Why a build cannot be promoted that can be a moment later."""
PROMOTION_TIMEOUT_S = 30.0


def compute_build_id(session: NodeRegistry) -> str:
    """Return the hash of the engine and of the workflow functions of a session."""
    digest = sha256()
    spec = find_spec("nerve")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for name in ENGINE_PACKAGES:
        for file in sorted((package / name).rglob("*.py")):
            digest.update(f"{file.relative_to(package)}\n".encode())
            digest.update(file.read_bytes())
    for name, workflow in sorted(session.workflows.items()):
        if workflow.kind == "python":
            digest.update(f"{name} {workflow.definition()[0]}\n".encode())
    return digest.hexdigest()[:16]


def deployment_name(session: str) -> str:
    """Return the name of the body workers of a session in Temporal."""
    return f"nerve-{session}"


def deployment_config(session: str, build_id: str) -> WorkerDeploymentConfig:
    """Return the settings of a worker whose runs stay with its build."""
    version = WorkerDeploymentVersion(deployment_name(session), build_id)
    return WorkerDeploymentConfig(version, True, VersioningBehavior.PINNED)


async def promote_build(client: Client, session: str, build_id: str, *, replaces: bool = False) -> str:
    """Return the build that gets new runs: this one, if no other gets them.

    With `replaces`, this build gets them also instead of another one, but only if it never did before: a
    worker of an old build that is restarted must not take the runs of a newer one.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PROMOTION_TIMEOUT_S
    while True:
        deployment = await describe_deployment(client, session)
        if deployment is not None:
            info = deployment.worker_deployment_info
            current = info.routing_config.current_deployment_version.build_id
            if current == build_id or (current and not replaces):
                return current
            activated = {
                summary.deployment_version.build_id
                for summary in info.version_summaries
                if summary.HasField("first_activation_time")
            }
            if build_id in activated:
                return current
            if await try_to_promote(client, session, build_id, deployment.conflict_token):
                return build_id
        if loop.time() > deadline:
            raise TimeoutError(f"Build {build_id} of {deployment_name(session)} could not be promoted")
        await asyncio.sleep(PROMOTION_RETRY_S)


async def describe_deployment(client: Client, session: str) -> DescribeWorkerDeploymentResponse | None:
    """Return what Temporal knows of the builds; None if it cannot say so yet."""
    request = DescribeWorkerDeploymentRequest(
        namespace=client.namespace, deployment_name=deployment_name(session)
    )
    try:
        return await client.workflow_service.describe_worker_deployment(request)
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.RESOURCE_EXHAUSTED):
            return None
        raise


async def try_to_promote(client: Client, session: str, build_id: str, conflict_token: bytes) -> bool:
    """Make a build the current one; return False if its workers are not known yet, or another was faster."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=deployment_name(session),
        build_id=build_id,
        conflict_token=conflict_token,
        ignore_missing_task_queues=True,
    )
    try:
        await client.workflow_service.set_worker_deployment_current_version(request)
    except RPCError as error:
        if error.status in NOT_YET:
            return False
        raise
    return True
