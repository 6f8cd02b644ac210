"""Load prompt files into a document and check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from nerve.core.suggest import did_you_mean_hint
from nerve.expr import ExprError
from nerve.notations.yaml_prompts.command_files import (
    apply_front_matter,
    escape_braces,
    is_claude_file,
    read_sources_of_prompt,
)
from nerve.project.discovery import PromptFile, explain_open_error, find_prompt, project_of_file, prompt_names
from nerve.project.safe_files import FileRefused
from nerve.spec.checks.expressions import suggest_expression_fix
from nerve.spec.prompt_variables import compile_prompt, find_misspelt_variables
from nerve.spec.scope import EXPRESSION_NAMES
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem

PROMPT_SCOPE_NAMES = EXPRESSION_NAMES - {"output"}
LITERAL_BRACES_FIX = "Write \\{{ for literal braces."
CHILD_KEYS = ("body", "then", "otherwise", "default", "on_error", "on_timeout")
"""Keys of a node that contain another node."""
CHILD_LIST_KEYS = ("steps", "branches", "states")
"""Keys of a node that contain a list of nodes."""


def attach_prompts(
    document: Document,
    folder: Path | None = None,
    project: Path | None = None,
    stored_texts: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Inline the text of every prompt file that the document names; return the problems.

    `folder` defaults to the project folder of the document's file. A text in `stored_texts`, by the name of
    the prompt, takes precedence over the file.
    """
    if folder is None:
        folder, project = project_of_file(Path(document.file))
    elif project is None:
        project = project_of_file(folder / "workflows" / "_")[1]
    assert project is not None
    prepared = document.dialect.prepare(document, project) if document.dialect is not None else []
    loader = PromptLoader(document, folder, project, stored_texts or {})
    loader.problems += prepared
    for node in [*iter_nodes(document.data.get("body"))]:
        if node.get("kind") == "prompt" and "text" not in node and isinstance(node.get("file"), str):
            name = node["file"]
            position = node.value_positions.get("file") or node.position or Position()
            if name not in loader.prompts_by_name:
                loader.prompts_by_name[name] = loader.find(name, position)
            if (prompt := loader.prompts_by_name[name]) is not None:
                node.set_at("text", loader.translate(node, prompt), position)
                loader.document.prompts[name] = str(prompt.path)
                loader.document.prompt_sources[name] = prompt.source
                if document.dialect is None:
                    loader.problems += apply_front_matter(node, prompt, position)
                read_sources_of_prompt(node, prompt, position)
    if document.dialect is not None:
        document.dialect.complete(document)
    return loader.problems


def prompt_texts(document: Document) -> dict[str, str]:
    """Return the texts that were loaded from files, by prompt name."""
    return dict(document.prompt_sources)


def iter_nodes(node: object) -> Iterator[LocatedMap]:
    """Yield a node or state and all its descendants."""
    if not isinstance(node, LocatedMap):
        return
    yield node
    children = [node.get(key) for key in CHILD_KEYS]
    children += [
        item for key in CHILD_LIST_KEYS if isinstance(items := node.get(key), list) for item in items
    ]
    children += cases.values() if isinstance(cases := node.get("cases"), LocatedMap) else ()
    for child in children:
        yield from iter_nodes(child)


class PromptLoader:
    """Loads the prompts of one document; each file is read once."""

    def __init__(
        self, document: Document, folder: Path, project: Path, stored_texts: Mapping[str, str]
    ) -> None:
        self.document, self.folder, self.project, self.stored_texts = document, folder, project, stored_texts
        self.configured = () if document.dialect is None else document.dialect.prompt_folders
        self.problems: list[Problem] = []
        self.prompts_by_name: dict[str, PromptFile | None] = {}
        inputs = document.data.get("inputs")
        self.inputs = list(inputs) if isinstance(inputs, dict) else []
        self.ids = {
            id for node in iter_nodes(document.data.get("body")) if isinstance(id := node.get("id"), str)
        }

    def find(self, name: str, position: Position) -> PromptFile | None:
        """Return the prompt, or None after adding a problem."""
        try:
            stored = self.stored_texts.get(name)
            prompt = (
                find_prompt(self.folder, name, self.project, self.configured)
                if stored is None
                else PromptFile.of(name, Path(f"{name}.md"), stored)
            )
        except FileRefused as error:
            self.add_problem(position, f"Step prompt not found: {name[:200]}.md: {error}")
        except OSError as error:
            reason = explain_open_error(Path(error.filename or name), error).message
            self.add_problem(position, f"Cannot use the prompt {name}.md: {reason}")
        except InvalidDefinition as error:
            self.problems.extend(error.problems)
        else:
            if prompt is None:
                self.add_problem(position, *self.not_found_problem(name))
                return None
            if self.document.dialect is not None:
                return prompt
            if is_claude_file(prompt):
                prompt = replace(prompt, text=escape_braces(prompt.text))
            problems = list(prompt_problems(prompt, self.inputs, self.ids))
            self.problems.extend(problems)
            if not any(problem.severity == "error" for problem in problems):
                return prompt
        return None

    def translate(self, node: LocatedMap, prompt: PromptFile) -> str:
        """Return the text of a prompt for a node; a document of another tool translates it for each node."""
        if self.document.dialect is None:
            return prompt.text
        text, problems = self.document.dialect.translate_prompt(node, prompt.text, str(prompt.path))
        translated = PromptFile(prompt.name, prompt.path, text)
        problems += prompt_problems(translated, self.inputs, self.ids)
        self.problems.extend(problems)
        return text

    def not_found_problem(self, name: str) -> tuple[str, str]:
        """Return the message about a missing prompt, and the fix."""
        message = f"Step prompt not found: {name}.md"
        if name.endswith(".md"):
            return message, f"Omit '.md': {name.removesuffix('.md')}."
        close = did_you_mean_hint(name, prompt_names(self.folder, self.project, self.configured))
        kind = "steps" if self.document.dialect is None else "commands"
        return message + close, f"Create {self.folder / kind / name}.md."

    def add_problem(self, position: Position, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.document.file, position, message, fix))


def prompt_problems(prompt: PromptFile, inputs: Iterable[str], ids: Iterable[str]) -> Iterator[Problem]:
    """Yield the problems of a prompt as a template, with positions in the prompt file."""
    file = str(prompt.path)
    if not prompt.text.strip():
        yield Problem(file, Position(), "The prompt is empty", "Write what the agent should do.")
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
        yield Problem(
            file,
            position,
            f"${name} is not a variable and stays unchanged",
            f"Did you mean ${suggestion}?",
            "warning",
        )
