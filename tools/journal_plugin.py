"""A plugin of mypy: only the journal and the store read the JSON of an event, whatever the name of its row.

`EventRow.data` is JSON. Other code reads typed events, which `nerve.journal.events` decodes. `data` of a
`WorkflowEvent` is the decoded dict of the public interface, and open to all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mypy.plugin import AttributeContext, Plugin

if TYPE_CHECKING:
    from mypy.types import Type

EVENT_JSON = "nerve.store.port.EventRow.data"
READERS = ("nerve/journal/", "nerve/store/", "nerve/testing/store_contract.py")


def check_reader(context: AttributeContext) -> Type:
    """Report the read of the JSON of an event, unless it is in the journal or the store."""
    path = Path(context.api.path).as_posix().removeprefix("src/")  # mypy runs in the root of the project
    if path.startswith("nerve/") and not path.startswith(READERS):
        context.api.fail(
            "The JSON of an event is read outside nerve.journal and nerve.store; use decode_event(row)",
            context.context,
        )
    return context.default_attr_type


class JournalPlugin(Plugin):
    """Calls `check_reader` for each read of `EventRow.data`."""

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        return check_reader if fullname == EVENT_JSON else None


def plugin(version: str) -> type[Plugin]:
    return JournalPlugin
