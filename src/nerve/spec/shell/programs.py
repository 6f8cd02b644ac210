"""Programs that run a word or their standard input as code, and how they parse their words."""

from __future__ import annotations

import re
from typing import Literal

from nerve.lazy_dataclass import dataclass

ProgramKind = Literal["shell", "script", "filter", "prefix", "words", "options"]


@dataclass(frozen=True, slots=True)
class ShellProgram:
    """How a program parses its words."""

    kind: ProgramKind
    """`shell` and `script` run a file, or their standard input; `filter` runs its first operand;
    `prefix` runs another program; `words` runs every word as code; `options` only some."""
    word_options: str = ""
    """The letters of options that take a word."""
    code_options: str = ""
    """The letters of options whose word is code."""
    long_code_options: frozenset[str] = frozenset()
    """Long options whose word is code or names code."""
    skipped_operands: int = 0
    """How many operands of a prefix come before the program."""
    runs_stdin: bool = False
    """Whether its standard input is code, regardless of its words."""


def name_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_SHELL = ShellProgram("shell", "oO", "c", name_set("--rcfile --init-file --command --init-command"))
_AWK = ShellProgram("filter", "Ffilv", "e", name_set("--source"))
_NODE = ShellProgram("script", "", "epr", name_set("--eval --print --require --import --loader"))
_EXEC = name_set("-exec -execdir -ok -okdir -fprintf")

PROGRAMS: dict[str, ShellProgram] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh"), _SHELL),
    "python": ShellProgram("script", "WXQ", "c"),
    "pypy": ShellProgram("script", "WX", "c"),
    "perl": ShellProgram("script", "I", "eEMm"),
    "ruby": ShellProgram("script", "IEKC", "er"),
    "php": ShellProgram("script", "dfz", "rBRE"),
    "lua": ShellProgram("script", "", "el"),
    "Rscript": ShellProgram("script", "", "e", name_set("--expr")),
    "osascript": ShellProgram("script", "l", "e"),
    "tclsh": ShellProgram("script"),
    "expect": ShellProgram("script", "", "c"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), _NODE),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    "sed": ShellProgram("filter", "lf", "e", name_set("--expression")),
    **dict.fromkeys(
        ("command", "builtin", "nohup", "setsid", "busybox", "time", "coproc"), ShellProgram("prefix")
    ),
    "exec": ShellProgram("prefix", "a"),
    "sudo": ShellProgram("prefix", "ugpCDhrtTU"),
    "doas": ShellProgram("prefix", "uC"),
    "env": ShellProgram("prefix", "uC", "S", name_set("--split-string")),
    "nice": ShellProgram("prefix", "n"),
    "ionice": ShellProgram("prefix", "cnp"),
    "stdbuf": ShellProgram("prefix", "ioe"),
    "timeout": ShellProgram("prefix", "ks", skipped_operands=1),
    "chroot": ShellProgram("prefix", skipped_operands=1),
    "flock": ShellProgram("prefix", "wE", "c", name_set("--command"), skipped_operands=1),
    "xargs": ShellProgram("prefix", "aEILnPsd", runs_stdin=True),
    "runuser": ShellProgram("words", runs_stdin=True),
    "su": ShellProgram("words", runs_stdin=True),
    "parallel": ShellProgram("words", runs_stdin=True),
    **dict.fromkeys(("at", "batch", "crontab", "pwsh", "powershell"), ShellProgram("words", runs_stdin=True)),
    **dict.fromkeys(("watch", "make", "gmake", "tmux", "screen", "gdb"), ShellProgram("words")),
    "ssh": ShellProgram("words"),
    "git": ShellProgram(
        "options",
        code_options="c",
        long_code_options=name_set("--upload-pack --receive-pack --exec --config"),
    ),
    "script": ShellProgram("options", code_options="c", long_code_options=name_set("--command")),
    "rsync": ShellProgram("options", code_options="e", long_code_options=name_set("--rsh --rsync-path")),
    "tar": ShellProgram(
        "options",
        code_options="I",
        long_code_options=name_set("--to-command --checkpoint-action --use-compress-program"),
    ),
    "find": ShellProgram("options", long_code_options=_EXEC),
}

EVALUATING_BUILTINS = name_set(
    "eval let alias bind complete compgen compopt fc history enable unset read mapfile readarray getopts "
    "trap source . hash jobs wait declare typeset local export readonly"
)
"""Bash builtins that evaluate their words, as code or as the name of a variable."""
SCRIPT_BUILTINS = frozenset({"eval", "trap"})
"""The builtins whose words are a script."""
ASSIGNING_COMMANDS = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "wait", "coproc"})
"""Commands that assign to the variables that their words name."""
PLAIN_PROGRAMS = name_set(
    "echo printf cat grep egrep fgrep rg ls cp mv rm mkdir rmdir touch cd pwd test [ true false : which type "
    "head tail sort uniq wc cut tr tee diff cmp basename dirname realpath jq yq curl wget gh ln chmod chown "
    "stat file date sleep seq pip pip3 npm yarn pnpm apt apt-get brew dnf yum apk cargo go set exit return "
    "pushd popd shift kill gzip gunzip zip unzip git rsync tar"
)
"""Programs that do not run a shell that one of their words names."""
QUERY_PROGRAMS = name_set("psql mysql mariadb sqlite3 duckdb mongosh jq yq")
"""Programs with a query language that a value in a word can become part of."""
EVALUATED_VARIABLES = name_set(
    "PS0 PS1 PS2 PS4 PROMPT_COMMAND BASH_ENV ENV IFS PATH SECONDS RANDOM SRANDOM LINENO OPTIND HISTCMD "
    "BASHOPTS SHELLOPTS BASH_CMDS BASH_ALIASES LD_PRELOAD LD_LIBRARY_PATH GIT_SSH_COMMAND GIT_EDITOR "
    "GIT_PAGER GIT_EXTERNAL_DIFF EDITOR VISUAL PAGER BROWSER LESSOPEN PERL5OPT PERL5LIB RUBYOPT NODE_OPTIONS "
    "PYTHONSTARTUP PYTHONPATH MAKEFLAGS SHELL"
)
"""Variables whose values bash or common programs evaluate."""
UNTRACKED_VARIABLE_PATTERN = re.compile(
    r"NERVE_\w+|BASH_\w+|USER_MESSAGE|ARGUMENTS|REPLY|MAPFILE|OPTARG|PWD|OLDPWD|DIRSTACK|COPROC\w*|_"
)
"""Variables that can hold a value although the script does not assign one."""
LITERAL_OUTPUT_PROGRAMS = name_set(
    "wc date nproc seq echo printf expr pwd mktemp basename dirname uname hostname whoami id realpath which "
    "command"
)
"""Programs whose output contains a value only if one of their words does."""


def lookup_program(name: str) -> ShellProgram | None:
    """Return the entry of a program, ignoring a version suffix of its name, or None."""
    return PROGRAMS.get(name) or PROGRAMS.get(name.rstrip("0123456789."))
