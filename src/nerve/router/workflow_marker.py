"""The line `WORKFLOW: name` in an answer, found while the answer is still coming."""

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
"""Another such line behind the first, however far in it stands."""
FENCE_PATTERN = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
BLANK_LINES_PATTERN = re.compile(r"\A(?:[^\S\n]*\n)+|\A\s+\Z")
DECORATION = "`*_\"'{}<>()[].,;:!"
"""What agents like to put around a name."""


class CodeFenceTracker:
    """Whether a line is quoted as code; a line in a code block says nothing to us."""

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
    """Takes an answer in pieces of any size, and gives what may be shown of it.

    The beginning of a line is held back until it is known not to be a `WORKFLOW:` line. The first such line
    decides: behind the name of a workflow nothing is shown any more, behind another name everything is.
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
        """The workflow it names."""
        self.marker_span = (0, 0)
        """Where that line begins, and where the name in it ends."""

    @property
    def answer(self) -> str:
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Take in the next piece; gives what may be shown now."""
        self._pieces.append(piece)
        if self.marker_name is not None:
            return piece if self.workflow is None else ""
        self._buffer += piece
        return self._release_text(ended=False)

    def end(self) -> str:
        """The answer is whole; gives what may still be shown of it."""
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
        """Go on to the next line, or to the end of what there is of this one; False to wait for more."""
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
        """Read the name, which may stand on a later line; it is whole when something is behind it."""
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
    """What an agent decided, by the first `WORKFLOW:` line of its answer; inputs are not looked at.

    The intent is what stands behind that line, else what stands before it, else the user's own text.
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
            f"Which one is meant: {join_quoted_names(candidates)}?", candidates, intent, text=text
        )
    return WorkflowDecision(scanner.workflow, intent, text=text)


def unknown_workflow_warnings(marker_name: str | None, names: list[str]) -> tuple[str, ...]:
    if marker_name is None:
        return ()
    close = did_you_mean_hint(marker_name, names)
    return (f"the agent named a workflow that does not exist: '{marker_name}'{close or '.'}",)


def strip_marker_lines(text: str) -> tuple[str, list[str]]:
    """The text without `WORKFLOW:` lines, and what those name."""
    fences, kept_lines, raw_names = CodeFenceTracker(), list[str](), list[str]()
    for line in text.strip().split("\n"):
        match = REPEATED_MARKER_PATTERN.match(line) if fences.open_fence is None else None
        if match is not None:
            raw_names.append(match[1])
            continue
        fences.feed(line)
        kept_lines.append(line)
    # Only blank lines go: less space before a mark of code would change what is quoted behind it.
    return BLANK_LINES_PATTERN.sub("", "\n".join(kept_lines)).rstrip(), raw_names
