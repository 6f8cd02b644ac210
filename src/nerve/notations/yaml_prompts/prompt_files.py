"""Prompts from files: their texts put into a document, and what is wrong inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nerve.core.suggest import did_you_mean_hint
from nerve.expr import ExprError
from nerve.project.discovery import PromptFile, explain_open_error, find_prompt, project_of_file, prompt_names
from nerve.project.safe_files import FileRefused
from nerve.spec.checks.expressions import suggest_expression_fix
from nerve.spec.prompt_variables import compile_prompt, find_misspelt_variables
from nerve.spec.scope import EXPRESSION_NAMES
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem

PROMPT_SCOPE_NAMES = EXPRESSION_NAMES - {"output"}
LITERAL_BRACES_FIX = "Write \\{{ for braces that are meant as they are."
CHILD_KEYS = ("body", "then", "otherwise", "default", "on_error", "on_timeout")
"""The keys under which a node has another."""
CHILD_LIST_KEYS = ("steps", "branches", "states")
"""The keys under which it has a list of them."""


def attach_prompts(
    document: Document,
    folder: Path | None = None,
    project: Path | None = None,
    stored_texts: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Put the text of its file into every prompt that has only a file's name; says what is wrong with them.

    Without a folder it is the one that the document's own file belongs to. What is `kept` by the name of
    a prompt counts more than its file.
    """
    if folder is None:
        folder, project = project_of_file(Path(document.file))
    elif project is None:
        project = project_of_file(folder / "workflows" / "_")[1]
    assert project is not None
    loader = PromptLoader(document, folder, project, stored_texts or {})
    for node in iter_nodes(document.data.get("body")):
        if node.get("kind") == "prompt" and "text" not in node and isinstance(node.get("file"), str):
            loader.attach(node)
    return loader.problems


def prompt_texts(document: Document) -> dict[str, str]:
    """The texts that were put in from files, by the names of the prompts."""
    prompt_nodes = iter_nodes(document.data.get("body"))
    return {node["file"]: node["text"] for node in prompt_nodes if node.get("file") in document.prompts}


def iter_nodes(node: object) -> Iterator[LocatedMap]:
    """A node, or a state, and all below it."""
    if not isinstance(node, LocatedMap):
        return
    yield node
    below = [node.get(key) for key in CHILD_KEYS]
    below += [item for key in CHILD_LIST_KEYS if isinstance(items := node.get(key), list) for item in items]
    below += cases.values() if isinstance(cases := node.get("cases"), LocatedMap) else ()
    for child in below:
        yield from iter_nodes(child)


class PromptLoader:
    """One document while its prompts are looked up; each file is read once."""

    def __init__(
        self, document: Document, folder: Path, project: Path, stored_texts: Mapping[str, str]
    ) -> None:
        self.document, self.folder, self.project, self.stored_texts = document, folder, project, stored_texts
        self.problems: list[Problem] = []
        self.prompts_by_name: dict[str, PromptFile | None] = {}
        inputs = document.data.get("inputs")
        self.inputs = list(inputs) if isinstance(inputs, dict) else []
        self.ids = {
            id for node in iter_nodes(document.data.get("body")) if isinstance(id := node.get("id"), str)
        }

    def attach(self, node: LocatedMap) -> None:
        name = node["file"]
        position = node.value_positions.get("file") or node.position or Position()
        if name not in self.prompts_by_name:
            self.prompts_by_name[name] = self.find(name, position)
        if (prompt := self.prompts_by_name[name]) is not None:
            node.set_at("text", prompt.text, position)
            self.document.prompts[name] = str(prompt.path)

    def find(self, name: str, position: Position) -> PromptFile | None:
        """The prompt, or None and a problem."""
        try:
            prompt = self.load(name)
        except FileRefused as error:
            self.add_problem(position, f"Step prompt not found: {name[:200]}.md: {error}")
        except OSError as error:
            why = explain_open_error(Path(error.filename or name), error).message
            self.add_problem(position, f"the prompt {name}.md cannot be used: {why}")
        except InvalidDefinition as error:
            self.problems.extend(error.problems)
        else:
            if prompt is None:
                self.add_problem(position, *self.not_found_problem(name))
            elif self.is_valid(prompt):
                return prompt
        return None

    def load(self, name: str) -> PromptFile | None:
        if (text := self.stored_texts.get(name)) is not None:
            return PromptFile(name, Path(f"{name}.md"), text)
        return find_prompt(self.folder, name, self.project)

    def not_found_problem(self, name: str) -> tuple[str, str]:
        """What is said of a prompt that there is not, and the fix."""
        message = f"Step prompt not found: {name}.md"
        if name.endswith(".md"):
            return message, f"Leave '.md' out: {name.removesuffix('.md')}."
        close = did_you_mean_hint(name, prompt_names(self.folder, self.project))
        return message + close, f"Create {self.folder / 'steps' / name}.md."

    def add_problem(self, position: Position, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.document.file, position, message, fix))

    def is_valid(self, prompt: PromptFile) -> bool:
        """Whether a prompt can be filled in; what is wrong is told with the place in its own file."""
        wrong = list(prompt_problems(prompt, self.inputs, self.ids))
        self.problems.extend(wrong)
        return not any(problem.severity == "error" for problem in wrong)


def prompt_problems(prompt: PromptFile, inputs: Iterable[str], ids: Iterable[str]) -> Iterator[Problem]:
    file = str(prompt.path)
    if not prompt.text.strip():
        yield Problem(file, Position(), "the prompt is empty", "Write what the agent should do.")
    try:
        compile_prompt(
            prompt.text, PROMPT_SCOPE_NAMES, inputs=inputs, hyphens=[id for id in ids if "-" in id]
        )
    except ExprError as error:
        undeclared = error.message.startswith("Unknown input")
        fix = (
            "Declare it under inputs."
            if undeclared
            else f"{suggest_expression_fix(error, PROMPT_SCOPE_NAMES)} {LITERAL_BRACES_FIX}"
        )
        fix = "" if "\\{{" in error.message else fix.strip()
        yield Problem(file, Position(error.line, error.column), error.message, fix)
    for offset, name, suggestion in find_misspelt_variables(prompt.text):
        position = Position().at_offset(prompt.text, offset)
        yield Problem(file, position, f"${name} stays as it is", f"Did you mean ${suggestion}?", "warning")
