"""AES-GCM with keys by id, and the files that hold the keys."""

import os
import sys
from base64 import b64encode
from pathlib import Path

import pytest

from nerve.crypto import KEY_BYTES, AesGcmCodec, InvalidKeys, add_key
from nerve.errors import KeyMissing, PayloadUnreadable

KEYS = {"old": os.urandom(KEY_BYTES), "new": os.urandom(KEY_BYTES)}


def key_line(id: str) -> str:
    return f"{id} {b64encode(KEYS[id]).decode()}"


def test_new_data_uses_the_last_key_and_all_keys_decrypt() -> None:
    codec, old_codec = AesGcmCodec(KEYS), AesGcmCodec({"old": KEYS["old"]})
    assert (codec.name, old_codec.name) == ("aes-gcm:new", "aes-gcm:old")
    for writer in (codec, old_codec):
        assert codec.decode(writer.encode(b"tea", b"here"), writer.name, b"here") == b"tea"
    with pytest.raises(KeyMissing, match=r"Key 'new' is not among the keys \(old\). Add it to "):
        old_codec.decode(codec.encode(b"tea", b"here"), codec.name, b"here")


def test_equal_data_is_encrypted_differently() -> None:
    codec = AesGcmCodec(KEYS)
    assert len({codec.encode(b"tea", b"") for _ in range(100)}) == 100


def test_changed_moved_and_short_data_is_refused() -> None:
    codec = AesGcmCodec(KEYS)
    encrypted = codec.encode(b"tea", b"here")
    changed = encrypted[:-1] + bytes([encrypted[-1] ^ 1])
    for data, name, place in (
        (changed, "aes-gcm:new", b"here"),
        (encrypted, "aes-gcm:new", b"there"),
        (encrypted, "aes-gcm:old", b"here"),
        (b"", "aes-gcm:new", b"here"),
        (encrypted, "zlib", b"here"),
    ):
        with pytest.raises(PayloadUnreadable, match=r"changed or moved|with the codec 'zlib'"):
            codec.decode(data, name, place)


def test_keys_are_read_from_a_file_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(f"# my keys\n\n{key_line('old')}\n  {key_line('new')}  \n")
    codec = AesGcmCodec.from_file(file)
    assert codec.key_ids == ["old", "new"]
    link = tmp_path / "link"
    link.symlink_to(file)
    assert AesGcmCodec.from_file(link).key_ids == ["old", "new"]


def test_keys_are_read_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NERVE_KEYS", f"{key_line('old')},{key_line('new')}")
    assert AesGcmCodec.from_env("NERVE_KEYS").key_ids == ["old", "new"]
    monkeypatch.delenv("NERVE_KEYS")
    with pytest.raises(InvalidKeys, match="the environment variable NERVE_KEYS is not set"):
        AesGcmCodec.from_env("NERVE_KEYS")


SECRET = b64encode(os.urandom(31)).decode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "No key found in "),
        (SECRET, "Line 1 of .*keys is not a key. It must have an id and 32 bytes in Base64"),
        (f"id {SECRET}", "Line 1 of .*keys is not a key"),
        (f"i/d {b64encode(bytes(32)).decode()}", "Line 1 of .*keys is not a key"),
        (f"{key_line('old')}\n{key_line('old')}", "Line 2 of .*keys repeats the key id 'old'"),
    ],
    ids=["empty", "without an id", "short", "invalid id", "repeated id"],
)
def test_a_file_without_valid_keys_is_refused_and_not_shown(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(InvalidKeys, match=problem) as caught:
        AesGcmCodec.from_file(file)
    assert SECRET not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(key_line("old"))
    file.chmod(0o640)
    with pytest.raises(InvalidKeys, match=r"other users can read or change .*keys. Use chmod 600 "):
        AesGcmCodec.from_file(file)
    with pytest.raises(InvalidKeys, match=r"key file .*none does not exist. Restore it"):
        AesGcmCodec.from_file(tmp_path / "none")


def test_a_key_is_added_at_the_end_of_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "folder/keys"
    assert add_key(file, "one") == ["one"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text().rstrip("\n"))
    assert add_key(file, "two") == ["one", "two"]
    assert AesGcmCodec.from_file(file).key_ids == ["one", "two"]
    with pytest.raises(InvalidKeys, match="already has the key 'two'"):
        add_key(file, "two")
    with pytest.raises(InvalidKeys, match="The id of a key must be"):
        add_key(file, "not an id")


@pytest.mark.parametrize("keys", [{}, {"a": b"short"}, {"a b": bytes(32)}, {"a": "x" * 32}])
def test_invalid_keys_are_refused(keys: dict[str, bytes]) -> None:
    with pytest.raises(InvalidKeys):
        AesGcmCodec(keys)


def test_a_missing_package_is_reported_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(InvalidKeys, match=r"needs the package cryptography. Install it"):
        AesGcmCodec(KEYS)
