"""Names that become paths stay inside their folder; bytes become text or a problem with a place."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.notations import read_notation_file
from nerve.project.safe_files import (
    FileRefused,
    check_file_name,
    decode_utf8,
    open_file_inside,
    read_file_inside,
    read_named_file,
    read_user_file,
)
from nerve.text.source import InvalidDefinition

BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "/etc/passwd",
    "%2e%2e",
    "..%2f",
    "x/../../y",
    "CON",
    "con",
    "nul.txt",
    "COM1",
    "x\0y",
    "\0",
    "x" * 129,
    "x" * 300,
    "-rf",
    "--help",
    ".hidden",
    "~",
    "~root",
    "a b",
    "a\nb",
    "a;b",
    "$HOME",
    "plan.",
    "рlan",
    "plаn",
    "ⅰ",
    "．．",
    "C:",
    "C:\\x",
    "file://x",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project, and beside it what nobody inside may reach."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.md").write_text("secret")
    steps = tmp_path / "project/.archon/steps"
    steps.mkdir(parents=True)
    (steps / "plan.md").write_text("plan")
    return tmp_path / "project"


def tree(folder: Path) -> str:
    told = [f"{path.relative_to(folder)} {path.stat().st_mtime_ns}" for path in sorted(folder.rglob("*"))]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


@pytest.mark.requirement("D3-1")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_could_leave_its_folder_is_refused(name: str, project: Path) -> None:
    before = tree(project.parent)
    with pytest.raises(FileRefused, match="name"):
        read_named_file(project, project / ".archon/steps", name, ".md")
    assert tree(project.parent) == before


@pytest.mark.parametrize("name", [None, 3, ["plan"], {"a": 1}, True])
def test_a_name_that_is_not_a_string_is_rejected(name: object) -> None:
    with pytest.raises(FileRefused):
        check_file_name(name)


@pytest.mark.parametrize("name", ["plan", "create-pr", "01_plan", "plan.v2", "A", "x" * 128, "console"])
def test_a_plain_name_is_a_name(name: str) -> None:
    assert check_file_name(name) == name


@given(st.text(max_size=20))
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    try:
        check_file_name(name)
    except FileRefused:
        return
    assert Path("/folder", name).parent == Path("/folder")
    assert Path("/folder", name).name == name


def test_a_file_inside_is_read(project: Path) -> None:
    assert read_named_file(project, project / ".archon/steps", "plan", ".md") == "plan"


def test_a_link_that_stays_inside_is_followed(project: Path) -> None:
    (project / ".claude").symlink_to(project / ".archon")
    (project / ".archon/steps/same.md").symlink_to("plan.md")
    assert read_named_file(project, project / ".claude/steps", "plan", ".md") == "plan"
    assert read_named_file(project, project / ".archon/steps", "same", ".md") == "plan"


@pytest.mark.parametrize("target", ["../../../outside/secret.md", "{outside}/secret.md", "/etc/passwd"])
def test_a_link_that_leads_out_is_refused(target: str, project: Path) -> None:
    link = project / ".archon/steps/link.md"
    link.symlink_to(target.format(outside=project.parent / "outside"))
    with pytest.raises(FileRefused, match="leads out"):
        read_named_file(project, link.parent, "link", ".md")


def test_a_folder_that_is_a_link_out_is_refused(project: Path) -> None:
    (project / ".archon/commands").symlink_to(project.parent / "outside")
    with pytest.raises(FileRefused, match="leads out"):
        read_named_file(project, project / ".archon/commands", "secret", ".md")


def test_a_link_put_there_after_the_look_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = project / ".archon/steps/plan.md"
    real = str(plan.resolve())
    plan.unlink()
    plan.symlink_to(project.parent / "outside/secret.md")
    resolve = os.path.realpath
    monkeypatch.setattr(os.path, "realpath", lambda path: real if Path(path) == plan else resolve(path))
    with pytest.raises(OSError, match="symbolic"):
        open_file_inside(project, plan)


def test_a_loop_of_links_is_an_error_and_no_hang(project: Path) -> None:
    steps = project / ".archon/steps"
    (steps / "a.md").symlink_to("b.md")
    (steps / "b.md").symlink_to("a.md")
    with pytest.raises(OSError):
        read_named_file(project, steps, "a", ".md")


def test_a_pipe_is_refused_and_not_waited_for(project: Path) -> None:
    os.mkfifo(project / ".archon/steps/pipe.md")
    with pytest.raises(FileRefused, match="not a regular file"):
        read_named_file(project, project / ".archon/steps", "pipe", ".md")
    with pytest.raises(FileRefused, match="not a regular file"):
        read_user_file(project / ".archon/steps/pipe.md")


def test_a_missing_file_and_a_folder_are_distinguished(project: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_named_file(project, project / ".archon/steps", "none", ".md")
    (project / ".archon/steps/folder.md").mkdir()
    with pytest.raises(FileRefused, match="not a regular file"):
        read_named_file(project, project / ".archon/steps", "folder", ".md")
    with pytest.raises(IsADirectoryError):
        read_file_inside(project, project)


def test_no_descriptor_stays_open(project: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (project / ".archon/steps/out.md").symlink_to("/etc/passwd")
    for name in ("plan", "none", "out"):
        for _ in range(20):
            try:
                read_named_file(project, project / ".archon/steps", name, ".md")
            except (OSError, FileRefused):
                pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_too_large_is_refused(project: Path) -> None:
    path = project / ".archon/steps/plan.md"
    path.write_text("x" * 1025)
    with pytest.raises(InvalidDefinition, match="more than 1 KiB"):
        read_file_inside(project, path, 1024)
    assert len(read_file_inside(project, path, 1025)) == 1025


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        ("name: x".encode("utf-16"), "1:1", "UTF-16"),
        ("name: x".encode("utf-16-le"), "1:2", "UTF-16"),
        ("name: x".encode("utf-32"), "1:1", "UTF-16"),
        (b"\xef\xbb\xbfname", "1:1", "byte order mark"),
        (b"a\nb\xffc", "2:2", "0xff"),
        ("ä\nö".encode("latin-1"), "1:1", "0xe4"),
        (b"abc\ndefg\0", "2:5", "null"),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_their_place(data: bytes, place: str, words: str) -> None:
    with pytest.raises(InvalidDefinition) as raised:
        decode_utf8(data, "x.md")
    assert str(raised.value).startswith(f"x.md:{place}:")
    assert words in str(raised.value)


@given(st.text().filter(lambda text: "\0" not in text and not text.startswith("\ufeff")))
def test_what_is_text_is_read_as_it_is(text: str) -> None:
    assert decode_utf8(text.encode(), "x.md") == text


def test_a_file_that_is_not_there_is_a_problem_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(InvalidDefinition, match=r"File not found\. Check the path\."):
        read_notation_file(tmp_path / "gone.json")
