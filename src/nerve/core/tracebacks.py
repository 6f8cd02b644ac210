"""Tracebacks of failures as text of limited size: where the code of the user failed, without variables."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import nerve.errors
from nerve.core.json_diagnostics import replace_surrogates
from nerve.core.result import Result, error_text
from nerve.errors import NerveError, NodeFailed

MAX_FRAMES = 20
"""Frames of one exception; those of the user's code first."""
FIRST_FRAMES, LAST_USER_FRAMES = 5, 10
"""Of a longer traceback, how many frames of its start and of the user's code are kept."""
MAX_EXCEPTIONS = 5
"""Exceptions of a chain, and parts of a group."""
MAX_LINE_CHARS = 400
"""Characters of a message or of a line of source text."""
MAX_CHARS = 4000
"""Characters of a whole traceback; the middle of a longer one is left out."""

STANDARD_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
ENGINE_DIRECTORIES = (
    os.path.join(STANDARD_LIBRARY, "asyncio", ""),
    os.path.join(os.path.dirname(os.path.abspath(nerve.errors.__file__)), ""),
)
"""The directories of Nerve and of asyncio, whose frames are left out."""


class FailureTrace(NamedTuple):
    """Where a failure happened; both are None without a traceback."""

    location: str | None = None
    """The last frame of the user's code: `flow.py:12 in charge`."""
    traceback: str | None = None
    """The traceback as Python prints it, without frames of Nerve."""

    @classmethod
    def of_result(cls, result: Result) -> FailureTrace:
        """Return where a node raised, or where it was when it timed out."""
        return cls.of(result.cause or result.interruption)

    @classmethod
    def of(cls, error: BaseException | None) -> FailureTrace:
        """Return the trace of an exception that was raised."""
        if error is None:
            return NO_TRACE
        if isinstance(error, RecordedTrace):
            return error.trace
        try:
            links = [(each, frames_of(each)) for each in chain_of(error)]
            frames = [frame for _, found in reversed(links) for frame in found]
            if not frames:
                return NO_TRACE
            return cls(find_location(links) or describe_frame(frames[-1]), format_chain(links))
        except Exception:
            return NO_TRACE  # the loader of a module can raise when it is asked for the source text

    def to_data(self) -> dict[str, str]:
        """Return the fields of an event; none without a traceback."""
        if self.location is None or self.traceback is None:
            return {}
        return {"location": self.location, "traceback": self.traceback}


class RecordedTrace(Exception):
    """Stands for an exception of another process, of which only the trace is known."""

    def __init__(self, trace: FailureTrace) -> None:
        super().__init__(trace.location)
        self.trace = trace


NO_TRACE = FailureTrace()
Frames = list[traceback.FrameSummary]


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that led to it, the newest first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < MAX_EXCEPTIONS:
        seen.add(id(current))
        yield current
        # The event of the failed step has the traceback of what the step raised.
        if isinstance(current, NodeFailed):
            return
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def frames_of(error: BaseException) -> Frames:
    """Return the frames of an exception without those of Nerve; with them only if it has just those."""
    frames = list(traceback.extract_tb(error.__traceback__))
    outer_frames = [frame for frame in frames if not frame.filename.startswith(ENGINE_DIRECTORIES)]
    return outer_frames if outer_frames or is_explained(error) else frames


def is_explained(error: BaseException) -> bool:
    """Whether the message of an error says enough if only Nerve raised it."""
    from asyncio import CancelledError  # lists of runs do not need asyncio

    return isinstance(error, NerveError | TimeoutError | CancelledError)


def is_user_frame(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame is of the user's code, not of Nerve, Python or an installed package."""
    file = frame.filename
    return not file.startswith((*ENGINE_DIRECTORIES, "<frozen ")) and not is_library_file(file)


def is_library_file(file: str) -> bool:
    """Return whether a file belongs to the standard library or to an installed package."""
    return file.startswith(STANDARD_LIBRARY) or "site-packages" in file.split(os.sep)


def find_location(links: Iterable[tuple[BaseException, Frames]]) -> str | None:
    """Return the last frame of the user's code, of the newest exception that has one."""
    for _, frames in links:
        if user_frames := [frame for frame in frames if is_user_frame(frame)]:
            return describe_frame(user_frames[-1])
    return None


def describe_frame(frame: traceback.FrameSummary) -> str:
    return replace_surrogates(f"{relative_path(frame.filename)}:{frame.lineno} in {frame.name}")


def relative_path(file: str) -> str:
    """Return a source file relative to the working directory, or to the directory it was imported from."""
    return remove_directory(file, os.getcwd()) if os.path.isabs(file) else file


@lru_cache(1000)
def remove_directory(file: str, working_directory: str) -> str:
    # A virtual environment is often inside the project, but its files are not part of it.
    if not is_library_file(file) and file.startswith(prefix := os.path.join(working_directory, "")):
        return file.removeprefix(prefix)
    prefixes = [prefix for entry in sys.path if file.startswith(prefix := os.path.join(entry, ""))]
    return file.removeprefix(max(prefixes, key=len, default=""))


def format_chain(links: list[tuple[BaseException, Frames]]) -> str:
    """Return the traceback of an exception and of those that led to it, the newest last."""
    parts: list[str] = []
    newer: BaseException | None = None
    for error, frames in links:
        if newer is not None:
            role = "was the direct cause of" if newer.__cause__ is error else "was being handled before"
            parts.append(f"\nThis exception {role} the next one:\n\n")
        parts.append("\n".join(format_exception(error, frames)) + "\n")
        newer = error
    text = replace_surrogates("".join(reversed(parts)).rstrip())
    if len(text) <= MAX_CHARS:
        return text
    mark = "\n  …\n"
    return f"{text[: MAX_CHARS // 4]}{mark}{text[-(MAX_CHARS - MAX_CHARS // 4 - len(mark)) :]}"


def format_exception(error: BaseException, frames: Frames, depth: int = 0) -> Iterator[str]:
    """Yield the lines of one exception, and of the parts of a group."""
    if frames:
        yield "Traceback (most recent call last):"
        yield from format_frames(frames)
    message, name = shorten(error_text(error)), type(error).__qualname__
    yield message if message == name or message.startswith(f"{name}: ") else f"{name}: {message}"
    yield from map(shorten, map(str, getattr(error, "__notes__", ())))
    if isinstance(error, BaseExceptionGroup) and depth < MAX_EXCEPTIONS:
        for number, part in enumerate(error.exceptions[:MAX_EXCEPTIONS], 1):
            yield f"  {number} of {len(error.exceptions)}:"
            yield from (f"    {line}" for line in format_exception(part, frames_of(part), depth + 1))


def format_frames(frames: Frames) -> Iterator[str]:
    """Yield the lines of the frames that are kept, with the number of those that are left out."""
    kept = select_frames(frames)
    for position, number in enumerate(kept):
        left_out = number - (kept[position - 1] + 1 if position else 0)
        if left_out:
            yield f"  … {left_out} frames left out"
        frame = frames[number]
        yield f'  File "{relative_path(frame.filename)}", line {frame.lineno}, in {frame.name}'
        if frame.line:
            yield f"    {shorten(frame.line)}"


def select_frames(frames: Frames) -> list[int]:
    """Return the numbers of the frames to keep: the start, the end of the user's code, and the end."""
    users = [number for number, frame in enumerate(frames) if is_user_frame(frame)]
    numbers = range(len(frames))
    ranked = dict.fromkeys([*users[-LAST_USER_FRAMES:], *numbers[:FIRST_FRAMES], *reversed(numbers)])
    return sorted(list(ranked)[:MAX_FRAMES])


def shorten(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARS else f"{text[: MAX_LINE_CHARS - 1]}…"
