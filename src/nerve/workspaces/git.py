"""Run git. A command that has started ends by itself, also if this process is killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

LOCK_NAME = "nerve.lock"
LOCK_TIMEOUT_S = 600.0
LOCK_POLL_S = 0.02
PASSED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "LOGNAME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK")
SETTINGS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false", "-c", "commit.gpgSign=false", "-c", "advice.detachedHead=false"),
    *("-c", "core.quotePath=false", "-c", "merge.conflictStyle=merge"),
)
"""Hooks of the repository do not run, and git starts no work in the background."""
IDENTITY = {"NAME": "Nerve", "EMAIL": "nerve@localhost"}
"""The author of commits in a repository whose user has not set a name."""


class GitError(NerveError):
    """A git command failed; the message is what git printed."""


@dataclass(frozen=True, slots=True)
class Git:
    """Git commands in a folder, with an index of its own if `index` is set."""

    folder: Path
    index: Path | None = None
    git_dir: Path | None = None
    """The repository, if it is not that of the folder; `folder` is then its work tree."""

    def with_index(self, index: Path | None) -> Git:
        return replace(self, index=index)

    def run(self, *arguments: str, input: str = "", env: Mapping[str, str] | None = None) -> str:
        """Return the output of a command without the newline at its end; GitError if it fails."""
        code, output, problem = self.try_run(*arguments, input=input, env=env)
        if code != 0:
            last = (problem.strip() or output.strip()).splitlines()
            raise GitError(f"git {arguments[0]} failed in {self.folder}: {' '.join(last[-3:])}")
        return output

    def try_run(
        self, *arguments: str, input: str = "", env: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Return the exit code, the output and the messages of a command."""
        # Files instead of pipes, and a session of its own: the command is not interrupted in the middle of
        # a change if this process is killed.
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(input.encode("utf-8", "surrogateescape"))
            given.seek(0)
            try:
                done = subprocess.run(
                    self._argv(arguments),
                    cwd=self.folder,
                    env={**self._environment(), **(env or {})},
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    pass_fds=HELD_LOCKS.get(),
                    check=False,
                )
            except FileNotFoundError as error:
                missing = "git" if self.folder.is_dir() else str(self.folder)
                raise GitError(
                    f"Cannot run git: {missing} not found. Install git, or check the path"
                ) from error
            out.seek(0)
            err.seek(0)
            output, problem = (
                file.read().decode("utf-8", "surrogateescape").removesuffix("\n") for file in (out, err)
            )
        return done.returncode, output, problem

    def _argv(self, arguments: tuple[str, ...]) -> list[str]:
        place = [] if self.git_dir is None else [f"--git-dir={self.git_dir}", f"--work-tree={self.folder}"]
        return ["git", *SETTINGS, *place, *arguments]

    def _environment(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        index = {} if self.index is None else {"GIT_INDEX_FILE": str(self.index)}
        return {**passed, **index, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_EDITOR": "true"}

    # -- names of commits ----------------------------------------------------------------------

    def find_commit(self, name: str) -> str | None:
        """Return the commit that a name refers to, or None."""
        code, output, _ = self.try_run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        return output if code == 0 else None

    def tree_of(self, commit: str) -> str:
        return self.run("rev-parse", "--verify", f"{commit}^{{tree}}")

    def branch(self) -> str | None:
        """Return the branch that is checked out, or None."""
        code, output, _ = self.try_run("symbolic-ref", "--quiet", "--short", "HEAD")
        return output if code == 0 else None

    def is_ancestor(self, one: str, other: str) -> bool:
        return self.try_run("merge-base", "--is-ancestor", one, other)[0] == 0

    # -- commits -------------------------------------------------------------------------------

    def commit_tree(self, tree: str, parents: list[str], message: str, like: str | None = None) -> str:
        """Return a new commit; `like` is the commit whose author and date it keeps."""
        arguments = [argument for parent in parents for argument in ("-p", parent)]
        env = self._identity()
        if like is not None:
            fields = self.run("show", "-s", "--format=%an%n%ae%n%ad", "--date=raw", like).split("\n")
            env |= dict(zip(("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"), fields, strict=True))
        return self.run("commit-tree", tree, *arguments, "-F", "-", input=message, env=env)

    def _identity(self) -> dict[str, str]:
        """Return the variables for an author, if the user has not set one."""
        missing = [name for name in IDENTITY if self.try_run("config", f"user.{name.lower()}")[0] != 0]
        return {f"GIT_{role}_{name}": IDENTITY[name] for role in ("AUTHOR", "COMMITTER") for name in missing}

    def update_ref(self, ref: str, commit: str, old: str | None = None) -> None:
        """Set a reference; GitError if it is not at `old` any more."""
        self.run("update-ref", ref, commit, *([] if old is None else [old]))

    def delete_ref(self, ref: str) -> None:
        if (commit := self.find_commit(ref)) is not None:
            self.run("update-ref", "-d", ref, commit)


HELD_LOCKS: ContextVar[tuple[int, ...]] = ContextVar("nerve_held_locks", default=())
"""The locks of this thread; git inherits them, so a lock lasts as long as the commands started in it.

Those of other threads are not inherited: a thread may close its own while another one starts a command.
"""


@contextmanager
def repository_lock(common_dir: Path) -> Iterator[None]:
    """Exclude other changes of Nerve to a repository, also those of a process that was killed."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    file = os.open(common_dir / LOCK_NAME, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise GitError(
                        f"Another process has used {common_dir} for 10 minutes. Try again"
                    ) from None
                time.sleep(LOCK_POLL_S)
        token = HELD_LOCKS.set((*HELD_LOCKS.get(), file))
        try:
            yield
        finally:
            HELD_LOCKS.reset(token)
    finally:
        os.close(file)
