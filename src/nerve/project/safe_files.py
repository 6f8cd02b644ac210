"""Files by names: the one way to open a file whose name came from a definition, and texts out of bytes."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from nerve.errors import NerveError
from nerve.text.source import InvalidDefinition, Position, Problem

MAX_TEXT_BYTES = 256 * 1024
FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
DEVICE_NAME_PATTERN = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class FileRefused(NerveError, ValueError):
    """A name or a file that may not be opened; the message says why."""


def check_file_name(name: object) -> str:
    """The name, if it can only ever be a file directly inside a folder; `Refused` otherwise."""
    if not isinstance(name, str) or not name:
        raise FileRefused("a name must be a text of at least one character")
    excerpt = name if len(name) <= 40 else name[:37] + "..."
    if not FILE_NAME_PATTERN.fullmatch(name) or DEVICE_NAME_PATTERN.fullmatch(name) or name.endswith("."):
        rule = "up to 128 letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise FileRefused(f"{excerpt!r} is no name: {rule}")
    return name


def read_named_file(
    root: Path, folder: Path, name: str, suffix: str = "", limit: int = MAX_TEXT_BYTES
) -> str:
    """The text of the file `name + suffix` in a folder that must be inside `root`."""
    return read_file_inside(root, folder / (check_file_name(name) + suffix), limit)


def read_file_inside(root: Path, path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a file that is inside `root`, also when symbolic links on the way are followed."""
    with os.fdopen(open_file_inside(root, path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise file_too_large_error(path, limit)
    return decode_utf8(data, str(path))


def read_user_file(path: Path, limit: int = MAX_TEXT_BYTES) -> str:
    """The text of a file that the user named."""
    with os.fdopen(
        _require_regular_file(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), path), "rb"
    ) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise file_too_large_error(path, limit)
    return decode_utf8(data, str(path))


def open_file_inside(root: Path, path: Path) -> int:
    """A descriptor of a regular file inside `root`.

    Links are resolved first; then the way is walked from `root` without following any, so that a link put
    there in between is refused and not followed.
    """
    base = Path(os.path.realpath(root))
    try:
        parts = Path(os.path.realpath(path)).relative_to(base).parts
    except ValueError as error:
        reason = "a null character" if "\0" in str(path) else "it leads out of its folder"
        raise FileRefused(f"{str(path)!r} may not be opened: {reason}") from error
    if not parts:
        raise IsADirectoryError(f"{path} is a folder")
    here = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(part, flags, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return _require_regular_file(os.open(parts[-1], flags, dir_fd=here), path)
    finally:
        os.close(here)


def _require_regular_file(descriptor: int, path: Path) -> int:
    """The descriptor, if it is a regular file's: a pipe would keep its reader waiting."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileRefused(f"{str(path)!r} may not be opened: it is no regular file")


def file_too_large_error(path: Path, limit: int) -> InvalidDefinition:
    fix = "Split it, or move long texts to files of their own."
    return InvalidDefinition(
        [Problem(str(path), Position(), f"the file has more than {limit // 1024} KiB", fix)]
    )


def decode_utf8(data: bytes, file: str) -> str:
    """The text of UTF-8 bytes; `Unreadable` with the place of what is not."""
    fix = "Save the file as UTF-8, without a byte order mark."
    if data.startswith(BYTE_ORDER_MARKS):
        raise InvalidDefinition(
            [Problem(file, Position(), "this is not UTF-8 text (it looks like UTF-16)", fix)]
        )
    if data.startswith(b"\xef\xbb\xbf"):
        raise InvalidDefinition([Problem(file, Position(), "the file starts with a byte order mark", fix)])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(errors="replace")
        position = Position().at_offset(before, len(before))
        message = f"this is not UTF-8 text: the byte 0x{data[error.start]:02x}"
        raise InvalidDefinition([Problem(file, position, message, fix)]) from None
    if (at := text.find("\0")) >= 0:
        guess = " (it looks like UTF-16)" if at < 4 else ""
        position = Position().at_offset(text, at)
        raise InvalidDefinition([Problem(file, position, f"the text has a null character{guess}", fix)])
    return text
