"""Repositories for the tests of workspaces."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}
AUTHOR = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user would, and return its output."""
    done = subprocess.run(
        ["git", *AUTHOR, *arguments],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit(folder: Path, message: str = "Change", **files: str) -> str:
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def make_repository(folder: Path, **files: str) -> Path:
    """Return a repository with one commit, on the branch `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet")
    commit(folder, "First", **(files or {"slug.py": "one\ntwo\nthree\nfour\nfive\n"}))
    return folder


def read_files(folder: Path) -> dict[str, str]:
    """Return the text of every file outside of `.git` and `.nerve`."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {".git", ".nerve"} & set(path.relative_to(folder).parts)
    }


def user_state(folder: Path) -> tuple[str, ...]:
    """Return what Nerve must not touch: the index, HEAD, the stash and the state of the files."""
    index = folder / ".git" / "index"
    return (
        index.read_bytes().hex() if index.exists() else "",
        (folder / ".git" / "HEAD").read_text(),
        git(folder, "stash", "list"),
        git(folder, "--no-optional-locks", "status", "--porcelain", "--untracked-files=all"),
    )
