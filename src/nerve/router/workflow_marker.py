"""Find the `WORKFLOW: name` line in an answer while it streams."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nerve.core.suggest import did_you_mean_hint
from nerve.router.decision import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    join_quoted_names,
)

MARKER = "WORKFLOW:"
MARKER_PATTERN = re.compile(r" {0,3}WORKFLOW:\s*(\S+)")
REPEATED_MARKER_PATTERN = re.compile(r"\s*WORKFLOW:\s*(\S*)")
"""A further marker line, with any indentation."""
FENCE_PATTERN = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
BLANK_LINES_PATTERN = re.compile(r"\A(?:[^\S\n]*\n)+|\A\s+\Z")
DECORATION = "`*_\"'{}<>()[].,;:!"
"""Punctuation that agents put around a name."""


class CodeFenceTracker:
    """Tracks code blocks, in which marker lines are ignored."""

    def __init__(self) -> None:
        self.open_fence: str | None = None

    def feed(self, line: str) -> None:
        match = FENCE_PATTERN.fullmatch(line.rstrip("\r\n"))
        if match is None:
            return
        marks, rest = match.groups()
        if self.open_fence is None:
            self.open_fence = marks
        elif marks.startswith(self.open_fence) and not rest.strip():
            self.open_fence = None


class MarkerScanner:
    """Consumes an answer in pieces of any size, and returns the text that can be shown.

    The start of a line is held back until it cannot become a `WORKFLOW:` line. The first such line decides:
    after a known workflow the rest of the answer is hidden, after an unknown name it is shown.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._pieces: list[str] = []
        self._fences = CodeFenceTracker()
        self._buffer = ""
        self._offset = self._consumed = 0
        self._is_mid_line = False
        self.marker_name: str | None = None
        """The name in the first `WORKFLOW:` line, known or not."""
        self.workflow: str | None = None
        """The workflow that the line names, if it exists."""
        self.marker_span = (0, 0)
        """The offsets of the start of that line and of the end of the name."""

    @property
    def answer(self) -> str:
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Consume the next piece and return the text that can be shown now."""
        self._pieces.append(piece)
        if self.marker_name is not None:
            return piece if self.workflow is None else ""
        self._buffer += piece
        return self._release_text(ended=False)

    def end(self) -> str:
        """Mark the answer as complete and return the remaining text to show."""
        return self._release_text(ended=True)

    def _release_text(self, ended: bool) -> str:
        while self.marker_name is None and self._offset < len(self._buffer) and self._pass_line(ended):
            pass
        released, self._buffer = self._buffer[: self._offset], self._buffer[self._offset :]
        self._consumed += self._offset
        self._offset = 0
        if self.marker_name is not None and self._buffer:
            released, self._buffer = released + (self._buffer if self.workflow is None else ""), ""
        return released

    def _pass_line(self, ended: bool) -> bool:
        """Advance to the next line or to the end of the buffer; return False to wait for more text."""
        stop = self._buffer.find("\n", self._offset) + 1 or len(self._buffer)
        line = self._buffer[self._offset : stop]
        is_complete = ended or line.endswith("\n")
        if not self._is_mid_line:
            if self._fences.open_fence is None and is_marker_line(line):
                return self._read_marker(ended) or (ended and self._advance(stop, is_complete))
            if not is_complete and self._may_become_marker(line):
                return False
            self._fences.feed(line)
        return self._advance(stop, is_complete)

    def _advance(self, stop: int, is_complete: bool) -> bool:
        self._offset, self._is_mid_line = stop, not is_complete
        return True

    def _read_marker(self, ended: bool) -> bool:
        """Read the name, which may be on a later line; it is complete when other text follows."""
        match = MARKER_PATTERN.match(self._buffer, self._offset)
        if match is None or (match.end() == len(self._buffer) and not ended):
            return False
        self.marker_name = match[1]
        self.workflow = next((name for name in marker_names(match[1]) if name in self._names), None)
        self.marker_span = (self._consumed + match.start(), self._consumed + match.end())
        return True

    def _may_become_marker(self, line: str) -> bool:
        stripped = line.lstrip(" ")
        if len(line) - len(stripped) > 3:
            return False
        fence = stripped[:3] in ("", "`", "``", "```", "~", "~~", "~~~")
        return fence or (self._fences.open_fence is None and MARKER.startswith(stripped))


def is_marker_line(line: str) -> bool:
    stripped = line.lstrip(" ")
    return stripped.startswith(MARKER) and len(line) - len(stripped) <= 3


def marker_names(raw_name: str) -> tuple[str, str]:
    return raw_name, raw_name.strip(DECORATION)


def parse_router_response(response: str, workflows: Iterable[Candidate], text: str = "") -> Decision:
    """Return the decision of the first `WORKFLOW:` line of an answer. Inputs are not parsed.

    The intent is the text after that line, else the text before it, else the message of the user.
    """
    names = [workflow.name for workflow in workflows]
    scanner = MarkerScanner(names)
    scanner.feed(response)
    scanner.end()
    if scanner.workflow is None:
        return ConversationDecision(
            response, text=text, warnings=unknown_workflow_warnings(scanner.marker_name, names)
        )
    before, after = response[: scanner.marker_span[0]], response[scanner.marker_span[1] :]
    intent, again = strip_marker_lines(after)
    others = {name for raw_name in again for name in marker_names(raw_name) if name in names} - {
        scanner.workflow
    }
    intent = intent or strip_marker_lines(before)[0] or text
    if others:
        candidates = (scanner.workflow, *sorted(others))
        return QuestionDecision(
            f"Which workflow do you mean: {join_quoted_names(candidates)}?", candidates, intent, text=text
        )
    return WorkflowDecision(scanner.workflow, intent, text=text)


def unknown_workflow_warnings(marker_name: str | None, names: list[str]) -> tuple[str, ...]:
    if marker_name is None:
        return ()
    close = did_you_mean_hint(marker_name, names)
    return (f"The agent named an unknown workflow: '{marker_name}'{close or '.'}",)


def strip_marker_lines(text: str) -> tuple[str, list[str]]:
    """Return the text without `WORKFLOW:` lines, and the names in those lines."""
    fences, kept_lines, raw_names = CodeFenceTracker(), list[str](), list[str]()
    for line in text.strip().split("\n"):
        match = REPEATED_MARKER_PATTERN.match(line) if fences.open_fence is None else None
        if match is not None:
            raw_names.append(match[1])
            continue
        fences.feed(line)
        kept_lines.append(line)
    # Only blank lines are stripped: less indentation before a code fence would change the code block.
    return BLANK_LINES_PATTERN.sub("", "\n".join(kept_lines)).rstrip(), raw_names
