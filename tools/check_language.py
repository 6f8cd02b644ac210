"""Check names and wording: `python tools/check_language.py [PATH …]`, part of `make check`.

Three rules. A module-level function is not named by a bare participle or gerund. A class name is defined
once in `nerve`. Phrases that plain technical English does not use appear neither in string literals and
comments of the source nor in the documentation.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nerve"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/**/*.md")
MAX_PAGE_COLUMNS = 100

PARTICIPLE = re.compile(
    r"_?([a-z]+(ed|ing)|told|found|given|taken|made|kept|meant|said|shown|begun|gone|held|left|lent|put|read"
    r"|seen|sent|spent|written|wanted)"
)
PHRASES = re.compile(
    r"\b((?:is|are|was|were) no|there is no "
    r"such|somebody|nobody|whoever|mend(?:s|ed|ing)?|(?:go|goes|going|gone|went)"
    r" on(?: with)?|stands? (?:behind|beside|for itself|in)|what is no|(?:is|are|was|were|be) told|tells? "
    r"(?:of|you)"
    r"|anew|in so many words|behind|tak(?:e|es|en|ing) up|(?:came|become|comes|became) of|there are:"
    r"|who (?:comes|leaves|has no))\b",
    re.IGNORECASE,
)

ALLOWED_FUNCTIONS: dict[str, str] = {
    # name: why this name stays
}
ALLOWED_PHRASES: dict[str, str] = {
    # "path: matched line": why this text stays
}


def check_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield module-level functions whose name is a bare participle or gerund."""
    for node in tree.body:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and PARTICIPLE.fullmatch(node.name) and node.name not in ALLOWED_FUNCTIONS:
            yield f"{path}:{node.lineno}: function {node.name}() is a bare participle; use verb + object"


def check_phrases(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield phrases that plain technical English does not use."""
    for number, line in lines:
        for match in PHRASES.finditer(line):
            if f"{path}: {line.strip()}" not in ALLOWED_PHRASES:
                yield f'{path}:{number}: "{match[0]}" in: {line.strip()[:100]}'


def read_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of string literals and comments."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def check_page(path: Path, text: str) -> Iterator[str]:
    """Yield wording problems and long lines of a documentation page; code blocks and tables may be long."""
    yield from check_phrases(path, iter(enumerate(text.splitlines(), 1)))
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif len(line) > MAX_PAGE_COLUMNS and not is_code and not line.lstrip().startswith(("|", "[", "![")):
            yield f"{path}:{number}: {len(line)} columns; wrap at {MAX_PAGE_COLUMNS}"


def find_problems(only: list[Path]) -> Iterator[str]:
    """Yield every problem of the project, or those of some files and folders."""

    def is_wanted(path: Path) -> bool:
        return not only or any(path.is_relative_to(chosen) for chosen in only)

    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        relative, source = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(f"{relative}:{node.lineno}")
        if is_wanted(path):
            yield from check_functions(relative, tree)
            yield from check_phrases(relative, read_prose(source))
    for name, places in classes.items():
        if len(places) > 1:
            yield f"class {name} is defined {len(places)} times: {', '.join(places)}"
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            if is_wanted(path):
                yield from check_page(path.relative_to(ROOT), path.read_text(encoding="utf-8"))


def main() -> None:
    """Print every problem, and fail if there are any."""
    problems = list(find_problems([Path(argument).resolve() for argument in sys.argv[1:]]))
    sys.stdout.write("\n".join(problems or ["Names and language: no problems."]) + "\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
