"""The scratch project: a function with a failing test, and a log of the effects of each step."""

from __future__ import annotations

from pathlib import Path

from nerve.lazy_dataclass import dataclass

TASK = "slugify(title): 'Hello, World!' becomes 'hello-world'"

TEST_SOURCE = """\
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

STUB_SOURCE = """\
def slugify(title):
    raise NotImplementedError
"""

FIRST_VERSION = '''\
"""Titles as parts of addresses."""


def slugify(title):
    """Lower case, with a dash for every space."""
    return title.lower().replace(" ", "-")
'''

SECOND_VERSION = '''\
"""Titles as parts of addresses."""

import re


def slugify(title):
    """Lower case, with a dash for everything between words."""
    return re.sub("[\\W_]+", "-", title.lower()).strip("-")
'''

THIRD_VERSION = SECOND_VERSION.replace('re.sub("', 're.sub(r"')

VERSIONS = [
    ("a dash for every space", FIRST_VERSION),
    ("one dash between words", SECOND_VERSION),
    ("a raw string for the pattern", THIRD_VERSION),
]
"""Versions written by the scripted agent: the first fails two tests, the second only the linter."""


@dataclass(frozen=True)
class ScratchProject:
    """A folder with the project, a working copy of it, the journal and the effects log."""

    folder: Path

    @property
    def journal_file(self) -> Path:
        return self.folder / "journal.db"

    @property
    def work_folder(self) -> Path:
        return self.folder / "work"

    @property
    def merged_folder(self) -> Path:
        return self.folder / "project"

    @property
    def effects_log(self) -> Path:
        return self.folder / "effects.log"

    def create(self) -> ScratchProject:
        for directory in (self.merged_folder, self.work_folder):
            directory.mkdir(parents=True)
            (directory / "slug.py").write_text(STUB_SOURCE)
            (directory / "test_slug.py").write_text(TEST_SOURCE)
        self.effects_log.touch()
        return self

    def log_effect(self, name: str, key: str) -> None:
        """Record in the effects log that a step started; `key` is the same for all attempts of a step."""
        with self.effects_log.open("a") as log:
            log.write(f"{name} {key}\n")

    def read_effect_keys(self) -> list[str]:
        """Return the keys in the effects log, in order."""
        return [line.split()[1] for line in self.effects_log.read_text().splitlines()]

    def is_merged(self) -> bool:
        """Whether the project contains the code of the working copy."""
        return (
            (self.merged_folder / "slug.py").read_text()
            == (self.work_folder / "slug.py").read_text()
            != STUB_SOURCE
        )

    def lines_written(self) -> tuple[int, int]:
        """Return the number of lines in the working copy, and in the last version."""
        return len((self.work_folder / "slug.py").read_text().splitlines()), len(VERSIONS[-1][1].splitlines())
