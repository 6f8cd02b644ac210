"""The words of a shell command: quotes, expansions, and where values stand in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from nerve.spec.shell_rules import FIRST, RAW, Refusal, Word

MARK = "\0"
"""Stands for a value."""
PLAIN = re.compile(r"(?:[^\s;&|<>()'\"\\$`\0=]|=(?!\())+")
INNER = re.compile(r"[^\0\\$`\"]+")
DEEP = 50

QUOTED = (
    "no value is filled in between single quotes",
    f"Close the quotes before it, 'it is '{{{{ … }}}}, or use double quotes. {RAW}",
)


class Words:
    """Reads words; what it cannot follow it refuses."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.end = text, 0, len(text)
        self.inside: list[bool] = []
        """For each value whether it stands inside double quotes, or what works like them."""
        self.depth = 0

    def nested(self) -> None:
        """Read `$( … )` or `<( … )`."""
        raise NotImplementedError

    def line_end(self) -> None:
        """A line ends between words."""
        raise NotImplementedError

    # -- the text ----------------------------------------------------------------------------------

    def peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.text[at] if at < self.end else ""

    def starts(self, text: str) -> bool:
        return self.text.startswith(text, self.at, self.end)

    @property
    def marks(self) -> int:
        return len(self.inside)

    def since(self, before: int) -> list[int]:
        return list(range(before, self.marks))

    def mark(self, inside: bool) -> None:
        self.inside.append(inside)
        self.at += 1

    def lost(self, what: str) -> NoReturn:
        """The command cannot be followed: nothing is known about its values, so they are refused."""
        mark = min(self.marks, self.text.count(MARK) - 1)
        raise Refusal(
            mark, f"the quoting of this command cannot be followed: {what}", f"Write it simpler. {RAW}"
        )

    def refuse(self, message: str, fix: str) -> NoReturn:
        raise Refusal(self.marks, message, fix)

    def deeper(self, read: Callable[[], object]) -> None:
        self.depth += 1
        if self.depth > DEEP:
            self.lost("it is nested too deeply")
        read()
        self.depth -= 1

    def blanks(self) -> None:
        while self.peek() in (" ", "\t") or self.starts("\\\n"):
            self.at += 2 if self.peek() == "\\" else 1

    def comment(self) -> None:
        stop = self.text.find("\n", self.at, self.end)
        stop = self.end if stop < 0 else stop
        if MARK in self.text[self.at : stop]:
            self.refuse("a value in a comment is never used", "Take it out of the comment.")
        self.at = stop

    def space(self) -> None:
        """Skip blanks, line ends and comments."""
        while True:
            self.blanks()
            if self.peek() == "\n":
                self.at += 1
                self.line_end()
            elif self.peek() == "#":
                self.comment()
            else:
                return

    def substitution(self) -> bool:
        return self.peek() in ("<", ">") and self.peek(1) == "("

    # -- words -------------------------------------------------------------------------------------

    def array(self) -> None:
        """`name=( … )`."""
        self.at += 1
        while True:
            self.space()
            if not self.peek():
                self.lost("`)` is missing")
            if self.peek() == ")":
                self.at += 1
                return
            start = self.at
            item = self.word()
            if self.at == start:
                self.lost(f"`{self.peek()}` in an array")
            if item.marks and item.bare.startswith("[") and "]=" not in item.text.split(MARK)[0]:
                raise Refusal(item.marks[0], "the index of an array is evaluated", FIRST)

    def word(self, within: str = "command") -> Word:
        """Read one word; its marks are those of everything in it."""
        word, before, start, bare = Word(), self.marks, self.at, True
        stops = " \t\n" if within == "condition" else " \t\n;&|<>()"
        while (character := self.peek()) and (character not in stops or self.substitution()):
            if (run := PLAIN.match(self.text, self.at, self.end)) is not None:
                word.text += run[0]
                word.bare += run[0] if bare else ""
                self.at = run.end()
                continue
            bare = bare and (character not in "'\"\\$`<>\0" or self.starts("\\\n"))
            if bare and character != "\\":
                word.bare += character
            self.piece(word, character)
            if bare and character == "=" and self.peek() == "(" and word.assigns:
                self.deeper(self.array)
        word.marks = self.since(before)
        if self.at == start and within == "condition":
            self.lost("an empty word")
        return word

    def piece(self, word: Word, character: str) -> None:
        if character == "'":
            word.quoted = True
            word.text += self.single()
        elif character == '"':
            word.quoted = True
            word.text += self.double()
        elif character == "\\":
            if self.peek(1) != "\n":
                word.quoted = True
                word.text += self.peek(1)
            self.escape()
        elif character in "$`" or self.substitution():
            word.text += "\1"
            word.quoted |= self.peek(1) in ("'", '"')
            self.deeper(lambda: self.expansion(inside=False))
        elif character == MARK:
            word.text += MARK
            self.mark(inside=False)
        else:
            word.text += character
            self.at += 1

    def escape(self) -> None:
        if self.peek(1) == MARK:
            self.lost("a \\ before a value")
        self.at = min(self.at + 2, self.end)

    def single(self) -> str:
        stop = self.text.find("'", self.at + 1, self.end)
        if stop < 0:
            self.lost("a ' is not closed")
        content = self.text[self.at + 1 : stop]
        if MARK in content:
            self.refuse(*QUOTED)
        self.at = stop + 1
        return content

    def double(self) -> str:
        """What is between double quotes; what is known only later is one character."""
        start, before = self.at + 1, self.marks
        self.at += 1
        plain = True
        while self.peek() != '"':
            if not self.peek():
                self.lost('a " is not closed')
            plain = self.inner() and plain
        self.at += 1
        if plain:
            return self.text[start : self.at - 1]
        return MARK if self.marks > before else "\1"

    def inner(self) -> bool:
        """One thing inside double quotes or a here-document; False if it is known only later."""
        character = self.peek()
        if character == MARK:
            self.mark(inside=True)
        elif character == "\\":
            self.escape()
        elif character in "$`":
            self.deeper(lambda: self.expansion(inside=True))
        else:
            run = INNER.match(self.text, self.at, self.end)
            self.at = run.end() if run is not None else self.at + 1
            return True
        return False

    # -- expansions --------------------------------------------------------------------------------

    def expansion(self, inside: bool) -> None:
        """What begins with `$`, a backtick, or `<(`."""
        if self.peek() == "`":
            return self.backticks()
        following = self.peek(1)
        if following == MARK:
            self.refuse("a `$` stands before a value", f"Write {{{{ … }}}} without it. {RAW}")
        if following == "(":
            if self.peek() == "$" and self.arithmetic(3):
                return None
            return self.nested()
        if following == "{":
            return self.parameter(inside)
        if following == "[":
            return self.brackets()
        if not inside and following == "'":
            return self.ansi()
        if not inside and following == '"':
            self.at += 1
            before = self.marks
            self.double()
            if self.marks > before:
                raise Refusal(before, 'a value in $"…" is looked up as a message', f'Write "…". {RAW}')
            return None
        self.at += 2 if re.match(r"[\w@*#?$!-]", following) else 1
        return None

    def arithmetic(self, skip: int) -> bool:
        """Skip `((…))`, in which everything is evaluated; False if it is a subshell in a subshell."""
        if not self.text.startswith("((", self.at + skip - 2):
            return False
        depth, at = 2, self.at + skip
        while depth > 1 and at < self.end:
            character = self.text[at]
            if character in "'\"\\`":
                at = self.over_quotes(at)
                continue
            depth += (character == "(") - (character == ")")
            at += 1
        if self.text[at : at + 1] != ")":
            return False
        if MARK in self.text[self.at : at]:
            self.at = self.text.index(MARK, self.at)
            self.refuse(
                "arithmetic evaluates a value as code",
                f"Check it first: `n={{{{ … }}}}; [[ $n =~ ^[0-9]+$ ]]`, and then use n. {RAW}",
            )
        self.at = at + 1
        return True

    def over_quotes(self, at: int) -> int:
        """Where the quoted text that begins at `at` is over."""
        found = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`|\\.", re.DOTALL).match(
            self.text, at, self.end
        )
        if found is None:
            self.lost(f"{self.text[at]} is not closed")
        return found.end()

    def backticks(self) -> None:
        stop = self.over_quotes(self.at)
        if MARK in self.text[self.at : stop]:
            self.refuse("values are not filled in between backticks", f"Write $( … ) instead. {RAW}")
        self.at = stop

    def brackets(self) -> None:
        stop = self.text.find("]", self.at, self.end)
        if stop < 0:
            self.lost("a $[ is not closed")
        if MARK in self.text[self.at : stop]:
            self.refuse("arithmetic evaluates a value as code", FIRST)
        self.at = stop + 1

    def ansi(self) -> None:
        found = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.text, self.at, self.end)
        if found is None:
            self.lost("a $' is not closed")
        if MARK in found[0]:
            self.refuse(*QUOTED)
        self.at = found.end()

    def parameter(self, inside: bool) -> None:
        """`${…}`, in which no value may stand."""
        before = self.marks
        self.at += 2
        while self.peek() != "}":
            character = self.peek()
            if not character:
                self.lost("a ${ is not closed")
            if character == MARK:
                self.refuse("no value is filled in inside ${…}", FIRST)
            if character == "'" and inside:
                self.lost("a ' inside ${…} inside double quotes")
            self.piece(Word(), character)
        self.at += 1
        if self.marks > before:
            raise Refusal(before, "no value is filled in inside ${…}", FIRST)
