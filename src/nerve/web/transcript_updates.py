"""Live transcripts: only what an agent or a command has said since the last message is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nerve.lazy_dataclass import dataclass
from nerve.ui.step_transcript import TranscriptEntry
from nerve.web.rendering import MAX_SHOWN_ENTRIES, first_shown_entry, make_partial, split_text

GROWING_KINDS = ("text", "output", "print", "reasoning")
"""Entries whose text grows at its end."""
DROPPED_ENTRIES = 100
"""When a page has that many entries more than it shows when it is loaded, it removes the oldest of them."""


@dataclass(slots=True)
class SentEntry:
    """An entry that the pages have, with the text and the state that they have of it."""

    entry: TranscriptEntry
    text: str
    state: tuple[object, ...]
    part: int
    """The number of the last part of its text."""
    part_start: int
    """Where that part begins."""


class TranscriptUpdates:
    """What the open pages have of a transcript, and how it is brought up to date."""

    def __init__(
        self,
        place: str,
        render_entry: Callable[[TranscriptEntry, str], str],
        render_older: Callable[[int, str], str],
    ) -> None:
        """Create it for the element with the id `place`, whose children have ids that start with it.

        `render_older` returns how many older entries are not shown, with an id.
        """
        self._place, self._render_entry, self._render_older = place, render_entry, render_older
        self._sent: dict[int, SentEntry] = {}
        """By the number of the entry in the whole transcript."""
        self._is_sent = False

    def entry_id(self, number: int) -> str:
        return f"{self._place}-{number}"

    def render_changes(self, entries: list[TranscriptEntry], dropped: int = 0) -> str:
        """Return the fragments that bring the pages up to date; `dropped` entries precede the given ones."""
        newest = dropped + len(entries)
        is_continued = self._is_sent and all(
            dropped <= number < newest and entries[number - dropped] is sent.entry
            for number, sent in self._sent.items()
            if number >= dropped
        )
        if not is_continued:
            self._is_sent = True
            self._sent = {}
            first = dropped + first_shown_entry(entries)
            for number in range(first, newest):
                self._note(number, entries[number - dropped])
            return self.render_sent()
        parts = self._drop_oldest(dropped, newest)
        for number, sent in self._sent.items():
            parts += self._render_change(number, sent)
        first_new = max(self._sent, default=dropped - 1) + 1
        for number in range(max(first_new, newest - MAX_SHOWN_ENTRIES), newest):
            self._note(number, entries[number - dropped])
            parts.append(make_partial(f"#{self._place}", self._render(number), "beforeend"))
        return "".join(parts)

    def render_sent(self) -> str:
        """Return the fragment that gives a page what the others have."""
        first = min(self._sent, default=0)
        older = self._render_older(first, f"{self._place}-older") if first else ""
        html = older + "".join(map(self._render, self._sent))
        return make_partial(f"#{self._place}", html, "innerMorph")

    def _drop_oldest(self, dropped: int, newest: int) -> list[str]:
        """Return the fragments that remove the oldest entries from a page that has too many."""
        first = min(self._sent, default=dropped)
        if newest - first <= MAX_SHOWN_ENTRIES + DROPPED_ENTRIES and first >= dropped:
            return []
        new_first = max(dropped, newest - MAX_SHOWN_ENTRIES)
        removed = [number for number in self._sent if number < new_first]
        for number in removed:
            del self._sent[number]
        older_id = f"{self._place}-older"
        return [
            make_partial(f"#{older_id}", "", "delete"),
            *(make_partial(f"#{self.entry_id(number)}", "", "delete") for number in removed),
            make_partial(f"#{self._place}", self._render_older(new_first, older_id), "afterbegin"),
        ]

    def _render_change(self, number: int, sent: SentEntry) -> list[str]:
        entry, state = sent.entry, read_state(sent.entry)
        if state == sent.state and len(entry.text) == len(sent.text):
            return []
        is_longer = entry.kind in GROWING_KINDS and entry.text.startswith(sent.text)
        if not is_longer or state != sent.state:
            self._note(number, entry)
            return [make_partial(f"#{self.entry_id(number)}", self._render(number))]
        return self._append_text(number, sent)

    def _append_text(self, number: int, sent: SentEntry) -> list[str]:
        """Return the fragments that add the new end of a text to its last part, and as further parts."""
        from markupsafe import escape

        id, text = self.entry_id(number), sent.entry.text
        last, *further = split_text(text[sent.part_start :])
        added = last[len(sent.text) - sent.part_start :]
        parts = [make_partial(f"#{id}-part-{sent.part}", f"<span>{escape(added)}</span>", "beforeend")]
        for part in further:
            sent.part, sent.part_start = sent.part + 1, sent.part_start + len(last)
            last = part
            html = f'<span class="part" id="{id}-part-{sent.part}">{escape(part)}</span>'
            parts.append(make_partial(f"#{id}-text", html, "beforeend"))
        sent.text = text
        return parts

    def _note(self, number: int, entry: TranscriptEntry) -> None:
        parts = split_text(entry.text)
        start = len(entry.text) - len(parts[-1])
        self._sent[number] = SentEntry(entry, entry.text, read_state(entry), len(parts) - 1, start)

    def _render(self, number: int) -> str:
        sent = self._sent[number]
        # Not with text that the other pages do not have yet, and that would be added to it again.
        return self._render_entry(replace(sent.entry, text=sent.text), self.entry_id(number))


def read_state(entry: TranscriptEntry) -> tuple[object, ...]:
    """Return what changes an entry other than more text at its end."""
    return entry.is_partial, entry.status, entry.ended_at, entry.cut_characters
