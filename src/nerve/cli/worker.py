"""`nerve worker`: execute runs and their leaves in a Temporal cluster until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json as json_text
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import validators

from nerve.api import ApiError
from nerve.background_tasks import END_SIGNALS, handle_signals
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import FileList, Flag, Parameter, find_store_url
from nerve.cli.session_setup import register_file
from nerve.cli.trust import require_trust
from nerve.errors import EngineUnavailable
from nerve.project.engine_url import ENGINE_VARIABLE, engine_url_of_environment, parse_engine_url

if TYPE_CHECKING:
    from nerve.session.leaf_worker import LeafWorkerOptions


def worker_command(
    *,
    bodies: Flag = False,
    leaves: str = "",
    engine: str | None = None,
    store: str | None = None,
    place: Literal["host", "shared", "fresh"] | None = None,
    host_name: str = "",
    slots: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 20,
    promote: Flag = False,
    metrics: str = "",
    log_json: Flag = False,
    modules: FileList = (),
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Execute the runs of this project, or steps of them, which a Temporal cluster hands out.

    Ctrl-C and SIGTERM end the running steps with their processes. They run again on other workers; a step
    with effect "once" is in doubt, and its run is held.

    Parameters
    ----------
    bodies
        Execute what is between the steps: workflow functions, gates, timers, retries. One process for each
        core.
    leaves
        What to execute: names of providers such as claude, and bash for all steps that are not agents.
        Separate them with commas.
    engine
        The URL of the cluster, temporal://HOST:7233/NAMESPACE. Default: NERVE_ENGINE.
    store
        The URL of a database in PostgreSQL. Default: NERVE_STORE.
    place
        host executes all steps of a run on one machine, so that they share the files of the project. With
        shared, any worker executes any step. fresh is host for runs with a git worktree of their own.
        Default: place in .nerve/config.json, or host.
    host_name
        The name of this machine in the cluster. Default: its host name.
    slots
        How many steps of each kind run at the same time.
    promote
        Give new runs to the build of these bodies, if it never got them. Without it, they stay with the build
        that gets them.
    metrics
        Serve the metrics of this worker for Prometheus at HOST:PORT, such as 127.0.0.1:9464.
    log_json
        Write the log to standard error as JSON lines.
    modules
        A Python file that defines register(session). Repeatable.
    json
        Print one JSON object when the worker is ready.
    quiet
        Print only results and errors.
    """
    from nerve.core.step_output import capture_standard_streams
    from nerve.session.leaf_worker import LeafWorkerOptions
    from nerve.telemetry.json_log import log_as_json

    names = [name.strip() for name in leaves.split(",") if name.strip()]
    if leaves and not names:
        raise UsageError(f"--leaves must be names such as claude,bash, got '{leaves}'.")
    if not names and not bodies:
        raise UsageError("A worker needs something to execute: --leaves claude,bash, or --bodies.")
    if promote and not bodies:
        raise UsageError("--promote needs --bodies: only bodies have builds.")
    engine = engine or engine_url_of_environment()
    if engine is None:
        raise UsageError(
            f"The engine is missing: --engine temporal://HOST:7233/NAMESPACE, or {ENGINE_VARIABLE}."
        )
    url = find_store_url(store)
    if url is None:
        raise UsageError(
            "A worker needs a database: --store postgresql://USER@HOST/DATABASE, or NERVE_STORE."
        )
    try:
        address = parse_engine_url(engine)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    require_trust(has_url=True)
    options = LeafWorkerOptions(address, url, names, slots, place, host_name)
    # To the stream itself: the captured one records what steps print.
    with log_as_json(sys.stderr) if log_json else contextlib.nullcontext(), capture_standard_streams():
        return asyncio.run(
            execute(
                options,
                modules,
                metrics,
                has_bodies=bodies,
                is_promoted=promote,
                is_json=json,
                is_quiet=quiet,
            )
        )


async def execute(
    options: LeafWorkerOptions,
    modules: FileList,
    metrics: str,
    *,
    has_bodies: bool,
    is_promoted: bool,
    is_json: bool,
    is_quiet: bool,
) -> int:
    """Execute leaves and bodies until a signal comes."""
    from nerve.engine.leaf_references import check_portable
    from nerve.server.failure_log import log_failed_leaf
    from nerve.session import Session
    from nerve.session.body_worker import open_body_worker
    from nerve.session.leaf_worker import open_leaf_worker
    from nerve.session.temporal_api import serve_worker_metrics

    session = Session(project=Path())
    for file in modules:
        register_file(session, file)
    for name in options.leaves:
        if name != "bash" and session.provider(name) is None:
            raise UsageError(f"Unknown provider '{name}'. Write bash for all steps that are not agents.")
    try:
        check_portable(session)
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        if metrics:
            serve_worker_metrics(metrics)
        async with contextlib.AsyncExitStack() as stack:
            stop, queues = asyncio.Event(), list[str]()
            stack.enter_context(handle_signals(END_SIGNALS, stop.set))
            if options.leaves:
                leaves = open_leaf_worker(session, options, partial(log_failed_leaf, session))
                queues += await stack.enter_async_context(leaves)
            if has_bodies:
                worker = open_body_worker(
                    session,
                    options.engine,
                    options.store,
                    has_leaves=bool(options.leaves),
                    is_promoted=is_promoted,
                )
                queues.append(await stack.enter_async_context(worker))
            if is_json:
                print(json_text.dumps({"queues": queues}), flush=True)
            if not is_quiet:
                parts = ", ".join([*options.leaves, *(["bodies"] if has_bodies else [])])
                print(f"Executing {parts} from {options.engine}. Press Ctrl-C to stop.", file=sys.stderr)
            await stop.wait()
    except EngineUnavailable as error:
        raise ApiError("refused", f"{error.problem}.", f"{error.fix}.") from None
    return COMPLETED
