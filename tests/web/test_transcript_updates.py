"""Live transcripts: pages that get every message, and pages that join later, have the same text."""

from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.ui.step_transcript import TranscriptEntry
from nerve.web.rendering import MIN_PART_CHARS, make_environment, split_text
from nerve.web.transcript_updates import DROPPED_ENTRIES, TranscriptUpdates

AT = datetime(2026, 11, 18, tzinfo=UTC)
ENVIRONMENT = make_environment()


class ShownPage(HTMLParser):
    """The text of the elements with an id, after the fragments of a stream were put in their places."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.texts: dict[str, list[str]] = {}
        self._target = self._swap = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "hx-partial":
            self._target, self._swap = (values["hx-target"] or "")[1:], values["hx-swap"] or ""
            if self._swap == "innerMorph":
                self.texts.clear()
            elif self._swap == "delete":
                self._remove(self._target)
            elif self._swap == "beforeend" and self._target != "t":
                assert self._target in self.texts, self._target
            return
        id = values.get("id") or ""
        if id and self._swap == "outerMorph" and id == self._target:
            self._remove(id)
        if id:
            self.texts.setdefault(id, [])
        self._open.append(id)

    def handle_endtag(self, tag: str) -> None:
        if tag != "hx-partial":
            self._open.pop()

    def handle_data(self, data: str) -> None:
        owner = next((id for id in reversed(self._open) if id), self._target)
        if owner in self.texts:
            self.texts[owner].append(unescape(data))

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    def _remove(self, id: str) -> None:
        self.texts = {
            each: text for each, text in self.texts.items() if each != id and not each.startswith(f"{id}-")
        }

    def text_of(self, number: int) -> str:
        """Return the text of an entry, whose parts are in the order in which they were added."""
        parts = [text for id, text in self.texts.items() if id.startswith(f"t-{number}-part-")]
        return "".join("".join(text) for text in parts)


def new_updates() -> TranscriptUpdates:
    def render_entry(entry: TranscriptEntry, entry_id: str) -> str:
        template = ENVIRONMENT.get_template("parts/transcript_entry.html")
        return template.render(entry=entry, entry_id=entry_id)

    def render_older(count: int, older_id: str) -> str:
        template = ENVIRONMENT.get_template("parts/older_entries.html")
        return template.render(older=count, older_id=older_id)

    return TranscriptUpdates("t", render_entry, render_older)


LINES = st.sampled_from(["", "a", "<b>&\n", "line\n" * 300, "x" * 1500, "\n", "word " * 900 + "\n"])


@given(st.lists(st.tuples(LINES, st.booleans()), max_size=30))
def test_a_text_that_grows_is_the_same_on_every_page(changes: list[tuple[str, bool]]) -> None:
    updates, entry = new_updates(), TranscriptEntry("output", AT, "begin ", name="stdout")
    pages = [ShownPage()]
    pages[0].feed(updates.render_changes([entry]))
    for text, joins in changes:
        entry.text += text
        html = updates.render_changes([entry])
        for page in pages:
            page.feed(html)
        if joins:
            pages.append(ShownPage())
            entry.text += "not sent yet "
            pages[-1].feed(updates.render_sent())
    html = updates.render_changes([entry])
    for page in pages:
        page.feed(html)
        assert page.text_of(0) == entry.text


@given(st.text(st.sampled_from("ab\n"), max_size=80).map(lambda text: text.replace("a", "a" * 900)))
def test_the_parts_of_a_text_do_not_change_when_it_grows(text: str) -> None:
    parts = split_text(text)
    assert "".join(parts) == text
    assert all(len(part) > MIN_PART_CHARS and part.endswith("\n") for part in parts[:-1])
    for end in range(0, len(text), 997):
        assert split_text(text[:end])[:-1] == parts[: len(split_text(text[:end])) - 1]


@pytest.mark.parametrize("step", [1, 7, 450, 900])
def test_a_page_keeps_only_the_newest_entries(step: int) -> None:
    updates, page, entries = new_updates(), ShownPage(), list[TranscriptEntry]()
    for start in range(0, 1800, step):
        entries += [TranscriptEntry("log", AT, f"entry {n}") for n in range(start, start + step)]
        page.feed(updates.render_changes(entries))
        shown = [int(id[2:]) for id in page.texts if id[2:].isdecimal()]
        assert shown == list(range(shown[0], len(entries)))
        assert min(500, len(entries)) <= len(shown) <= 500 + DROPPED_ENTRIES
        if shown[0]:
            assert f"{shown[0]:,} older entr" in "".join(page.texts["t-older"])
    joined = ShownPage()
    joined.feed(updates.render_sent())
    assert [id for id in joined.texts if id != "t-older"] == [id for id in page.texts if id != "t-older"]


def test_entries_that_are_dropped_by_the_transcript_are_removed_from_the_page() -> None:
    updates, page = new_updates(), ShownPage()
    entries = [TranscriptEntry("log", AT, f"entry {n}") for n in range(400)]
    page.feed(updates.render_changes(entries))
    page.feed(updates.render_changes(entries[200:], dropped=200))
    assert [int(id[2:]) for id in page.texts if id != "t-older"] == list(range(200, 400))
    assert "200 older entries are not shown" in "".join(page.texts["t-older"])
