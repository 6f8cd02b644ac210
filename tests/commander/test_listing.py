"""What commands tell."""

from nerve.api.models import FactTold
from nerve.commander.listing import facts


def fact(by: str) -> FactTold:
    return FactTold(id="f", record=["ready"], text="(ready)", by=by, at=0.0)


def test_a_fact_is_told_with_who_asserted_it_if_anybody_did() -> None:
    assert facts([fact("ada"), fact("")]) == "- `(ready)` by ada\n- `(ready)`"
