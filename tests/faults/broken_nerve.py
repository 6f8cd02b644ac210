"""The command line `nerve` with mistakes that the checks of the fault tests must find."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from faults.networked_nerve import use_own_network
from nerve.cli import execute_command_line
from nerve.core.result import Result
from nerve.engine.temporal import leaf_activity
from nerve.engine.temporal.api_engine import TemporalEngine

REPEAT_AFTER_S = 1.0


def repeat_steps() -> None:
    """Execute every step once more when its completion is recorded."""
    execute = leaf_activity.run_attempt
    repeated: set[asyncio.Task[Any]] = set()

    async def execute_twice(*arguments: Any) -> Result:
        async def repeat() -> None:
            await asyncio.sleep(REPEAT_AFTER_S)
            await execute(*arguments)

        result = await execute(*arguments)
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
