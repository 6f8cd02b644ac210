"""Commands of git, and the lock of a repository that they inherit."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nerve.workspaces.git import LOCK_NAME, Git, repository_lock
from workspaces.repositories import make_repository

FILES = ("-c", "alias.files=!ls -l /proc/self/fd", "files")
"""A command that prints the files that it has open."""


def test_a_lock_is_inherited_by_the_commands_of_its_thread_alone(tmp_path: Path) -> None:
    # Another thread may close its lock at any moment, and a command with a closed file cannot start.
    git = Git(make_repository(tmp_path / "project"))
    with ThreadPoolExecutor(1) as other, repository_lock(git.folder / ".git"):
        assert LOCK_NAME in git.run(*FILES)
        assert LOCK_NAME not in other.submit(git.run, *FILES).result()
    assert LOCK_NAME not in git.run(*FILES)
