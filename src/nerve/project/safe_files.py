"""Open files whose names come from a definition, and decode their text."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from nerve.errors import NerveError
from nerve.text.source import InvalidDefinition, Position, Problem

MAX_TEXT_BYTES = 256 * 1024
FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
DEVICE_NAME_PATTERN = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class FileRefused(NerveError, ValueError):
    """A file name is invalid, or a file must not be opened; the message says why."""


def check_file_name(name: object) -> str:
    """Return a name that can only mean a file directly inside a folder; raises `FileRefused` otherwise."""
    if not isinstance(name, str) or not name:
        raise FileRefused("a file name must be a non-empty string")
    excerpt = name if len(name) <= 40 else name[:37] + "..."
    if not FILE_NAME_PATTERN.fullmatch(name) or DEVICE_NAME_PATTERN.fullmatch(name) or name.endswith("."):
        rule = "up to 128 letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise FileRefused(f"{excerpt!r} is not a valid file name: {rule}")
    return name


def read_named_file(root: Path, folder: Path, name: str, suffix: str) -> str:
    """Return the text of the file `name + suffix` in a folder that must be inside `root`."""
    return read_file_inside(root, folder / (check_file_name(name) + suffix))


def read_file_inside(root: Path, path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file that is inside `root` after resolving symbolic links."""
    return _read_text(open_file_inside(root, path), path, limit)


def read_user_file(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file that the user named."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return _read_text(_require_regular_file(descriptor, path), path, limit)


def _read_text(descriptor: int, path: Path, limit: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        fix = "Split it, or move long texts to separate files."
        message = f"The file has more than {limit // 1024} KiB"
        raise InvalidDefinition([Problem(str(path), Position(), message, fix)])
    return decode_utf8(data, str(path))


def open_file_inside(root: Path, path: Path) -> int:
    """Return a descriptor of a regular file inside `root`.

    Symbolic links are resolved first. The resolved path is then opened part by part from `root` without
    following links, so that a link created in the meantime is rejected.
    """
    base, parts = resolve_parts(root, path)
    return open_file_without_links(base, parts)


def open_folder_inside(root: Path, path: Path) -> int:
    """Return a descriptor of a folder inside `root`, opened like a file."""
    return open_folder_without_links(*resolve_parts(root, path))


def resolve_parts(root: Path, path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return `root` without symbolic links, and the names that lead from it to a path inside of it."""
    base = Path(os.path.realpath(root))
    try:
        return base, Path(os.path.realpath(path)).relative_to(base).parts
    except ValueError as error:
        reason = "it contains a null character" if "\0" in str(path) else "it leads out of its folder"
        raise FileRefused(f"{str(path)!r} may not be opened: {reason}") from error


def open_file_without_links(root: Path, parts: Sequence[str]) -> int:
    """Return a descriptor of a regular file below `root`; OSError if its path has a symbolic link."""
    path = root.joinpath(*parts)
    if not parts:
        raise IsADirectoryError(f"{path} is a folder")
    folder = open_folder_without_links(root, parts[:-1])
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return _require_regular_file(os.open(parts[-1], flags, dir_fd=folder), path)
    finally:
        os.close(folder)


def open_folder_without_links(root: Path, parts: Sequence[str]) -> int:
    """Return a descriptor of a folder below `root`; OSError if its path has a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    here = os.open(root, flags)
    for part in parts:
        try:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _require_regular_file(descriptor: int, path: Path) -> int:
    """Return the descriptor of a regular file; others are closed, because reading a pipe could block."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileRefused(f"{str(path)!r} may not be opened: it is not a regular file")


def decode_utf8(data: bytes, file: str) -> str:
    """Decode UTF-8; raises `InvalidDefinition` with the position of an invalid byte."""
    position = Position()
    if data.startswith(BYTE_ORDER_MARKS):
        message = "This is not UTF-8 text (it looks like UTF-16)"
    elif data.startswith(b"\xef\xbb\xbf"):
        message = "The file starts with a byte order mark"
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            before = data[: error.start].decode(errors="replace")
            position = position.at_offset(before, len(before))
            message = f"This is not UTF-8 text: the byte 0x{data[error.start]:02x}"
        else:
            if (at := text.find("\0")) < 0:
                return text
            position = position.at_offset(text, at)
            guess = " (it looks like UTF-16)" if at < 4 else ""
            message = f"The text contains a null character{guess}"
    fix = "Save the file as UTF-8, without a byte order mark."
    raise InvalidDefinition([Problem(file, position, message, fix)])
