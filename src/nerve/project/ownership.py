"""Ownership: files signed with a secret key of the user, and directories that the user trusts.

A project directory can come from anywhere, with all its contents. The key and the list of trusted
directories are in the state directory of the user, which a project cannot write to. A file without a valid
signature therefore comes from elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from hmac import compare_digest
from pathlib import Path

from nerve.lazy_dataclass import dataclass
from nerve.project.paths import ProjectPaths, read_private_file, temporary_folder

KEY_FILE_NAME = "key"
TRUSTED_DIRECTORY_NAME = "trusted"
KEY_BYTES = 32
SIGNATURE_SUFFIX = ".signature"
FS_IOC_GETVERSION = 0x80087601
PROGRAM_SETTINGS = ("providers", "router", "agents", "mcp")
"""Settings of a configuration that can name programs to execute."""
PROGRAM_KEY_LINE = re.compile(r"""^["']?(?:env|hooks|mcp|mcpServers)["']?[ \t]*:""", re.MULTILINE)
"""A line of the front matter of an agent file that can name programs to execute."""
MAX_AGENT_FILES = 1000
MAX_CONFIG_BYTES = 1 << 20
NONCE_BYTES, CODE_BYTES = 16, 16
"""Random bytes of a token, and bytes of their signature."""


# -- the secret key ----------------------------------------------------------------------------


def state_folder() -> Path:
    """Return the directory with the secret key of the user, created if needed; OSError if that fails.

    It is `nerve` in $XDG_STATE_HOME or in ~/.local/state. If neither is writable, as in containers without a
    home directory, it is a private temporary directory; the user must trust projects again after it is
    deleted.
    """
    problem: OSError | None = None
    for folder in _state_homes():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "Other users can write to it", str(folder))
            if not (folder / KEY_FILE_NAME).exists():
                # Create the key atomically, so that two concurrent processes use the same one.
                new = folder / f"{KEY_FILE_NAME}.{os.getpid()}.{os.urandom(4).hex()}"
                with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(os.urandom(KEY_BYTES).hex())
                try:
                    # A link fails if another process was faster; a rename would replace its key.
                    with contextlib.suppress(FileExistsError):
                        os.link(new, folder / KEY_FILE_NAME)
                finally:
                    new.unlink()
        except OSError as error:
            problem = problem or error
        else:
            return folder
    assert problem is not None
    raise problem


def _state_homes() -> Iterator[Path]:
    state_home = Path(os.environ.get("XDG_STATE_HOME", ""))
    if state_home.is_absolute():
        yield state_home / "nerve"
    else:
        with contextlib.suppress(RuntimeError):  # no $HOME, and no passwd entry of the user
            yield Path.home() / ".local" / "state" / "nerve"
    yield temporary_folder() / f"nerve-{os.getuid()}-state"


def signature_of(*parts: object) -> bytes:
    """Return the signature of some values; OSError if the secret key cannot be read or created."""
    key = bytes.fromhex(read_private_file(state_folder() / KEY_FILE_NAME).strip())
    text = json.dumps([str(part) for part in parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=key, digest_size=KEY_BYTES).digest()


def is_signed(signature: str, *parts: object) -> bool:
    """Return whether a hexadecimal signature is that of some values."""
    try:
        return compare_digest(bytes.fromhex(signature), signature_of(*parts))
    except (OSError, ValueError):
        return False


# -- stores ------------------------------------------------------------------------------------


def signature_file(store: Path) -> Path:
    return store.with_name(store.name + SIGNATURE_SUFFIX)


def identity_of(path: Path) -> str:
    """Return an id that changes when a file or directory is replaced by another one.

    Do not use it for a store that is open in this process: closing the file releases the locks of SQLite.
    """
    with _open_file(path) as descriptor:
        return _descriptor_identity(descriptor)


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descriptor_identity(descriptor: int) -> str:
    """Return inode and generation. Inode numbers are reused; the generation, if supported, is not."""
    generation = 0
    with contextlib.suppress(OSError):
        generation = struct.unpack("l", fcntl.ioctl(descriptor, FS_IOC_GETVERSION, bytes(8)))[0]
    return f"{os.fstat(descriptor).st_ino}.{generation}"


def sign_store(store: Path) -> None:
    """Sign a store and its logs; OSError if the signatures cannot be written."""
    store = store.resolve()
    for file in (store, *_logs_of(store)):
        if file.exists():
            _sign_file(file)


def sign_log(store: Path) -> None:
    """Sign the write-ahead log of a store, while it is empty or after it was used."""
    _sign_file(_logs_of(store.resolve())[0])


def disown_changed(store: Path) -> None:
    """Remove the signature of a store that has a log which this user did not sign.

    SQLite merges the log into the store when any command opens it, even one that only reads.
    """
    store = store.resolve()
    if not all(_is_own_file(log) for log in _logs_of(store)):
        signature_file(store).unlink(missing_ok=True)


def forget_log(store: Path) -> None:
    """Remove the signature of a write-ahead log that no longer exists."""
    log = _logs_of(store.resolve())[0]
    if not log.exists():
        with contextlib.suppress(OSError):
            signature_file(log).unlink(missing_ok=True)


def _sign_file(file: Path) -> None:
    text = signature_of("store", file, identity_of(file)).hex()
    write_private(signature_file(file), text)


def is_own_store(store: Path) -> bool:
    """Return whether this user created or trusted the store at this path; an empty one counts, too."""
    try:
        status, store = store.stat(), store.resolve()
        if not stat.S_ISREG(status.st_mode):
            return True  # no command opens it
        return _is_own_file(store) and all(_is_own_file(log) for log in _logs_of(store))
    except OSError:
        return not store.exists()


def _logs_of(store: Path) -> list[Path]:
    """Return the log files that SQLite merges into a store."""
    return [store.with_name(store.name + end) for end in ("-wal", "-journal")]


def _is_own_file(file: Path) -> bool:
    """Return whether this user signed the file; a missing or empty file counts, too.

    The rollback journal of a store that was empty counts as an empty file.
    """
    try:
        with _open_file(file) as descriptor:
            identity, status = _descriptor_identity(descriptor), os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                is_empty = status.st_size == 0
                if file.name.endswith("-journal"):
                    is_empty = not any(os.pread(descriptor, 20, 0)[16:])  # the store had no pages
                if is_empty:
                    return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        signature = read_private_file(signature_file(file)).strip()
    except (OSError, ValueError):
        return False
    return is_signed(signature, "store", file, identity)


def write_private(path: Path, text: str) -> None:
    """Write a file atomically with mode 0600; a symbolic link at the path is replaced, not followed."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        new.replace(path)
    except OSError:  # such as on a full disk
        new.unlink()
        raise


# -- tokens and server files -------------------------------------------------------------------


def make_token(path: Path) -> str:
    """Return a token for a file: random bytes, and a signature of them and of the path."""
    import base64

    nonce = os.urandom(NONCE_BYTES)
    code = signature_of("token", path.absolute(), nonce.hex())[:CODE_BYTES]
    return base64.urlsafe_b64encode(nonce + code).rstrip(b"=").decode()


def is_own_token(path: Path, token: str) -> bool:
    """Return whether this user created the token for this file."""
    import base64

    try:
        data = base64.urlsafe_b64decode(f"{token}=")
        expected = signature_of("token", path.absolute(), data[:NONCE_BYTES].hex())[:CODE_BYTES]
    except (OSError, ValueError):
        return False
    return compare_digest(data[NONCE_BYTES:], expected)


def sign_server(path: Path, about: dict[str, object]) -> dict[str, object]:
    """Return the content of a server file with a signature."""
    return {**about, "signature": signature_of("server", path.absolute(), json.dumps(about)).hex()}


def is_own_server(path: Path, about: dict[str, object]) -> bool:
    """Return whether a server of this user wrote the content of a server file."""
    unsigned = {name: value for name, value in about.items() if name != "signature"}
    return is_signed(str(about.get("signature", "")), "server", path.absolute(), json.dumps(unsigned))


# -- directories -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrustedFolder:
    """A directory in which the user created a project, or that the user trusts."""

    path: Path
    at: float
    identity: str

    @property
    def is_unchanged(self) -> bool:
        try:
            return identity_of(self.path) == self.identity
        except OSError:
            return False


def _entry_of(folder: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=16).hexdigest()
    return state_folder() / TRUSTED_DIRECTORY_NAME / f"{name}.json"


def add_trusted(folder: Path) -> None:
    """Record a directory as trusted; OSError if the record cannot be written."""
    folder = folder.resolve()
    entry = _entry_of(folder)
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    about = {"path": str(folder), "at": time.time(), "identity": identity_of(folder)}
    write_private(entry, json.dumps(about))


def is_trusted(folder: Path) -> bool:
    """Return whether the user trusts this directory, and not one that it has replaced."""
    try:
        entry = _read_entry(_entry_of(folder))
    except OSError:
        return False
    return entry is not None and entry.path == folder.resolve() and entry.is_unchanged


def list_trusted() -> list[TrustedFolder]:
    """Return the trusted directories, including deleted ones."""
    entries = [_read_entry(file) for file in (state_folder() / TRUSTED_DIRECTORY_NAME).glob("*.json")]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.path)


def _read_entry(file: Path) -> TrustedFolder | None:
    try:
        about = json.loads(read_private_file(file))
        return TrustedFolder(Path(about["path"]), float(about["at"]), str(about["identity"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def foreign_state(folder: Path) -> dict[str, Path]:
    """Return the state of a project that this user did not create, by description, with its paths."""
    paths = ProjectPaths.of(folder)
    foreign: dict[str, Path] = {}
    if not is_own_store(paths.store):
        foreign["runs"] = paths.store
    if foreign_tokens(paths):
        foreign["tokens"] = paths.private
    if _is_foreign_server(paths.server):
        foreign["a server"] = paths.server
    return foreign


def foreign_tokens(paths: ProjectPaths) -> list[Path]:
    """Return the token files that this user did not create."""
    try:
        token_files = [file for file in paths.private.iterdir() if file.suffix == ".token"]
    except OSError:
        return []
    return [file for file in token_files if not _holds_own_token(file)]


def _holds_own_token(file: Path) -> bool:
    try:
        return is_own_token(file, read_private_file(file).strip())
    except (OSError, ValueError):
        return False


def _is_foreign_server(file: Path) -> bool:
    try:
        about = json.loads(read_private_file(file))
        return not (isinstance(about, dict) and is_own_server(file, about))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):
        return True


def config_names_programs(folder: Path) -> bool:
    """Return whether the configuration of a project can name programs; an unreadable one counts, too."""
    file = ProjectPaths.of(folder).folder / "config.json"
    try:
        text = file.read_text(encoding="utf-8")[:MAX_CONFIG_BYTES]
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError):
        return True
    return isinstance(pairs, list) and any(
        isinstance(pair, tuple) and pair[0] in PROGRAM_SETTINGS and pair[1] for pair in pairs
    )


def agent_file_with_programs(folder: Path) -> Path | None:
    """Return an agent file of a project whose front matter can name programs, or None."""
    from nerve.project.paths import PROJECT_FOLDER_NAMES

    for name in PROJECT_FOLDER_NAMES:
        for file in sorted((folder / name / "agents").glob("**/*.md"))[:MAX_AGENT_FILES]:
            try:
                text = file.read_text(encoding="utf-8", errors="replace")[:MAX_CONFIG_BYTES]
            except OSError:
                continue
            front = text.split("\n---", 1)[0] if text.startswith("---") else ""
            if PROGRAM_KEY_LINE.search(front) or _names_programs(front, file):
                return file
    return None


def _names_programs(front: str, file: Path) -> bool:
    """Return whether front matter has a key that names programs, however YAML writes it."""
    from nerve.project.front_matter import read_fields
    from nerve.text.source import InvalidDefinition

    try:
        fields = read_fields(front.removeprefix("---"), str(file))
    except InvalidDefinition:
        return False  # such an agent cannot be used
    return isinstance(fields, dict) and any(fields.get(key) for key in ("env", "hooks", "mcp", "mcpServers"))


def refusal_of(foreign: list[str], store: Path | None = None) -> tuple[str, str]:
    """Return why foreign state is not used, and how to trust it."""
    from shlex import quote

    subject = f"This directory contains {join_words(foreign)}" if store is None else f"{store} contains runs"
    target = "" if store is None else f" {quote(str(store))}"
    return (
        f"{subject} that this user did not create on this machine",
        f"If you trust it, run: nerve trust{target}",
    )


def join_words(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def trust_folder(folder: Path) -> list[str]:
    """Trust a directory and return what was foreign in it; OSError if that fails.

    Its runs are signed by this user. Its tokens, which others may know, are deleted; a server creates new
    ones.
    """
    paths = ProjectPaths.of(folder)
    foreign = foreign_state(folder)
    if "runs" in foreign:
        sign_store(paths.store)
    for file in foreign_tokens(paths):
        file.unlink()
    if "a server" in foreign:
        paths.server.unlink()
    add_trusted(folder)
    return list(foreign)


def revoke_folder_trust(folder: Path) -> bool:
    """Revoke the trust in a directory and its runs, and return whether it was trusted."""
    paths = ProjectPaths.of(folder)
    entry, signature = _entry_of(folder), signature_file(paths.store)
    was_trusted = entry.exists() or signature.exists()
    entry.unlink(missing_ok=True)
    signature.unlink(missing_ok=True)
    return was_trusted
