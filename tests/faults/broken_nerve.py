"""The command line `nerve` with mistakes that the checks of the fault tests must find."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import closing
from typing import Any

from faults.networked_nerve import use_own_network
from nerve.cli import execute_command_line
from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.engine.temporal import leaf_activity
from nerve.engine.temporal.api_engine import TemporalEngine
from nerve.store.postgres import PostgresStore

POLL_S = 0.1


def is_completed(run: str, path: str) -> bool:
    """Return whether the journal of a run has the completion of a step."""
    with closing(PostgresStore(os.environ["NERVE_STORE"], None)) as store:
        return any(row.type == "node_completed" and row.path == path for row in store.events(run))


def repeat_steps() -> None:
    """Execute every step once more when its completion is recorded."""
    execute = leaf_activity.run_attempt
    repeated: set[asyncio.Task[Any]] = set()

    async def execute_twice(node: Node, context: ExecutionContext, *arguments: Any) -> Result:
        async def repeat() -> None:
            while not await asyncio.to_thread(is_completed, context.run_id, context.path):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            await execute(node, context, *arguments)

        result = await execute(node, context, *arguments)
        task = asyncio.ensure_future(repeat())
        repeated.add(task)
        task.add_done_callback(repeated.discard)
        return result

    setattr(leaf_activity, "run_attempt", execute_twice)  # noqa: B010


def lose_answers() -> None:
    """Accept answers, and tell nobody."""

    async def accept(self: TemporalEngine, run: Any, gate: Any, answer: Any) -> None:
        return None

    setattr(TemporalEngine, "_answer", accept)  # noqa: B010


if __name__ == "__main__":
    mistake, *command = sys.argv[1:]
    {"repeat": repeat_steps, "lose": lose_answers}[mistake]()
    use_own_network()
    sys.exit(execute_command_line(command))
