"""What the lists of mistakes share: `nerve check` of one file."""

from pathlib import Path

import pytest

from nerve.cli.check import check_command


class Check:
    """`nerve check` of a text, as a person reads it."""

    def __init__(self, folder: Path, printed: pytest.CaptureFixture[str]) -> None:
        self.folder, self.printed = folder, printed

    def __call__(self, text: str | bytes, file: str) -> tuple[int, list[str]]:
        """The exit code and the lines, without the name of the file and without the notes."""
        (self.folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
        code = check_command(file, quiet=True)
        lines = self.printed.readouterr().out.splitlines()
        return code, [line.removeprefix(f"{file}:") for line in lines if " note: " not in line]
