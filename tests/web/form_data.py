"""The texts that a browser sends for a form on a page, read from its HTML."""

from __future__ import annotations

from html.parser import HTMLParser


class FormReader(HTMLParser):
    """Collects the fields of the forms of a page, as a browser without scripts does."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[dict[str, str | None], list[tuple[str, str]]]] = []
        self._select = ""
        self._area: tuple[str, list[str]] | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self.forms.append((given, []))
        elif not self.forms:
            return
        elif tag == "input" and name and given.get("type") not in ("submit", "file"):
            if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self.forms[-1][1].append((name, value))
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.forms[-1][1].append((self._select, value))
        elif tag == "textarea":
            self._area = name, []

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area[1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            name, parts = self._area
            text = "".join(parts).removeprefix("\n")  # as parsers of HTML do
            self.forms[-1][1].append((name, text.replace("\n", "\r\n")))
            self._area = None
        elif tag == "select":
            self._select = ""


def read_form(html: str, action: str) -> list[tuple[str, str]]:
    """Return the texts of the form that is sent to an address."""
    reader = FormReader()
    reader.feed(html)
    (texts,) = [texts for given, texts in reader.forms if given.get("action") == action]
    return texts
