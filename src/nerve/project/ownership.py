"""What this user made on this machine: files signed with a secret of the user, and folders that are trusted.

A project may come from anywhere, with everything that is in its folder. The secret and the list of trusted
folders are in the user's own state folder, which no project can write to: what carries no signature came from
elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path

from nerve.project.paths import ProjectPaths, read_private_file, temporary_folder

KEY_FILE_NAME = "key"
TRUSTED_DIRECTORY_NAME = "trusted"
KEY_BYTES = 32
SIGNATURE_SUFFIX = ".signature"
FS_IOC_GETVERSION = 0x80087601
PROGRAM_SETTINGS = ("providers", "router")
"""What in a configuration can name a program to execute."""
MAX_CONFIG_BYTES = 1 << 20
NONCE_BYTES, CODE_BYTES = 16, 16
"""Bytes of a token that are random, and that are the signature of these."""


# -- the secret --------------------------------------------------------------------------------


def state_folder() -> Path:
    """The folder with the secret of this user, which is made if need be; OSError if there can be none.

    It is `nerve` in $XDG_STATE_HOME or in ~/.local/state. Where neither can be written, as in containers
    without a home, it is a private folder for temporary files: projects are asked about again when that is
    emptied.
    """
    problem: OSError | None = None
    for folder in _state_homes():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_folder(folder)
            if not (folder / KEY_FILE_NAME).exists():
                _make_key(folder)
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
        with contextlib.suppress(RuntimeError):  # there is no home, and no entry of the user either
            yield Path.home() / ".local" / "state" / "nerve"
    yield temporary_folder() / f"nerve-{os.getuid()}-state"


def _check_folder(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others can change it", str(folder))


def _make_key(folder: Path) -> None:
    """Make the secret in one step: of two processes that do so at once, both use the same."""
    new = folder / f"{KEY_FILE_NAME}.{os.getpid()}.{os.urandom(4).hex()}"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(os.urandom(KEY_BYTES).hex())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(new, folder / KEY_FILE_NAME)
    finally:
        new.unlink()


def signature_of(*parts: object) -> bytes:
    """The signature of this user under some values; OSError if the user can have no secret."""
    key = bytes.fromhex(read_private_file(state_folder() / KEY_FILE_NAME).strip())
    text = json.dumps([str(part) for part in parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=key, digest_size=KEY_BYTES).digest()


def is_signed(signature: bytes, *parts: object) -> bool:
    try:
        return compare_digest(signature, signature_of(*parts))
    except (OSError, ValueError):
        return False


# -- stores ------------------------------------------------------------------------------------


def signature_file(store: Path) -> Path:
    return store.with_name(store.name + SIGNATURE_SUFFIX)


def identity_of(path: Path) -> str:
    """What tells a file or folder from another that is put in its place later.

    Closing a file gives up the locks of SQLite on it in this process: not for a store that is open here.
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
    """The number of an inode is used again; its generation says that it was. Some file systems have none."""
    generation = 0
    with contextlib.suppress(OSError):
        generation = struct.unpack("l", fcntl.ioctl(descriptor, FS_IOC_GETVERSION, bytes(8)))[0]
    return f"{os.fstat(descriptor).st_ino}.{generation}"


def sign_store(store: Path) -> None:
    """Say that a store is this user's, with what is in its logs; OSError if that cannot be written."""
    store = store.resolve()
    for file in (store, *_logs_of(store)):
        if file.exists():
            _sign_file(file)


def sign_log(store: Path) -> None:
    """Say that the write-ahead log of a store is this user's, while it is empty or after it was used."""
    _sign_file(_logs_of(store.resolve())[0])


def disown_changed(store: Path) -> None:
    """Withdraw the signature of a store beside which there is a log that this user did not sign.

    SQLite takes the log into the store when it is opened, also by a command that only looks at it.
    """
    store = store.resolve()
    if not all(_is_own_file(log) for log in _logs_of(store)):
        signature_file(store).unlink(missing_ok=True)


def forget_log(store: Path) -> None:
    """Remove the signature of a write-ahead log that is gone."""
    log = _logs_of(store.resolve())[0]
    if not log.exists():
        with contextlib.suppress(OSError):
            signature_file(log).unlink(missing_ok=True)


def _sign_file(file: Path) -> None:
    text = signature_of("store", file, identity_of(file)).hex()
    write_private(signature_file(file), text)


def is_own_store(store: Path) -> bool:
    """Whether a store was made, or trusted, by this user at this place; an empty one counts as such."""
    try:
        status, store = store.stat(), store.resolve()
        if not stat.S_ISREG(status.st_mode):
            return True  # and is opened by no command
        return _is_own_file(store) and all(_is_own_file(log) for log in _logs_of(store))
    except OSError:
        return not store.exists()


def _logs_of(store: Path) -> list[Path]:
    """The files beside a store whose content SQLite takes into it."""
    return [store.with_name(store.name + end) for end in ("-wal", "-journal")]


def _is_own_file(file: Path) -> bool:
    """Whether this user signed the file that is there; one that says nothing counts as such."""
    try:
        with _open_file(file) as descriptor:
            identity = _descriptor_identity(descriptor)
            if _is_empty_file(file, descriptor):
                return True
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        signature = bytes.fromhex(read_private_file(signature_file(file)).strip())
    except (OSError, ValueError):
        return False
    return is_signed(signature, "store", file, identity)


def _is_empty_file(file: Path, descriptor: int) -> bool:
    """Whether a file is empty, or is the journal of a store that was empty: it is emptied with that."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return False
    if not file.name.endswith("-journal"):
        return status.st_size == 0
    pages_before = os.pread(descriptor, 20, 0)[16:]
    return not any(pages_before)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, in one step, and in place of a link that is there."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


# -- tokens, and what a server says of itself --------------------------------------------------


def make_token(path: Path) -> str:
    """A token for a file: half of it is random, half is the signature of that and of the file's path."""
    import base64

    nonce = os.urandom(NONCE_BYTES)
    code = signature_of("token", path.absolute(), nonce.hex())[:CODE_BYTES]
    return base64.urlsafe_b64encode(nonce + code).rstrip(b"=").decode()


def is_own_token(path: Path, token: str) -> bool:
    """Whether a token was made by this user for this file."""
    import base64

    try:
        data = base64.urlsafe_b64decode(f"{token}=")
        expected = signature_of("token", path.absolute(), data[:NONCE_BYTES].hex())[:CODE_BYTES]
    except (OSError, ValueError):
        return False
    return compare_digest(data[NONCE_BYTES:], expected)


def sign_server(path: Path, about: dict[str, object]) -> dict[str, object]:
    """What a server says of itself in a file, with a signature."""
    return {**about, "signature": signature_of("server", path.absolute(), json.dumps(about)).hex()}


def is_own_server(path: Path, about: dict[str, object]) -> bool:
    """Whether what a file says of a server was written by this user's."""
    try:
        signature = bytes.fromhex(str(about.get("signature", "")))
    except ValueError:
        return False
    unsigned = {name: value for name, value in about.items() if name != "signature"}
    return is_signed(signature, "server", path.absolute(), json.dumps(unsigned))


# -- folders -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrustedFolder:
    """A folder that the user made a project of, or trusted."""

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
    """Remember a folder as trusted; OSError if that cannot be written."""
    folder = folder.resolve()
    entry = _entry_of(folder)
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    about = {"path": str(folder), "at": time.time(), "identity": identity_of(folder)}
    write_private(entry, json.dumps(about))


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts a folder: this one, not another that was put in its place."""
    try:
        entry = _read_entry(_entry_of(folder))
    except OSError:
        return False
    return entry is not None and entry.path == folder.resolve() and entry.is_unchanged


def list_trusted() -> list[TrustedFolder]:
    """The folders that were trusted, also those that are gone."""
    entries = [_read_entry(file) for file in (state_folder() / TRUSTED_DIRECTORY_NAME).glob("*.json")]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.path)


def _read_entry(file: Path) -> TrustedFolder | None:
    try:
        about = json.loads(read_private_file(file))
        return TrustedFolder(Path(about["path"]), float(about["at"]), str(about["identity"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def foreign_state(folder: Path) -> dict[str, Path]:
    """What a project brings that this user did not make: what it is called, and where it is."""
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
    """The files of tokens that were not made here."""
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
    """Whether the configuration of a project can name programs to execute; an unclear one counts as such."""
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


def refusal_of(brought: list[str], store: Path | None = None) -> tuple[str, str]:
    """Why something is not used that is not this user's, and what to do about it."""
    from shlex import quote

    subject = f"this folder brings its own {join_words(brought)}" if store is None else f"{store} has runs"
    target = "" if store is None else f" {quote(str(store))}"
    return (
        f"{subject}, which this user did not make on this machine",
        f"If you trust it: nerve trust{target}",
    )


def join_words(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def trust_folder(folder: Path) -> list[str]:
    """Take over what a project brings, and remember the folder; what was done. OSError if it cannot be.

    Its runs become this user's. Its tokens, which others may know, are removed: a server makes new ones.
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
    """Forget a folder, and that its runs are this user's; whether it was trusted."""
    paths = ProjectPaths.of(folder)
    entry, signature = _entry_of(folder), signature_file(paths.store)
    was_trusted = entry.exists() or signature.exists()
    entry.unlink(missing_ok=True)
    signature.unlink(missing_ok=True)
    return was_trusted
