"""`nerve people`: list, add, change and remove the people who answer gates."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Annotated, Any

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError, check_action
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Flag, Parameter, TextList
from nerve.core.people import TOKEN_PREFIX
from nerve.core.suggest import did_you_mean_hint
from nerve.ui.formatting import format_table

if TYPE_CHECKING:
    from nerve.api.models import PersonResponse

ACTIONS = ("add", "change", "token", "enable", "disable", "remove", "roles")
HEADINGS = ("name", "roles", "scope", "contacts", "")


def people_command(
    action: Annotated[str | None, Parameter(name="ACTION", help=", ".join(ACTIONS) + ".")] = None,
    name: Annotated[str | None, Parameter(name="NAME", help="The name of the person.")] = None,
    /,
    *,
    role: Annotated[TextList, Parameter(help="A role of the person, instead of those they have.")] = (),
    no_roles: Annotated[Flag, Parameter(help="Take all roles from the person.")] = False,
    scope: Annotated[
        str | None, Parameter(help="read, answer, run, member (answer and run) or admin. Default: answer.")
    ] = None,
    contact: Annotated[
        TextList,
        Parameter(help="An address as KIND=ADDRESS, such as email=ann@example.com; KIND= removes one."),
    ] = (),
    no_token: Annotated[Flag, Parameter(help="Add the person without a token.")] = False,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the people who may answer gates, or change them.

    `nerve people add NAME` prints the token of the person once; only its hash is stored. `nerve people token
    NAME` makes a new one: the old one, and the browsers that signed in with it, end at once. `nerve people
    roles` lists the roles. The contact `unix` is the name of the user of this machine who is this person.
    """
    check_action(action, ACTIONS)
    if action not in (None, "roles") and name is None:
        raise UsageError(f"The name of the person is missing: nerve people {action} NAME.")
    fields = read_fields(role, no_roles, scope, contact)
    if action not in ("add", "change") and (fields or no_token):
        raise UsageError("--role, --no-roles, --scope, --contact and --no-token belong to add and change.")
    if action == "change" and not fields:
        raise UsageError("Nothing to change. Use --role, --no-roles, --scope or --contact.")

    async def do(context: CliContext) -> int:
        if action is None:
            print_people(context, (await context.client.people()).people)
        elif action == "roles":
            print_roles(context, (await context.client.people()).people)
        else:
            await change(context, action, str(name), fields, no_token)
        return COMPLETED

    is_change = action not in (None, "roles")
    return run_with_api(common, do, writes=is_change, read_only=not is_change, definitions=False)


def read_fields(
    roles: tuple[str, ...], no_roles: bool, scope: str | None, contacts: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields of a request that the options give."""
    if roles and no_roles:
        raise UsageError("--role and --no-roles cannot be used together.")
    fields: dict[str, Any] = {}
    if roles or no_roles:
        fields["roles"] = list(roles)
    if scope is not None:
        fields["scope"] = read_scope(scope)
    if contacts:
        fields["contacts"] = dict(map(read_contact, contacts))
    return fields


def read_scope(scope: str) -> str:
    from nerve.core.people import PERSON_SCOPES

    if scope not in PERSON_SCOPES:
        hint = did_you_mean_hint(scope, PERSON_SCOPES)
        raise UsageError(f"Unknown scope '{scope}'{hint or '. Use ' + ', '.join(PERSON_SCOPES) + '.'}")
    return scope


def read_contact(text: str) -> tuple[str, str | None]:
    kind, equals, address = text.partition("=")
    if not (kind and equals):
        raise UsageError(f"--contact must be KIND=ADDRESS, got '{text}'.")
    return kind, address or None


async def change(
    context: CliContext, action: str, name: str, fields: dict[str, Any], without_token: bool
) -> None:
    """Make a change and print it, with the token if there is a new one."""
    client, token = context.client, None
    if action == "token" or (action == "add" and not without_token):
        token = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"
        fields = {**fields, "token_hash": hashlib.sha256(token.encode()).hexdigest()}
    match action:
        case "add":
            person = await client.add_person(person=name, **fields)
            text = f"Added {describe_person(person)}."
        case "remove":
            person = await client.remove_person(person=name)
            text = f"Removed {person.name}."
        case "enable" | "disable":
            person = await client.change_person(person=name, disabled=action == "disable")
            text = f"{person.name} is {action}d."
        case _:
            person = await client.change_person(person=name, **fields)
            text = f"Changed {describe_person(person)}."
    lines = [text] if token is None else [text, f"Token, shown only now: {token}"]
    context.print_result(person.model_dump(mode="json") | ({} if token is None else {"token": token}), lines)


def describe_person(person: PersonResponse) -> str:
    roles = f" with {', '.join(person.roles)}" if person.roles else ""
    return f"{person.name}{roles}, scope {person.scope}"


def print_people(context: CliContext, people: list[PersonResponse]) -> None:
    rows = [
        (
            person.name,
            ", ".join(person.roles),
            person.scope,
            ", ".join(f"{kind}={address}" for kind, address in person.contacts.items()),
            "disabled" if person.disabled else "" if person.has_token else "no token",
        )
        for person in people
    ]
    lines = format_table([HEADINGS, *rows]) if rows else "No people. Add one: nerve people add NAME"
    context.print_result(people, lines)


def print_roles(context: CliContext, people: list[PersonResponse]) -> None:
    roles: dict[str, list[str]] = {}
    for person in people:
        for role in person.roles:
            roles.setdefault(role, []).append(person.name)
    lines = format_table([(role, ", ".join(names)) for role, names in sorted(roles.items())]) if roles else ()
    context.print_result(roles, lines or "No roles. Give one: nerve people change NAME --role ROLE")
