"""The table of keys: bindings, the footer, the sheet of keys and the user's keymap are read from it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from textual.binding import Binding, BindingType

from nerve.core.suggest import did_you_mean_hint

KeyScope = Literal["app", "prompt", "stream", "runs"]
SCOPE_TITLES: dict[KeyScope, str] = {
    "app": "Everywhere",
    "prompt": "Prompt",
    "runs": "Runs",
    "stream": "Conversation",
}
KEYMAP_FILE = "keymap.toml"
PROJECT_FOLDER = ".nerve"
RESERVED_ACTIONS = ("app.cancel", "app.interrupt", "app.leave")
"""How one stops and leaves is for the user to say, and for no project, which may come from anywhere."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Something that a key does."""

    id: str
    keys: str
    action: str
    description: str
    """What it does, in a few words."""
    footer: str = ""
    """One word for the footer; nothing if it is not there."""

    @property
    def scope(self) -> str:
        return self.id.partition(".")[0]


KEYS: tuple[KeyEntry, ...] = (
    KeyEntry("app.help", "f1", "keys", "show these keys"),
    KeyEntry("app.runs", "f2", "runs", "go to the runs", "runs"),
    KeyEntry("app.gates", "f3", "gates", "open the next gate that waits", "gates"),
    KeyEntry("app.blocks", "f4", "blocks", "go to the conversation"),
    KeyEntry("app.palette", "ctrl+p", "command_palette", "find a command"),
    KeyEntry("app.search", "ctrl+r", "search", "search what was typed before"),
    KeyEntry("app.editor", "ctrl+g", "editor", "write the prompt in your editor"),
    KeyEntry("app.details", "ctrl+o", "details", "show everything, or fold it again", "details"),
    KeyEntry("app.mode", "shift+tab", "mode", "let gates of the watched run take the prompt, or not"),
    KeyEntry("app.up", "pageup,shift+pageup", "page(-1)", "scroll up"),
    KeyEntry("app.down", "pagedown,shift+pagedown", "page(1)", "scroll down"),
    KeyEntry("app.end", "ctrl+end", "to_end", "scroll to the end"),
    KeyEntry("app.next", "alt+down", "next_run(1)", "look at the next run"),
    KeyEntry("app.previous", "alt+up", "next_run(-1)", "look at the run before"),
    KeyEntry(
        "app.cancel",
        "escape",
        "cancel",
        "close, go back, leave a gate; twice: clear the text; without text: ask whether to stop the run",
    ),
    KeyEntry(
        "app.interrupt",
        "ctrl+c",
        "interrupt",
        "copy what is selected, clear the prompt; twice: leave",
    ),
    KeyEntry("app.leave", "ctrl+d", "leave", "leave, when the prompt is empty; runs go on"),
    KeyEntry("prompt.enter", "enter", "enter", "send"),
    KeyEntry("prompt.newline", "ctrl+j,alt+enter,shift+enter", "newline", "new line"),
    KeyEntry("prompt.complete", "tab", "complete", "complete the word"),
    KeyEntry("prompt.up", "up", "up", "earlier input; the answer above, while a gate is open"),
    KeyEntry("prompt.down", "down", "down", "later input; the answer below, while a gate is open"),
    KeyEntry("runs.up", "up,k", "move(-1)", "the run above"),
    KeyEntry("runs.down", "down,j", "move(1)", "the run below"),
    KeyEntry("runs.look", "enter", "look", "look at the run", "look"),
    KeyEntry("runs.pause", "p", "do('pause')", "let nothing new begin in it", "pause"),
    KeyEntry("runs.resume", "r", "do('resume')", "go on with it", "resume"),
    KeyEntry("runs.stop", "s", "stop", "end it; asks first", "stop"),
    KeyEntry("runs.logs", "l", "do('logs')", "show what it has said", "logs"),
    KeyEntry("runs.retry", "t", "do('retry')", "try it again from where it failed"),
    KeyEntry("stream.up", "up,k", "move(-1)", "the block above"),
    KeyEntry("stream.down", "down,j", "move(1)", "the block below"),
    KeyEntry("stream.first", "home,g", "first", "the first block"),
    KeyEntry("stream.last", "end,G", "last", "the last block"),
    KeyEntry("stream.unfold", "enter,o", "unfold", "open the block, or fold it", "open"),
    KeyEntry("stream.refer", "r", "refer", "refer to it in the prompt", "refer"),
    KeyEntry("stream.copy", "c,y", "copy", "copy it", "copy"),
)


def textual_bindings(scope: KeyScope) -> list[BindingType]:
    return [
        Binding(key.keys, key.action, key.description, show=False, id=key.id)
        for key in KEYS
        if key.scope == scope
    ]


KEY_NAMES = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "enter": "Enter",
    "tab": "Tab",
    "question_mark": "?",
}


def format_keys(keys: str, max_keys: int = 1) -> str:
    """Keys as people write them."""
    return " ".join(map(format_key, keys.split(",")[:max_keys]))


def format_key(key: str) -> str:
    if key in KEY_NAMES:
        return KEY_NAMES[key]
    if len(key) == 1:
        return key
    return "-".join(KEY_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def key_for_action(id: str, keymap: Mapping[str, str]) -> str:
    """The key that does something now."""
    return format_keys(keymap.get(id) or next(key.keys for key in KEYS if key.id == id))


# -- the user's keymap -----------------------------------------------------------------------------------


def keymap_paths(project: str) -> list[Path]:
    """Where a keymap may be: for all projects, and for this one, which wins."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [home / "nerve" / KEYMAP_FILE, Path(project or ".") / PROJECT_FOLDER / KEYMAP_FILE]


def read_keymap(files: Iterable[Path]) -> tuple[dict[str, str], list[str]]:
    """The user's keys by the names of what they do, and a sentence for each that is not understood."""
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        try:
            table = tomllib.loads(file.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{file} cannot be read: {error}. Its keys are not used.")
            continue
        for id, keys in flatten_keymap(table.get("keys", table)):
            if problem := keymap_problem(id, keys) or (
                file.parent.name == PROJECT_FOLDER and reserved_key_problem(id, keys)
            ):
                problems.append(f"{file}: {problem}")
            else:
                keymap[id] = keys if isinstance(keys, str) else ",".join(keys)
    return keymap, problems


def flatten_keymap(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """`[app] help = "f1"` and `"app.help" = "f1"` are the same."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten_keymap(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def keymap_problem(id: str, keys: Any) -> str:
    known = [key.id for key in KEYS]
    if id not in known:
        return f"nothing is called '{id}'{did_you_mean_hint(id, known) or '. F1 shows what there is.'}"
    several = isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys)
    if not (several or (isinstance(keys, str) and keys)):
        return f"'{id}' needs a key as text, such as \"f5\", or a list of them"
    return ""


def reserved_key_problem(id: str, keys: str | list[str]) -> str:
    """Why a project may not say what a key does."""
    reserved_keys = {
        key_name for key in KEYS if key.id in RESERVED_ACTIONS for key_name in key.keys.split(",")
    }
    requested_keys = keys.split(",") if isinstance(keys, str) else ",".join(keys).split(",")
    if id in RESERVED_ACTIONS or reserved_keys.intersection(key_name.strip() for key_name in requested_keys):
        return f"'{id}' is as it was: how to stop and leave is not for a project to say. Use your own keymap."
    return ""
