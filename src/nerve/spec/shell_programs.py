"""The programs that take a word, or their standard input, for code, and how their words are read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["shell", "script", "filter", "prefix", "words", "options"]


@dataclass(frozen=True, slots=True)
class Program:
    """How a program reads its words."""

    kind: Kind
    """`shell` and `script` run a file, or their standard input; `filter` runs its first operand;
    `prefix` runs another program; `words` takes every word for code; `options` only some."""
    takes: str = ""
    """The letters of options that take a word."""
    code: str = ""
    """The letters of options whose word is code."""
    long: frozenset[str] = frozenset()
    """Long options whose word is code or names code."""
    skip: int = 0
    """How many operands of a prefix come before the program."""
    reads: bool = False
    """Whether its standard input is code, whatever its words are."""


def name_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _long(*names: str) -> frozenset[str]:
    return frozenset(names)


_SHELL = Program("shell", "oO", "c", _long("--rcfile", "--init-file", "--command", "--init-command"))
_AWK = Program("filter", "Ffilv", "e", _long("--source"))
_NODE = Program("script", "", "epr", _long("--eval", "--print", "--require", "--import", "--loader"))
_EXEC = _long("-exec", "-execdir", "-ok", "-okdir", "-fprintf")

PROGRAMS: dict[str, Program] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "csh"), _SHELL),
    "python": Program("script", "WXQ", "c"),
    "pypy": Program("script", "WX", "c"),
    "perl": Program("script", "I", "eEMm"),
    "ruby": Program("script", "IEKC", "er"),
    "php": Program("script", "dfz", "rBRE"),
    "lua": Program("script", "", "el"),
    "Rscript": Program("script", "", "e", _long("--expr")),
    "osascript": Program("script", "l", "e"),
    "tclsh": Program("script"),
    "expect": Program("script", "", "c"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), _NODE),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    "sed": Program("filter", "lf", "e", _long("--expression")),
    **dict.fromkeys(
        ("command", "builtin", "nohup", "setsid", "busybox", "time", "coproc"), Program("prefix")
    ),
    "exec": Program("prefix", "a"),
    "sudo": Program("prefix", "ugpCDhrtTU"),
    "doas": Program("prefix", "uC"),
    "env": Program("prefix", "uC", "S", _long("--split-string")),
    "nice": Program("prefix", "n"),
    "ionice": Program("prefix", "cnp"),
    "stdbuf": Program("prefix", "ioe"),
    "timeout": Program("prefix", "ks", skip=1),
    "chroot": Program("prefix", skip=1),
    "flock": Program("prefix", "wE", "c", _long("--command"), skip=1),
    "xargs": Program("prefix", "aEILnPsd", reads=True),
    "runuser": Program("words", reads=True),
    "su": Program("words", reads=True),
    "parallel": Program("words", reads=True),
    **dict.fromkeys(("at", "batch", "crontab", "pwsh", "powershell"), Program("words", reads=True)),
    **dict.fromkeys(("watch", "make", "gmake", "tmux", "screen", "gdb"), Program("words")),
    "ssh": Program("words"),
    "git": Program("options", code="c", long=_long("--upload-pack", "--receive-pack", "--exec", "--config")),
    "script": Program("options", code="c", long=_long("--command")),
    "rsync": Program("options", code="e", long=_long("--rsh", "--rsync-path")),
    "tar": Program(
        "options", code="I", long=_long("--to-command", "--checkpoint-action", "--use-compress-program")
    ),
    "find": Program("options", long=_EXEC),
}

EVALUATES = name_set(
    "eval let alias bind complete compgen compopt fc history enable unset read mapfile readarray getopts "
    "trap source . hash jobs wait declare typeset local export readonly"
)
"""Commands of bash itself that evaluate their words, as code or as the name of a variable."""
RUNS = frozenset({"eval", "trap"})
"""Those among them whose words are a script."""
NAMES_VARIABLES = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "wait", "coproc"})
"""Commands that assign to the variables that their words name."""
PLAIN = name_set(
    "echo printf cat grep egrep fgrep rg ls cp mv rm mkdir rmdir touch cd pwd test [ true false : which type "
    "head tail sort uniq wc cut tr tee diff cmp basename dirname realpath jq yq curl wget gh ln chmod chown "
    "stat file date sleep seq pip pip3 npm yarn pnpm apt apt-get brew dnf yum apk cargo go set exit return "
    "pushd popd shift kill gzip gunzip zip unzip git rsync tar"
)
"""Programs among whose words the name of a shell is only a word."""
QUERIES = name_set("psql mysql mariadb sqlite3 duckdb mongosh jq yq")
"""Programs with a language of their own, of which a value in a word can become part."""
EVALUATED = name_set(
    "PS0 PS1 PS2 PS4 PROMPT_COMMAND BASH_ENV ENV IFS PATH SECONDS RANDOM SRANDOM LINENO OPTIND HISTCMD "
    "BASHOPTS SHELLOPTS BASH_CMDS BASH_ALIASES LD_PRELOAD LD_LIBRARY_PATH GIT_SSH_COMMAND GIT_EDITOR "
    "GIT_PAGER GIT_EXTERNAL_DIFF EDITOR VISUAL PAGER BROWSER LESSOPEN PERL5OPT PERL5LIB RUBYOPT NODE_OPTIONS "
    "PYTHONSTARTUP PYTHONPATH MAKEFLAGS SHELL"
)
"""Variables whose values bash or common programs evaluate."""
UNKNOWN = re.compile(
    r"NERVE_\w+|BASH_\w+|USER_MESSAGE|ARGUMENTS|REPLY|MAPFILE|OPTARG|PWD|OLDPWD|DIRSTACK|COPROC\w*|_"
)
"""Variables that can hold a value although the script assigns none to them."""
SPELT_OUT = name_set(
    "wc date nproc seq echo printf expr pwd mktemp basename dirname uname hostname whoami id realpath which "
    "command"
)
"""Programs that print nothing of a value when none is among their words."""


def program_named(name: str) -> Program | None:
    """Return what is known of a program, whatever version its name has."""
    return PROGRAMS.get(name) or PROGRAMS.get(name.rstrip("0123456789."))
