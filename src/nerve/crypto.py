"""Encryption of stored payloads with AES-256-GCM, with keys by id and rotation. Needs `nerve[crypto]`."""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.errors import KeyMissing, PayloadUnreadable, StoreError
from nerve.project.paths import open_private_file, read_private_file

if TYPE_CHECKING:
    from nerve.project.config import Encryption

NAME_PREFIX = "aes-gcm:"
KEY_BYTES, NONCE_BYTES = 32, 12
KEY_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEY_FORM = "an id and 32 bytes in Base64, separated by a space"
INSTALL_FIX = "Install it: pip install '.[crypto]' in the clone of Nerve."


class InvalidKeys(StoreError):
    """The keys cannot be used; the message says why, and contains no key."""


class AesGcmCodec:
    """Encrypts with the last of the given keys; decrypts what was encrypted with any of them.

    `keys` are 32 random bytes each, by a readable id that is stored with the data. `source` is where to add
    a missing key, for messages.
    """

    def __init__(self, keys: Mapping[str, bytes], source: str = "the keys of the codec") -> None:
        if not keys:
            raise InvalidKeys(f"No key found in {source}. Add a line with {KEY_FORM}.")
        for id, key in keys.items():
            if not isinstance(id, str) or not KEY_ID_PATTERN.fullmatch(id):
                raise InvalidKeys(
                    f"The id of a key must be up to 64 letters, digits and '._-', got {id!r:.80}"
                )
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise InvalidKeys(f"Key '{id}' must have {KEY_BYTES} bytes. Use os.urandom({KEY_BYTES}).")
        self.key_ids = list(keys)
        """The ids of the keys, the newest last."""
        self.source = source
        self.name = f"{NAME_PREFIX}{self.key_ids[-1]}"
        self._ciphers = {id: create_cipher(key) for id, key in keys.items()}
        self._newest = self._ciphers[self.key_ids[-1]]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AesGcmCodec:
        """Return a codec with the keys of a file, one per line, the newest last."""
        return cls(parse_keys(read_key_file(Path(path)), str(path)), str(path))

    @classmethod
    def from_env(cls, variable: str) -> AesGcmCodec:
        """Return a codec with the keys of an environment variable; commas may separate them too."""
        source = f"the environment variable {variable}"
        text = os.environ.get(variable)
        if text is None:
            raise InvalidKeys(f"The store is encrypted, but {source} is not set. Set it to the keys.")
        return cls(parse_keys(text.replace(",", "\n"), source), source)

    def encode(self, data: bytes, place: bytes) -> bytes:
        # Random nonces of 96 bits are safe for 2^32 payloads per key.
        nonce = os.urandom(NONCE_BYTES)
        encrypted: bytes = nonce + self._newest.encrypt(nonce, data, place)
        return encrypted

    def decode(self, data: bytes, name: str, place: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        if not name.startswith(NAME_PREFIX):
            raise PayloadUnreadable(f"It was stored with the codec '{name}'. Use that codec.")
        id = name.removeprefix(NAME_PREFIX)
        cipher = self._ciphers.get(id)
        if cipher is None:
            raise KeyMissing(
                f"Key '{id}' is not among the keys ({', '.join(self.key_ids)}). Add it to {self.source}."
            )
        try:
            decrypted: bytes = cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise PayloadUnreadable(
                f"Key '{id}' does not fit: it is another key than the one it was encrypted with, or the data"
                f" was changed or moved. Restore key '{id}' in {self.source}, or the store from a backup."
            ) from None
        return decrypted


def create_cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InvalidKeys(f"Encryption needs the package cryptography. {INSTALL_FIX}") from None
    return AESGCM(key)


def open_project_codec(project: Path, encryption: Encryption) -> AesGcmCodec:
    """Return the codec that the configuration of a project describes; InvalidKeys if it has no valid keys."""
    if encryption.key_env is not None:
        return AesGcmCodec.from_env(encryption.key_env)
    return AesGcmCodec.from_file(project_key_file(project, encryption))


def project_key_file(project: Path, encryption: Encryption) -> Path:
    """Return the path of the key file; a relative one belongs to the project folder."""
    return Path(os.path.normpath(project / Path(encryption.key_file or "").expanduser()))


def read_key_file(path: Path) -> str:
    try:
        # A mounted secret is often a link; what counts is who can read the file.
        return read_private_file(path.resolve())
    except FileNotFoundError:
        raise InvalidKeys(
            f"The store is encrypted, but its key file {path} does not exist. Restore it; for a new store,"
            " create it: nerve keygen"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else "it is not text"
        raise InvalidKeys(f"Cannot read the key file {path}: {reason}. Use chmod 600 {path}.") from None


def parse_keys(text: str, source: str) -> dict[str, bytes]:
    """Return the keys of a text by their ids; InvalidKeys names the line that is not a key."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        id, *rest = line.split()
        try:
            key = b64decode(rest[0], validate=True) if len(rest) == 1 else b""
        except ValueError:
            key = b""
        # The line itself is not shown: it may be a key without an id.
        if len(key) != KEY_BYTES or not KEY_ID_PATTERN.fullmatch(id):
            raise InvalidKeys(f"Line {number} of {source} is not a key. It must have {KEY_FORM}.")
        if id in keys:
            raise InvalidKeys(f"Line {number} of {source} repeats the key id '{id}'. Use another id.")
        keys[id] = key
    return keys


def add_key(path: Path, id: str) -> list[str]:
    """Add a new random key to the end of a key file, which is created if needed; return all ids."""
    if not KEY_ID_PATTERN.fullmatch(id):
        raise InvalidKeys(f"The id of a key must be up to 64 letters, digits and '._-', got {id!r:.80}")
    path = path.resolve()
    before = read_key_file(path) if path.exists() else ""
    ids = list(parse_keys(before, str(path)))
    if id in ids:
        raise InvalidKeys(f"{path} already has the key '{id}'. Use another id.")
    line = f"{id} {b64encode(os.urandom(KEY_BYTES)).decode('ascii')}\n"
    if before and not before.endswith("\n"):
        line = f"\n{line}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = open_private_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except OSError as error:
        raise InvalidKeys(f"Cannot write the key file {path}: {error.strerror or error}.") from None
    with os.fdopen(file, "w", encoding="ascii") as writer:
        writer.write(line)
        writer.flush()
        os.fsync(writer.fileno())
    return [*ids, id]
