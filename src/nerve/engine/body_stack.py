"""The stack of the code of a run: where each task of its body runs or waits now."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from nerve.core.tracebacks import ENGINE_DIRECTORIES, format_frames

STACK_QUERY = "~stack"
"""The query that every run with code answers: its stack as text, empty if it waits outside of its code."""
AWAITED_ATTRIBUTES = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
"""The frame of a coroutine or a generator, and what it waits for."""


def format_stack(tasks: Iterable[asyncio.Future[Any]]) -> str:
    """Return the frames of each task in the user's code, the outermost first."""
    parts: list[str] = []
    for task in tasks:
        if not isinstance(task, asyncio.Task) or task.done():
            continue
        frames = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in awaited_frames(task))
        own = [frame for frame in frames if not frame.filename.startswith(ENGINE_DIRECTORIES)]
        if own:
            parts.append("\n".join(format_frames(own)))
    return "\n\n".join(parts)


def awaited_frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames of a task, from its coroutine to what it waits for."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        for frame_name, next_name in AWAITED_ATTRIBUTES:
            if hasattr(awaited, frame_name):
                frame = getattr(awaited, frame_name)
                if frame is not None:
                    yield frame
                awaited = getattr(awaited, next_name)
                break
        else:
            return
