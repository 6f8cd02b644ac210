"""Messages to one person, by the address that their contacts have when a message is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nerve.notifications.delivery import Channel, DeliveryFailed
from nerve.project.notify_settings import PERSON_MARK

if TYPE_CHECKING:
    from nerve.core.people import Person
    from nerve.notifications.messages import NotifyMessage
    from nerve.project.notify_settings import ChannelSettings, NotifySettings

ADDRESS_KEYS = {"email": "to", "slack": "channel", "telegram": "chat", "ntfy": "topic"}
"""The setting of each kind of channel that says whom it reaches; other kinds reach no single person."""
ReadPeople = Callable[[], Mapping[str, "Person"]]


def name_person_channel(channel: str, person: str) -> str:
    """Return the name of a channel to one person, such as `mail@ann`."""
    return f"{channel}{PERSON_MARK}{person}"


def find_person_channel(settings: NotifySettings, person: Person) -> str | None:
    """Return the first channel of the configuration for whose kind a person has a contact."""
    for name, channel in settings.channels.items():
        if address_settings(channel, person) is not None:
            return name
    return None


def address_settings(channel: ChannelSettings, person: Person) -> ChannelSettings | None:
    """Return a channel with the address of a person; None if it cannot reach them."""
    key, address = ADDRESS_KEYS.get(channel.kind), (person.contacts or {}).get(channel.kind)
    if key is None or address is None or (channel.kind == "slack" and "webhook" in channel.values):
        return None
    values = {**channel.values, key: (address,) if channel.kind == "email" else address}
    return replace(channel, values=values)


class PersonChannel:
    """The way to one person through a channel of the configuration."""

    def __init__(
        self,
        settings: ChannelSettings,
        person: str,
        read_people: ReadPeople,
        make: Callable[[ChannelSettings], Channel],
    ) -> None:
        self._settings, self._person, self._make = settings, person, make
        self._read_people = read_people

    async def send(self, message: NotifyMessage) -> None:
        person = self._read_people().get(self._person)
        settings = None if person is None or person.disabled else address_settings(self._settings, person)
        if settings is None:
            problem = f"'{self._person}' has no contact {self._settings.kind}"
            raise DeliveryFailed(problem, is_final=True)
        channel = self._make(settings)
        try:
            await channel.send(message)
        finally:
            await channel.close()

    async def close(self) -> None:
        pass

    def describe(self) -> str:
        return f"the contact {self._settings.kind} of {self._person}"

    def find_problem(self) -> str:
        return ""
