"""Prompts from files: their texts put into a document, and what is wrong inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nerve.core.suggest import suggest
from nerve.expr import ExprError
from nerve.notations.discovery import FoundPrompt, find_prompt, home_of, prompt_names, unopened
from nerve.notations.files import Refused
from nerve.spec.checks.texts import fix_of
from nerve.spec.scope import NAMES
from nerve.spec.source import Document, Map, Place, Problem, Unreadable
from nerve.spec.variables import compile_prompt, misspelt

SEEN_BY_PROMPTS = NAMES - {"output"}
AS_THEY_ARE = "Write \\{{ for braces that are meant as they are."
ONE = ("body", "then", "otherwise", "default", "on_error", "on_timeout")
"""The keys under which a node has another."""
MANY = ("steps", "branches", "states")
"""The keys under which it has a list of them."""


def attach_prompts(
    document: Document,
    folder: Path | None = None,
    project: Path | None = None,
    kept: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Put the text of its file into every prompt that has only a file's name; says what is wrong with them.

    Without a folder it is the one that the document's own file belongs to. What is `kept` by the name of
    a prompt counts more than its file.
    """
    if folder is None:
        folder, project = home_of(Path(document.file))
    elif project is None:
        project = home_of(folder / "workflows" / "_")[1]
    assert project is not None
    attached = Attaching(document, folder, project, kept or {})
    for node in nodes(document.data.get("body")):
        if node.get("kind") == "prompt" and "text" not in node and isinstance(node.get("file"), str):
            attached.attach(node)
    return attached.problems


def prompt_texts(document: Document) -> dict[str, str]:
    """The texts that were put in from files, by the names of the prompts."""
    found = nodes(document.data.get("body"))
    return {node["file"]: node["text"] for node in found if node.get("file") in document.prompts}


def nodes(node: object) -> Iterator[Map]:
    """A node, or a state, and all below it."""
    if not isinstance(node, Map):
        return
    yield node
    below = [node.get(key) for key in ONE]
    below += [item for key in MANY if isinstance(items := node.get(key), list) for item in items]
    below += cases.values() if isinstance(cases := node.get("cases"), Map) else ()
    for each in below:
        yield from nodes(each)


class Attaching:
    """One document while its prompts are looked up; each file is read once."""

    def __init__(self, document: Document, folder: Path, project: Path, kept: Mapping[str, str]) -> None:
        self.document, self.folder, self.project, self.kept = document, folder, project, kept
        self.problems: list[Problem] = []
        self.files: dict[str, FoundPrompt | None] = {}
        inputs = document.data.get("inputs")
        self.inputs = list(inputs) if isinstance(inputs, dict) else []
        self.ids = {id for node in nodes(document.data.get("body")) if isinstance(id := node.get("id"), str)}

    def attach(self, node: Map) -> None:
        name = node["file"]
        place = node.values_at.get("file") or node.place or Place()
        if name not in self.files:
            self.files[name] = self.find(name, place)
        if (found := self.files[name]) is not None:
            node.put("text", found.text, place)
            self.document.prompts[name] = str(found.path)

    def find(self, name: str, place: Place) -> FoundPrompt | None:
        """The prompt, or None and a problem."""
        try:
            found = self.found(name)
        except Refused as error:
            self.tell(place, f"Step prompt not found: {name[:200]}.md: {error}")
        except OSError as error:
            why = unopened(Path(error.filename or name), error).message
            self.tell(place, f"the prompt {name}.md cannot be used: {why}")
        except Unreadable as error:
            self.problems.extend(error.problems)
        else:
            if found is None:
                self.tell(place, *self.nowhere(name))
            elif self.sound(found):
                return found
        return None

    def found(self, name: str) -> FoundPrompt | None:
        if (text := self.kept.get(name)) is not None:
            return FoundPrompt(name, Path(f"{name}.md"), text)
        return find_prompt(self.folder, name, self.project)

    def nowhere(self, name: str) -> tuple[str, str]:
        """What is said of a prompt that there is not, and the fix."""
        message = f"Step prompt not found: {name}.md"
        if name.endswith(".md"):
            return message, f"Leave '.md' out: {name.removesuffix('.md')}."
        close = suggest(name, prompt_names(self.folder, self.project))
        return message + close, f"Create {self.folder / 'steps' / name}.md."

    def tell(self, place: Place, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.document.file, place, message, fix))

    def sound(self, found: FoundPrompt) -> bool:
        """Whether a prompt can be filled in; what is wrong is told with the place in its own file."""
        wrong = list(problems_of(found, self.inputs, self.ids))
        self.problems.extend(wrong)
        return not any(problem.severity == "error" for problem in wrong)


def problems_of(found: FoundPrompt, inputs: Iterable[str], ids: Iterable[str]) -> Iterator[Problem]:
    file = str(found.path)
    if not found.text.strip():
        yield Problem(file, Place(), "the prompt is empty", "Write what the agent should do.")
    try:
        compile_prompt(found.text, SEEN_BY_PROMPTS, inputs=inputs, hyphens=[id for id in ids if "-" in id])
    except ExprError as error:
        undeclared = error.message.startswith("there is no input")
        fix = "Declare it under inputs." if undeclared else f"{fix_of(error, SEEN_BY_PROMPTS)} {AS_THEY_ARE}"
        fix = "" if "\\{{" in error.message else fix.strip()
        yield Problem(file, Place(error.line, error.column), error.message, fix)
    for offset, name, meant in misspelt(found.text):
        place = Place().after(found.text, offset)
        yield Problem(file, place, f"${name} stays as it is", f"Did you mean ${meant}?", "warning")
