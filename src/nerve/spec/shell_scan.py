"""The quoting of a shell command: which values stand inside quotes, and which where none may stand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nerve.spec.shell_rules import ARITHMETIC, DECLARES, RAW, Refusal, Simple, Word, check, refuse_code
from nerve.spec.shell_words import MARK, Words

OPENS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time", "coproc"})
CLOSES = frozenset({"fi", "done", "esac", "}"})
REDIRECTION = re.compile(r"<<<|<<-|<<|<>|<&|>>|>\||>&|&>>|&>|<|>")


@dataclass(slots=True)
class Here:
    """A here-document whose body is still to come."""

    end: str
    quoted: bool
    tabs: bool
    reader: Simple


@dataclass(slots=True)
class Level:
    """What is known of the commands of one list."""

    command: Simple = field(default_factory=Simple)
    pipeline: list[Simple] = field(default_factory=list)
    feeding: list[int] = field(default_factory=list)
    """The values in what is piped into a compound command of this list."""
    seen: int = 0
    """How many values had come when the list began."""
    readers: int = 0
    """How many commands that run their input had come then."""


class Scanner(Words):
    """Reads commands, and checks each when it has been read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.heres: list[Here] = []
        self.assigned: list[int] = []
        self.integers = False
        self.readers = 0

    # -- lists of commands -------------------------------------------------------------------------

    def commands(self, closer: str) -> str:
        """Read commands up to `closer`: the end of the text, `)`, or `case` for one branch of it."""
        level = Level(seen=self.marks, readers=self.readers)
        while True:
            self.blanks()
            character = self.peek()
            if not character:
                if closer:
                    self.lost(f"`{'esac' if closer == 'case' else closer}` is missing")
                return self.ended(level, "")
            if character == "\n":
                self.at += 1
                self.line_end()
                self.separated(level, piped=not level.command.words and bool(level.pipeline))
            elif character == "#":
                self.comment()
            elif character in ";&|" and not self.starts("&>"):
                if (end := self.operator(level, closer)) is not None:
                    return end
            elif character == ")":
                if closer != ")":
                    self.lost("a `)` without its `(`")
                self.at += 1
                return self.ended(level, ")")
            elif character == "(":
                self.parenthesis(level)
            elif character in "<>&" and not self.substitution():
                self.redirection(level.command)
            elif self.next_word(level, closer):
                return self.ended(level, "esac")

    def operator(self, level: Level, closer: str) -> str | None:
        found = re.compile(r";;&|;;|;&|&&|\|\||\|&|[;&|]").match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        if found[0] in (";;", ";&", ";;&"):
            if closer != "case":
                self.lost(f"`{found[0]}` outside of a case")
            return self.ended(level, ";;")
        self.separated(level, piped=found[0] in ("|", "|&"))
        return None

    def separated(self, level: Level, piped: bool) -> None:
        """A command is over; without a pipe behind it the pipeline is over too."""
        if level.command.words or level.command.marks or level.command.fed:
            check(level.command)
            self.declared(level.command)
            if level.command.runs_input:
                self.readers += 1
                if level.feeding:
                    refuse_code(level.feeding[0])
            level.pipeline.append(level.command)
        level.command = Simple()
        if not piped:
            self.piped(level)
            level.pipeline = []

    def ended(self, level: Level, by: str) -> str:
        self.separated(level, piped=False)
        return by

    def piped(self, level: Level) -> None:
        """Refuse values that flow into a shell; a compound command may print any value that came before."""
        for number, command in enumerate(level.pipeline):
            if number == 0 or not command.runs_input:
                continue
            for before in level.pipeline[:number]:
                before.to_shell = True
                marks = self.since(level.seen) if before.closes else before.marks + before.fed
                if marks:
                    refuse_code(marks[0])

    def declared(self, command: Simple) -> None:
        """Note integer variables, whose values are evaluated, and what is assigned."""
        at = command.program
        if at < len(command.words) and command.words[at].name in DECLARES:
            options = [word.text for word in command.words[at + 1 :]]
            self.integers |= any(re.match(r"-\w*i", option) for option in options)
        self.assigned += [mark for word in command.words if word.assigns for mark in word.marks]

    def parenthesis(self, level: Level) -> None:
        if level.command.words:
            function = re.compile(r"\([ \t]*\)").match(self.text, self.at)
            if function is None:
                self.lost("a `(` in the middle of a command")
            self.at = function.end()
            level.command = Simple()
        elif not self.arithmetic(2):
            before, readers = self.marks, self.readers
            self.at += 1
            self.deeper(lambda: self.commands(")"))
            level.command = Simple([Word(")")], self.since(before), closes=True)
            level.command.reads = self.readers > readers

    def nested(self) -> None:
        """`$( … )` and `<( … )`: a command of its own, with quotes of its own."""
        heres, self.heres = self.heres, []
        self.at += 2
        self.commands(")")
        if self.heres:
            self.lost("a here-document without its lines")
        self.heres = heres

    # -- redirections ------------------------------------------------------------------------------

    def redirection(self, command: Simple) -> None:
        found = REDIRECTION.match(self.text, self.at, self.end)
        assert found is not None
        self.at = found.end()
        self.blanks()
        target = self.word()
        if found[0] in ("<<", "<<-"):
            if target.marks:
                raise Refusal(target.marks[0], "a value cannot end a here-document", f"Write a word. {RAW}")
            if "\1" in target.text or not target.text:
                self.lost("the end of a here-document is not a plain word")
            self.heres.append(Here(target.text, target.quoted, found[0] == "<<-", command))
        elif found[0] == "<<<":
            command.fed += target.marks
        else:
            command.marks += target.marks

    def line_end(self) -> None:
        heres, self.heres = self.heres, []
        for here in heres:
            before = self.marks
            self.body(here)
            here.reader.fed += self.since(before)
            if here.reader.fed and (here.reader.to_shell or here.reader.runs_input):
                refuse_code(here.reader.fed[0])

    def body(self, here: Here) -> None:
        start = self.at
        end, after = self.body_end(here)
        if here.quoted:
            if MARK in self.text[start:end]:
                fix = f"Take the quotes off the word after `<<` (and put a \\ before each $). {RAW}"
                self.refuse("nothing is filled in between the lines of a quoted here-document", fix)
            self.at = after
            return
        whole, self.end = self.end, end
        while self.peek():
            self.inner()
        self.at, self.end = after, whole

    def body_end(self, here: Here) -> tuple[int, int]:
        """Where the body ends, and where the text goes on."""
        at, joined = self.at, False
        while True:
            if at >= self.end:
                self.lost(f"the here-document has no end `{here.end}`")
            stop = self.text.find("\n", at, self.end)
            stop = self.end if stop < 0 else stop
            line = self.text[at:stop]
            if not joined and (line.lstrip("\t") if here.tabs else line) == here.end:
                return at, min(stop + 1, self.end)
            slashes = len(line) - len(line.rstrip("\\"))
            joined = not here.quoted and slashes % 2 == 1
            at = stop + 1

    # -- compound commands -------------------------------------------------------------------------

    def next_word(self, level: Level, closer: str) -> bool:
        """Read a word of a command; True if it was the `esac` that ends the case around it."""
        word = self.word()
        command = level.command
        if self.peek() in ("<", ">") and re.fullmatch(r"\d+|\{\w+\}", word.bare) and word.bare == word.text:
            return False  # the number of a file
        plain = "" if word.quoted or command.words else word.text
        if plain == "esac" and closer == "case":
            return True
        if plain in OPENS or plain in ("case", "for", "select"):
            level.feeding += [mark for each in level.pipeline for mark in each.marks + each.fed]
        if plain in OPENS:
            self.separated(level, piped=bool(level.pipeline))
        elif plain == "[[":
            self.condition(command)
        elif plain == "case":
            self.case(command)
        elif plain in ("for", "select"):
            self.loop(command)
        elif plain == "function":
            self.blanks()
            self.word()
        else:
            command.words.append(word)
            command.marks += word.marks
            if plain in CLOSES:
                command.closes, command.reads = True, self.readers > level.readers
        return False

    def loop(self, command: Simple) -> None:
        self.blanks()
        if self.starts("((") and self.arithmetic(2):
            return
        name = self.word()
        if name.marks:
            raise Refusal(name.marks[0], "a value cannot name a variable", f"Write a name. {RAW}")
        self.blanks()
        if self.starts("in") and self.peek(2) in (" ", "\t"):
            command.words.append(Word("for"))

    def case(self, command: Simple) -> None:
        before, readers = self.marks, self.readers
        self.blanks()
        self.word()
        self.space()
        if self.word().text != "in":
            self.lost("a case without `in`")
        while True:
            self.space()
            if self.starts("esac") and not re.match(r"\w", self.peek(4)):
                self.at += 4
                break
            self.patterns()
            ended = ""

            def branch() -> None:
                nonlocal ended
                ended = self.commands("case")

            self.deeper(branch)
            if ended == "esac":
                break
        command.words.append(Word("esac"))
        command.closes, command.reads = True, self.readers > readers
        command.marks = self.since(before)

    def patterns(self) -> None:
        self.at += self.peek() == "("
        while True:
            self.blanks()
            before = self.at
            self.word()
            self.blanks()
            if self.peek() not in ("|", ")") or self.at == before:
                self.lost("a pattern of a case without `)`")
            self.at += 1
            if self.text[self.at - 1] == ")":
                return

    def condition(self, command: Simple) -> None:
        """`[[ … ]]`, which evaluates what it compares as numbers."""
        words: list[Word] = []
        while True:
            self.space()
            if not self.peek():
                self.lost("`]]` is missing")
            if re.compile(r"\]\](?![^\s;&|<>()])").match(self.text, self.at, self.end):
                self.at += 2
                break
            words.append(self.word(within="condition"))
        evaluates = any(word.text in ARITHMETIC and not word.quoted for word in words)
        for before, word in zip([Word(), *words], words, strict=False):
            if word.marks and (evaluates or before.text in ("-v", "-R")):
                fix = f"Use `[ … ]` instead, which does not. {RAW}"
                raise Refusal(word.marks[0], "`[[` evaluates what it compares as a number", fix)
        command.words.append(Word("[["))
        command.marks += [mark for word in words for mark in word.marks]


def scan(text: str) -> list[bool]:
    """For each MARK whether it stands inside double quotes; raises Refusal where a value may not stand."""
    scanner = Scanner(text)
    scanner.commands("")
    if scanner.heres:
        scanner.lost("a here-document without its lines")
    if scanner.integers and scanner.assigned:
        message = "this command declares integer variables, and what is assigned to them is evaluated"
        raise Refusal(scanner.assigned[0], message, f"Do without -i. {RAW}")
    return scanner.inside
