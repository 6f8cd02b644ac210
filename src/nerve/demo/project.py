"""The scratch project: a function with a failing test, and a log of what every step really did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TASK = "slugify(title): 'Hello, World!' becomes 'hello-world'"

TESTS = """\
import unittest

from slug import slugify


class Slugify(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slugify("Hello World"), "hello-world")

    def test_punctuation(self):
        self.assertEqual(slugify("Hello, World!"), "hello-world")

    def test_many_spaces(self):
        self.assertEqual(slugify("  Hello   World "), "hello-world")
"""

UNDONE = """\
def slugify(title):
    raise NotImplementedError
"""

FIRST = '''\
"""Titles as parts of addresses."""


def slugify(title):
    """Lower case, with a dash for every space."""
    return title.lower().replace(" ", "-")
'''

SECOND = '''\
"""Titles as parts of addresses."""

import re


def slugify(title):
    """Lower case, with a dash for everything between words."""
    return re.sub("[\\W_]+", "-", title.lower()).strip("-")
'''

THIRD = SECOND.replace('re.sub("', 're.sub(r"')

VERSIONS = [
    ("a dash for every space", FIRST),
    ("one dash between words", SECOND),
    ("a raw string for the pattern", THIRD),
]
"""What the scripted agent writes: the first fails two tests, the second only the linter."""


@dataclass(frozen=True)
class Project:
    """A folder with the project, the developer's working copy of it, the journal and the log of effects."""

    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def merged(self) -> Path:
        return self.folder / "project"

    @property
    def effects(self) -> Path:
        return self.folder / "effects.log"

    def create(self) -> Project:
        for place in (self.merged, self.work):
            place.mkdir(parents=True)
            (place / "slug.py").write_text(UNDONE)
            (place / "test_slug.py").write_text(TESTS)
        self.effects.touch()
        return self

    def note(self, name: str, key: str) -> None:
        """Say in the log that a step has really begun; `key` is the same for every attempt of one step."""
        with self.effects.open("a") as log:
            log.write(f"{name} {key}\n")

    def noted(self) -> list[str]:
        """The keys in the log, in order."""
        return [line.split()[1] for line in self.effects.read_text().splitlines()]

    def is_merged(self) -> bool:
        """Whether the project has what the developer made."""
        return (self.merged / "slug.py").read_text() == (self.work / "slug.py").read_text() != UNDONE

    def lines_written(self) -> tuple[int, int]:
        """How many lines the working copy has, and how many its last version will have."""
        return len((self.work / "slug.py").read_text().splitlines()), len(VERSIONS[-1][1].splitlines())
