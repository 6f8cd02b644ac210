"""People: who may answer the gates of a project, with their roles, and how they prove who they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from nerve.core.json_codec import encode_json
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

PERSON_SCOPES = ("read", "answer", "run", "member", "admin")
"""What a person may do; `member` is `answer` and `run` together."""
ANSWERING_SCOPES = ("answer", "member", "admin")
"""The scopes with which a person may answer gates."""
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
CONTACT_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,31}")
MAX_CONTACT_CHARS = 512
UNIX_CONTACT = "unix"
"""The contact with the name of the user of this machine who is this person."""
EMAIL_CONTACT, OIDC_CONTACT = "email", "oidc"
"""The contacts by which a provider of OpenID Connect names a person: their address, or another claim."""
CHAT_CONTACTS = ("github", "slack", "telegram")
"""The contacts with the account of a person at a service: a login of GitHub, or the id of a user."""
UNIQUE_CONTACTS = (UNIX_CONTACT, EMAIL_CONTACT, OIDC_CONTACT, *CHAT_CONTACTS)
"""The contacts by which a person is known, so that only one person can have an address."""
CASELESS_CONTACTS = (EMAIL_CONTACT, "github")
PERSON_IDENTITY = "person:"
"""The beginning of the identity of a person who has proved who they are."""
TOKEN_PREFIX = "nvp_"
"""The beginning of the token of a person, which tells it from a token of the project."""
TOKEN_HASH_PATTERN = re.compile(r"[0-9a-f]{64}")
FIRST_CHANGE_HASH = "0" * 64
"""The hash that precedes the first change."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person as the last change left them."""

    name: str
    roles: tuple[str, ...] = ()
    scope: str = "answer"
    contacts: Mapping[str, str] | None = None
    """Addresses by kind, such as `email` and `slack`; `unix` is the name of the user on this machine."""
    token_hash: str | None = None
    """The SHA-256 of the token, in hex; the token itself is not stored."""
    disabled: bool = False
    generation: int = 0
    """The change of the token or of `disabled`; it ends the sessions of browsers that signed in before."""

    def to_data(self) -> dict[str, Any]:
        """Return what a change records."""
        return {
            "roles": list(self.roles),
            "scope": self.scope,
            "contacts": dict(self.contacts or {}),
            "token_hash": self.token_hash,
            "disabled": self.disabled,
            "generation": self.generation,
        }

    def has_any(self, names: Iterable[str]) -> bool:
        """Whether the name of the person or one of their roles is among some names."""
        return bool({self.name, *self.roles}.intersection(names))


def read_person(name: str, data: Mapping[str, Any]) -> Person:
    """Return a person from a recorded change."""
    return Person(
        name,
        tuple(data["roles"]),
        data["scope"],
        dict(data["contacts"]),
        data["token_hash"],
        data["disabled"],
        data["generation"],
    )


def hash_token(token: str) -> str:
    """Return the hash by which a token is known."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def hash_change(previous: str, session: str, number: int, at: float, name: str, data: str) -> str:
    """Return the hash of a change of the people from that of the change before."""
    text = encode_json([previous, session, number, at + 0.0, name, data])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_person_name(name: str) -> str:
    """Return the name of a person or a role; ValueError if it is not one."""
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(f"A name must have up to 64 lower-case letters, digits, '-' and '_', got '{name}'")
    return name


def check_person(person: Person, others: Mapping[str, Person]) -> None:
    """Raise ValueError for a person who is not valid, or not beside the other people."""
    check_person_name(person.name)
    for role in person.roles:
        check_person_name(role)
    if person.scope not in PERSON_SCOPES:
        hint = did_you_mean_hint(person.scope, PERSON_SCOPES)
        raise ValueError(
            f"Unknown scope '{person.scope}'{hint or '. It must be ' + ', '.join(PERSON_SCOPES) + '.'}"
        )
    if person.token_hash is not None and not TOKEN_HASH_PATTERN.fullmatch(person.token_hash):
        raise ValueError("token_hash must be the SHA-256 of the token in 64 hexadecimal digits")
    for kind, address in (person.contacts or {}).items():
        if not CONTACT_PATTERN.fullmatch(kind):
            raise ValueError(f"The kind of a contact must be a word such as email, got '{kind}'")
        if not address or len(address) > MAX_CONTACT_CHARS or not address.isprintable():
            raise ValueError(f"The contact {kind} must have 1 to {MAX_CONTACT_CHARS} printable characters")
    for other in others.values():
        if other.name == person.name:
            continue
        # A gate names people and roles in one list.
        if other.name in person.roles or person.name in other.roles:
            both = other.name if other.name in person.roles else person.name
            raise ValueError(f"'{both}' cannot be both a person and a role. Use another name")
        for kind in UNIQUE_CONTACTS:
            own = (person.contacts or {}).get(kind)
            if own is not None and same_contact(kind, own, (other.contacts or {}).get(kind)):
                raise ValueError(f"The contact {kind}={own} belongs to '{other.name}' already")
    if person.name in person.roles:
        raise ValueError(f"'{person.name}' cannot be both a person and a role. Use another name")


def same_contact(kind: str, one: str, other: str | None) -> bool:
    """Whether two addresses are the same; those of e-mail and GitHub regardless of case."""
    if other is None:
        return False
    return one.casefold() == other.casefold() if kind in CASELESS_CONTACTS else one == other


def find_by_contact(people: Iterable[Person], kind: str, address: str) -> Person | None:
    """Return the person who has an address and is not disabled."""
    return next(
        (
            person
            for person in people
            if not person.disabled and same_contact(kind, address, (person.contacts or {}).get(kind))
        ),
        None,
    )


def find_by_identity(people: Mapping[str, Person], identity: str) -> Person | None:
    """Return the person with an identity: one who has signed in, or who is a user of this machine."""
    kind, _, name = identity.partition(":")
    if f"{kind}:" == PERSON_IDENTITY:
        person = people.get(name)
        return None if person is None or person.disabled else person
    return find_by_contact(people.values(), UNIX_CONTACT, name) if kind == "unix" and name else None


def change_person(
    person: Person,
    number: int,
    roles: Iterable[str] | None = None,
    scope: str | None = None,
    contacts: Mapping[str, str | None] | None = None,
    token_hash: str | None = None,
    disabled: bool | None = None,
) -> Person:
    """Return a person with the given values changed by the change with this number.

    A contact of None is removed.
    """
    new = replace(
        person,
        roles=person.roles if roles is None else tuple(dict.fromkeys(roles)),
        scope=person.scope if scope is None else scope,
        token_hash=person.token_hash if token_hash is None else token_hash,
        disabled=person.disabled if disabled is None else disabled,
    )
    if contacts is not None:
        merged = {**(person.contacts or {}), **contacts}
        new = replace(new, contacts={kind: text for kind, text in merged.items() if text is not None})
    if (new.token_hash, new.disabled) != (person.token_hash, person.disabled):
        new = replace(new, generation=number)
    return new
