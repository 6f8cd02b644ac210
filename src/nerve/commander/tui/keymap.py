"""The key table: source of the bindings, the footer, the key help and the user's keymap."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from textual.binding import Binding, BindingType

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

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
"""Actions that a project keymap may not change, because a project may be untrusted."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """An action and its default keys."""

    id: str
    keys: str
    action: str
    description: str
    """A short description of the action."""
    footer: str = ""
    """One word for the footer; empty if the footer omits the key."""

    @property
    def scope(self) -> str:
        return self.id.partition(".")[0]


KEYS: tuple[KeyEntry, ...] = (
    KeyEntry("app.help", "f1", "keys", "show these keys"),
    KeyEntry("app.runs", "f2", "runs", "go to the runs", "runs"),
    KeyEntry("app.gates", "f3", "gates", "open the next gate", "gates"),
    KeyEntry("app.blocks", "f4", "blocks", "go to the conversation"),
    KeyEntry("app.palette", "ctrl+p", "command_palette", "find a command"),
    KeyEntry("app.search", "ctrl+r", "search", "search the history"),
    KeyEntry("app.editor", "ctrl+g", "editor", "edit the prompt in your editor"),
    KeyEntry("app.details", "ctrl+o", "details", "show or fold details", "details"),
    KeyEntry("app.mode", "shift+tab", "mode", "turn automatic opening of gates on or off"),
    KeyEntry("app.up", "pageup,shift+pageup", "page(-1)", "scroll up"),
    KeyEntry("app.down", "pagedown,shift+pagedown", "page(1)", "scroll down"),
    KeyEntry("app.end", "ctrl+end", "to_end", "scroll to the end"),
    KeyEntry("app.next", "alt+down", "next_run(1)", "focus the next run"),
    KeyEntry("app.previous", "alt+up", "next_run(-1)", "focus the previous run"),
    KeyEntry(
        "app.cancel",
        "escape",
        "cancel",
        "close, go back, leave a gate; twice: clear the text; without text: offer to stop the run",
    ),
    KeyEntry(
        "app.interrupt",
        "ctrl+c",
        "interrupt",
        "copy the selection, clear the prompt; twice: quit",
    ),
    KeyEntry("app.leave", "ctrl+d", "leave", "quit, when the prompt is empty; runs continue"),
    KeyEntry("prompt.enter", "enter", "enter", "send"),
    KeyEntry("prompt.newline", "ctrl+j,alt+enter,shift+enter", "newline", "new line"),
    KeyEntry("prompt.complete", "tab", "complete", "complete the word"),
    KeyEntry("prompt.up", "up", "up", "earlier input; the answer above, while a gate is open"),
    KeyEntry("prompt.down", "down", "down", "later input; the answer below, while a gate is open"),
    KeyEntry("runs.up", "up,k", "move(-1)", "the run above"),
    KeyEntry("runs.down", "down,j", "move(1)", "the run below"),
    KeyEntry("runs.look", "enter", "look", "focus the run", "look"),
    KeyEntry("runs.pause", "p", "do('pause')", "pause the run", "pause"),
    KeyEntry("runs.resume", "r", "do('resume')", "resume the run", "resume"),
    KeyEntry("runs.stop", "s", "stop", "stop the run, after confirmation", "stop"),
    KeyEntry("runs.logs", "l", "do('logs')", "show the log of the run", "logs"),
    KeyEntry("runs.retry", "t", "do('retry')", "retry the run from its failure"),
    KeyEntry("stream.up", "up,k", "move(-1)", "the block above"),
    KeyEntry("stream.down", "down,j", "move(1)", "the block below"),
    KeyEntry("stream.first", "home,g", "first", "the first block"),
    KeyEntry("stream.last", "end,G", "last", "the last block"),
    KeyEntry("stream.unfold", "enter,o", "unfold", "unfold or fold the block", "open"),
    KeyEntry("stream.refer", "r", "refer", "insert a reference into the prompt", "refer"),
    KeyEntry("stream.copy", "c,y", "copy", "copy the block", "copy"),
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
    """Format keys for display."""
    return " ".join(map(format_key, keys.split(",")[:max_keys]))


def format_key(key: str) -> str:
    if key in KEY_NAMES:
        return KEY_NAMES[key]
    if len(key) == 1:
        return key
    return "-".join(KEY_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def key_for_action(id: str, keymap: Mapping[str, str]) -> str:
    """Return the current key of an action."""
    return format_keys(keymap.get(id) or next(key.keys for key in KEYS if key.id == id))


# -- the user's keymap -----------------------------------------------------------------------------------


def keymap_paths(project: str) -> list[Path]:
    """Return the keymap files: the user's, then the project's, which takes precedence."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [home / "nerve" / KEYMAP_FILE, Path(project or ".") / PROJECT_FOLDER / KEYMAP_FILE]


def read_keymap(files: Iterable[Path]) -> tuple[dict[str, str], list[str]]:
    """Return the keys by action id, and an error message for each invalid entry."""
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        try:
            table = tomllib.loads(file.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{file}: cannot be read: {error}. The file is ignored.")
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
    """Flatten nested tables: `[app] help = "f1"` equals `"app.help" = "f1"`."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten_keymap(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def keymap_problem(id: str, keys: Any) -> str:
    known = [key.id for key in KEYS]
    if id not in known:
        return f"unknown action '{id}'{did_you_mean_hint(id, known) or '. F1 lists the keys.'}"
    is_key_list = isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys)
    if not (is_key_list or (isinstance(keys, str) and keys)):
        return f"'{id}' must be a string such as \"f5\", or a list of strings"
    return ""


def reserved_key_problem(id: str, keys: str | list[str]) -> str:
    """Return the error for a project keymap that changes a reserved action or key."""
    reserved_keys = {
        key_name for key in KEYS if key.id in RESERVED_ACTIONS for key_name in key.keys.split(",")
    }
    requested_keys = keys.split(",") if isinstance(keys, str) else ",".join(keys).split(",")
    if id in RESERVED_ACTIONS or reserved_keys.intersection(key_name.strip() for key_name in requested_keys):
        return f"'{id}' is ignored: a project may not change the keys to stop and quit. Use your own keymap."
    return ""
