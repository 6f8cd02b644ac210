"""Live transcripts: only what an agent or a command has said since the last message is sent."""

from __future__ import annotations

from collections.abc import Callable

from nerve.ui.step_transcript import TranscriptEntry
from nerve.web.rendering import make_partial

GROWING_KINDS = ("text", "output", "print", "reasoning")
"""Entries whose text grows at its end."""


class TranscriptUpdates:
    """What one page has of a transcript, and how it is brought up to date."""

    def __init__(self, place: str, render_entry: Callable[[TranscriptEntry, str], str]) -> None:
        """Create it for the element with the id `place`, whose children have ids that start with it."""
        self._place, self._render_entry = place, render_entry
        self._sent: list[tuple[TranscriptEntry, str]] = []
        """The entries that the page has, and the text of each."""
        self._states: list[tuple[object, ...]] = []
        self._is_sent = False

    def entry_id(self, number: int) -> str:
        return f"{self._place}-{number}"

    def render_all(self, entries: list[TranscriptEntry]) -> str:
        """Return all entries, and note that the page has them."""
        self._sent = [(entry, entry.text) for entry in entries]
        self._states = [read_state(entry) for entry in entries]
        self._is_sent = True
        return "".join(self._render(number, entry) for number, entry in enumerate(entries))

    def render_changes(self, entries: list[TranscriptEntry]) -> str:
        """Return the fragments that bring the page up to date."""
        is_continued = len(entries) >= len(self._sent) and all(
            entry is sent for (sent, _), entry in zip(self._sent, entries, strict=False)
        )
        if not self._is_sent or not is_continued:
            return make_partial(f"#{self._place}", self.render_all(entries), "innerMorph")
        parts: list[str] = []
        for number, entry in enumerate(entries[: len(self._sent)]):
            text, state = self._sent[number][1], read_state(entry)
            if state == self._states[number] and len(entry.text) == len(text):
                continue
            is_longer = entry.kind in GROWING_KINDS and entry.text.startswith(text)
            if is_longer and state == self._states[number]:
                parts.append(self._append_text(number, entry.text[len(text) :]))
            else:
                parts.append(make_partial(f"#{self.entry_id(number)}", self._render(number, entry)))
            self._sent[number], self._states[number] = (entry, entry.text), state
        for number in range(len(self._sent), len(entries)):
            parts.append(make_partial(f"#{self._place}", self._render(number, entries[number]), "beforeend"))
            self._sent.append((entries[number], entries[number].text))
            self._states.append(read_state(entries[number]))
        return "".join(parts)

    def _append_text(self, number: int, text: str) -> str:
        from markupsafe import escape

        return make_partial(f"#{self.entry_id(number)}-text", f"<span>{escape(text)}</span>", "beforeend")

    def _render(self, number: int, entry: TranscriptEntry) -> str:
        return self._render_entry(entry, self.entry_id(number))


def read_state(entry: TranscriptEntry) -> tuple[object, ...]:
    """Return what changes an entry other than more text at its end."""
    return entry.is_partial, entry.status, entry.ended_at, entry.cut_characters
