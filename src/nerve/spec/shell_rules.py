"""Where in a shell command a value may stand: what each program does with its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

RAW = "Values are never pasted into a command; there is no raw()."
FIRST = f'Assign it first, `value={{{{ … }}}}`, and use "$value" there. {RAW}'

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]\0\1]*\])?\+?=")
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "busybox"})
INTERPRETER = re.compile(r"(python|perl|ruby|node|nodejs|php|lua|deno|bun|tclsh|Rscript|pypy)[0-9.]*")
WRAPPERS = frozenset(
    {
        "command", "builtin", "exec", "nohup", "sudo", "doas", "env", "xargs", "setsid",
        "timeout", "nice", "time",
    }
)  # fmt: skip
CODE = frozenset(
    {
        "eval", "trap", "let", "alias", "source", ".", "ssh", "su", "watch",
        "parallel", "bind", "complete", "compgen", "fc",
    }
)  # fmt: skip
"""Programs that take their words for code."""
NAMES = frozenset({"unset", "read", "readarray", "mapfile", "getopts", "wait"})
"""Programs whose words are names of variables, and what stands in the brackets of a name is evaluated."""
EVALUATED = frozenset(
    {
        "PS0", "PS1", "PS4", "PROMPT_COMMAND", "BASH_ENV", "ENV", "SECONDS", "RANDOM", "SRANDOM",
        "LINENO", "OPTIND", "HISTCMD",
    }
)  # fmt: skip
"""Variables whose values bash evaluates."""
DECLARES = frozenset({"declare", "typeset", "local", "export", "readonly"})
SCRIPTED = frozenset({"sed", "awk", "gawk", "mawk", "nawk"})
ARITHMETIC = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


class Refusal(Exception):
    """Why a value may not stand where its `mark` (counted from 0) is."""

    def __init__(self, mark: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.mark, self.message, self.fix = mark, message, fix


@dataclass(slots=True)
class Word:
    """A word without its quotes: \\0 stands for a value, \\1 for anything else that is known only later."""

    text: str = ""
    bare: str = ""
    """The beginning of it that is not quoted."""
    quoted: bool = False
    marks: list[int] = field(default_factory=list)
    """The values in it, also those in commands inside of it."""

    @property
    def name(self) -> str:
        return self.text.rsplit("/", 1)[-1]

    @property
    def assigns(self) -> bool:
        return ASSIGNMENT.match(self.bare) is not None


@dataclass(slots=True)
class Simple:
    """A simple command: its words, and the values in what it reads."""

    words: list[Word] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)
    """The values in its here-documents and here-strings."""
    to_shell: bool = False
    """Whether what it prints is read as code."""
    closes: bool = False
    """Whether it is the end of a compound command, such as `done`."""
    reads: bool = False
    """Whether a command in that compound command runs its input."""

    @property
    def program(self) -> int:
        """The number of the word that names the program; behind the last word if there is none."""
        wrapper = ""
        for number, word in enumerate(self.words):
            if word.assigns or (wrapper and re.match(r"-|\d+[smhd]?$", word.text)):
                continue
            if wrapper == "timeout" and "\0" in word.text:
                wrapper = "command"
                continue
            if word.name not in WRAPPERS:
                return number
            wrapper = word.name
        return len(self.words)

    @property
    def runs_input(self) -> bool:
        """Whether it reads code from its standard input."""
        if self.reads:
            return True
        if (at := self.program) == len(self.words):
            return False
        name, rest = self.words[at].name, [word.text for word in self.words[at + 1 :]]
        if name in ("source", "."):
            return True
        if name not in SHELLS and not INTERPRETER.fullmatch(name):
            return False
        return "-s" in rest or all(word.startswith("-") or word == "/dev/stdin" for word in rest)


def check(command: Simple) -> None:
    """Refuse values that the program would take for code."""
    at = command.program
    for number, word in enumerate(command.words):
        if not word.marks:
            continue
        mark = word.marks[0]
        if word.assigns and re.split(r"\W", word.bare)[0] in EVALUATED:
            raise Refusal(mark, "bash evaluates the value of this variable", f"Use another variable. {RAW}")
        if number == at:
            fix = f'If that is meant: `program={{{{ … }}}}` and then "$program". {RAW}'
            raise Refusal(mark, "a value stands where the name of a program is expected", fix)
        if number > at:
            for message, fix in reasons(command.words[at], command.words[at + 1 : number], word):
                raise Refusal(mark, message, fix)
    if command.fed and command.runs_input:
        refuse_code(command.fed[0])


def refuse_code(mark: int) -> None:
    raise Refusal(mark, "a value stands in text that is run as code", FIRST.replace("Assign", "Export"))


def reasons(program: Word, before: list[Word], word: Word) -> Iterator[tuple[str, str]]:
    """What is wrong with a value in `word`, which comes after the program and the words `before`."""
    name, earlier = program.name, [other.text for other in before]
    last = earlier[-1] if earlier else ""
    if name in CODE:
        yield (
            f"`{name}` takes its words for code",
            f"Do without `{name}`, or send the value on standard input. {RAW}",
        )
    if name in NAMES or (name in ("test", "[") and (last in ("-v", "-R") or "\0" in last)):
        yield f"`{name}` may take this word for the name of a variable, which it evaluates", FIRST
    if name == "printf" and is_format(earlier):
        yield "`printf` takes this word for its format or an option", f"Write `printf %s {{{{ … }}}}`. {RAW}"
    if name in DECLARES and (not word.assigns or any(re.match(r"[-+]\w*[in]", other) for other in earlier)):
        yield f"`{name}` evaluates this word", f"Write `name={{{{ … }}}}` as a command of its own. {RAW}"
    if runs_text([program, *before]):
        fix = f'Export it first, `export value={{{{ … }}}}`, and let the inner shell use "$value". {RAW}'
        yield "the words after `-c` are code for another shell", fix
    if INTERPRETER.fullmatch(name) and re.match(r"-\w*[ceErp]|--(eval|print|execute)", f"{last} "):
        yield f"`{name}` takes this word for code", f"Pass it as an argument of the script instead. {RAW}"
    if name in SCRIPTED and is_script(name, earlier):
        fix = f'Export it first and use the variable: in awk as ENVIRON["value"]; for sed, use awk. {RAW}'
        yield f"`{name}` takes this word for code", fix


def runs_text(words: list[Word]) -> bool:
    """Whether these words begin a call of a shell that is given its script as a word."""
    for number, word in enumerate(words):
        if word.name in SHELLS:
            return any(re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", other.text) for other in words[number + 1 :])
        if number == 0 and "\1" in word.text and any(other.text == "-c" for other in words):
            return True
    return False


def is_format(earlier: list[str]) -> bool:
    """Whether the next word of printf is its format, or comes before that."""
    rest = earlier[2 if earlier[:1] == ["-v"] else 0 :]
    return not [word for word in rest[:1] if word != "--" and not word.startswith("-v")] and len(rest) < 2


def is_script(name: str, earlier: list[str]) -> bool:
    """Whether the next word of sed or awk is its script: behind `-e`, or the first that is no option."""
    if earlier and earlier[-1] in ("-e", "--expression", "--source"):
        return True
    options = ("-v", "-F", "-f") if name != "sed" else ("-f", "-l")
    if earlier and earlier[-1] in options:
        return False
    plain = [
        word
        for number, word in enumerate(earlier)
        if not word.startswith("-") and (not number or earlier[number - 1] not in (*options, "-e"))
    ]
    return not plain and not any(word in ("-e", "-f") for word in earlier)
