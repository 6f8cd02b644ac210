"""The line `WORKFLOW: name` in an answer, found while the answer is still coming."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nerve.core.suggest import suggest
from nerve.router.decision import Chosen, Conversation, Decision, Offered, Question, listed

WORD = "WORKFLOW:"
ROUTING = re.compile(r" {0,3}WORKFLOW:\s*(\S+)")
AGAIN = re.compile(r"\s*WORKFLOW:\s*(\S*)")
"""Another such line behind the first, however far in it stands."""
FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
BLANK = re.compile(r"\A(?:[^\S\n]*\n)+|\A\s+\Z")
DECORATION = "`*_\"'{}<>()[].,;:!"
"""What agents like to put around a name."""


class Fences:
    """Whether a line is quoted as code; a line in a code block says nothing to us."""

    def __init__(self) -> None:
        self.open: str | None = None

    def take(self, line: str) -> None:
        found = FENCE.fullmatch(line.rstrip("\r\n"))
        if found is None:
            return
        marks, rest = found.groups()
        if self.open is None:
            self.open = marks
        elif marks.startswith(self.open) and not rest.strip():
            self.open = None


class Listener:
    """Takes an answer in pieces of any size, and gives what may be shown of it.

    The beginning of a line is held back until it is known not to be a `WORKFLOW:` line. The first such line
    decides: behind the name of a workflow nothing is shown any more, behind another name everything is.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._pieces: list[str] = []
        self._fences = Fences()
        self._held = ""
        self._at = self._passed = 0
        self._within = False
        self.named: str | None = None
        """The name in the first `WORKFLOW:` line, known or not."""
        self.workflow: str | None = None
        """The workflow it names."""
        self.line = (0, 0)
        """Where that line begins, and where the name in it ends."""

    @property
    def answer(self) -> str:
        return "".join(self._pieces)

    def feed(self, piece: str) -> str:
        """Take in the next piece; gives what may be shown now."""
        self._pieces.append(piece)
        if self.named is not None:
            return piece if self.workflow is None else ""
        self._held += piece
        return self._released(ended=False)

    def end(self) -> str:
        """The answer is whole; gives what may still be shown of it."""
        return self._released(ended=True)

    def _released(self, ended: bool) -> str:
        while self.named is None and self._at < len(self._held) and self._pass_line(ended):
            pass
        shown, self._held = self._held[: self._at], self._held[self._at :]
        self._passed += self._at
        self._at = 0
        if self.named is not None and self._held:
            shown, self._held = shown + (self._held if self.workflow is None else ""), ""
        return shown

    def _pass_line(self, ended: bool) -> bool:
        """Go on to the next line, or to the end of what there is of this one; False to wait for more."""
        stop = self._held.find("\n", self._at) + 1 or len(self._held)
        line = self._held[self._at : stop]
        whole = ended or line.endswith("\n")
        if not self._within:
            if self._fences.open is None and is_routing(line):
                return self._found(ended) or (ended and self._move(stop, whole))
            if not whole and self._may_become_more(line):
                return False
            self._fences.take(line)
        return self._move(stop, whole)

    def _move(self, stop: int, whole: bool) -> bool:
        self._at, self._within = stop, not whole
        return True

    def _found(self, ended: bool) -> bool:
        """Read the name, which may stand on a later line; it is whole when something is behind it."""
        found = ROUTING.match(self._held, self._at)
        if found is None or (found.end() == len(self._held) and not ended):
            return False
        self.named = found[1]
        self.workflow = next((name for name in names_in(found[1]) if name in self._names), None)
        self.line = (self._passed + found.start(), self._passed + found.end())
        return True

    def _may_become_more(self, line: str) -> bool:
        begun = line.lstrip(" ")
        if len(line) - len(begun) > 3:
            return False
        fence = begun[:3] in ("", "`", "``", "```", "~", "~~", "~~~")
        return fence or (self._fences.open is None and WORD.startswith(begun))


def is_routing(line: str) -> bool:
    begun = line.lstrip(" ")
    return begun.startswith(WORD) and len(line) - len(begun) <= 3


def names_in(said: str) -> tuple[str, str]:
    return said, said.strip(DECORATION)


def parse_router_response(response: str, workflows: Iterable[Offered], text: str = "") -> Decision:
    """What an agent decided, by the first `WORKFLOW:` line of its answer; inputs are not looked at.

    The intent is what stands behind that line, else what stands before it, else the user's own text.
    """
    names = [each.name for each in workflows]
    listener = Listener(names)
    listener.feed(response)
    listener.end()
    if listener.workflow is None:
        return Conversation(response, text=text, warnings=unknown(listener.named, names))
    before, behind = response[: listener.line[0]], response[listener.line[1] :]
    intent, again = without_lines(behind)
    others = {name for said in again for name in names_in(said) if name in names} - {listener.workflow}
    intent = intent or without_lines(before)[0] or text
    if others:
        found = (listener.workflow, *sorted(others))
        return Question(f"Which one is meant: {listed(found)}?", found, intent, text=text)
    return Chosen(listener.workflow, intent, text=text)


def unknown(named: str | None, names: list[str]) -> tuple[str, ...]:
    if named is None:
        return ()
    close = suggest(named, names)
    return (f"the agent named a workflow that does not exist: '{named}'{close or '.'}",)


def without_lines(text: str) -> tuple[str, list[str]]:
    """The text without `WORKFLOW:` lines, and what those name."""
    fences, kept, named = Fences(), list[str](), list[str]()
    for line in text.strip().split("\n"):
        found = AGAIN.match(line) if fences.open is None else None
        if found is not None:
            named.append(found[1])
            continue
        fences.take(line)
        kept.append(line)
    # Only blank lines go: less space before a mark of code would change what is quoted behind it.
    return BLANK.sub("", "\n".join(kept)).rstrip(), named
