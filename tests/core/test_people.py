"""People: what a name, a role and a contact may be, and what a change changes."""

import pytest

from nerve.core.people import Person, change_person, check_person, find_by_contact, hash_token

ANN = Person("ann", ("lead",), contacts={"email": "ann@example.com", "unix": "ann1"})


@pytest.mark.parametrize("name", ["", "Ann", "a b", "-a", "a.b", "a" * 65, "ä"])
def test_a_name_has_letters_digits_dashes_and_underscores(name: str) -> None:
    with pytest.raises(ValueError, match="A name must have"):
        check_person(Person(name), {})
    with pytest.raises(ValueError, match="A name must have"):
        check_person(Person("ann", (name,)), {})


def test_a_name_is_a_person_or_a_role_and_not_both() -> None:
    for person in (Person("lead"), Person("ben", ("ann",)), Person("cat", ("cat",))):
        with pytest.raises(ValueError, match="cannot be both a person and a role"):
            check_person(person, {"ann": ANN})
    check_person(Person("ben", ("lead",)), {"ann": ANN})


def test_an_address_of_e_mail_and_a_user_belong_to_one_person() -> None:
    for contacts in ({"email": "Ann@Example.com"}, {"unix": "ann1"}):
        with pytest.raises(ValueError, match="belongs to 'ann' already"):
            check_person(Person("ben", contacts=contacts), {"ann": ANN})
    check_person(Person("ben", contacts={"slack": "#team", "email": "ben@example.com"}), {"ann": ANN})


def test_an_unknown_scope_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"Unknown scope 'anser'. Did you mean 'answer'\?"):
        check_person(Person("ann", scope="anser"), {})


@pytest.mark.parametrize(
    "contacts", [{"E-mail": "x"}, {"email": ""}, {"email": "a\nb"}, {"email": "x" * 513}]
)
def test_a_contact_is_one_line(contacts: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="contact"):
        check_person(Person("ann", contacts=contacts), {})


def test_a_change_keeps_what_it_does_not_name() -> None:
    changed = change_person(ANN, 7, contacts={"slack": "U1", "unix": None})
    assert changed.contacts == {"email": "ann@example.com", "slack": "U1"}
    assert (changed.roles, changed.scope, changed.generation) == (("lead",), "answer", 0)


def test_a_new_token_and_disabling_start_a_new_generation() -> None:
    with_token = change_person(ANN, 7, token_hash=hash_token("nvp_x"))
    assert with_token.generation == 7
    assert change_person(with_token, 8, roles=["dev", "dev"]).generation == 7
    assert change_person(with_token, 9, disabled=True).generation == 9


def test_a_person_is_found_by_an_address_unless_they_are_disabled() -> None:
    assert find_by_contact([ANN], "email", "ANN@example.com") == ANN
    assert find_by_contact([ANN], "unix", "ANN1") is None
    assert find_by_contact([change_person(ANN, 2, disabled=True)], "email", "ann@example.com") is None
