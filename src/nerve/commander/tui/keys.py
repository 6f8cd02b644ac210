"""The table of keys: bindings, the footer, the sheet of keys and the user's keymap are read from it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from textual.binding import Binding, BindingType

from nerve.core.suggest import suggest

Scope = Literal["app", "prompt", "stream", "runs"]
SCOPES: dict[Scope, str] = {
    "app": "Everywhere",
    "prompt": "Prompt",
    "runs": "Runs",
    "stream": "Conversation",
}
KEYMAP = "keymap.toml"
FOLDER = ".nerve"
KEPT = ("app.cancel", "app.interrupt", "app.leave")
"""How one stops and leaves is for the user to say, and for no project, which may come from anywhere."""


@dataclass(frozen=True, slots=True)
class Key:
    """Something that a key does."""

    id: str
    keys: str
    action: str
    about: str
    """What it does, in a few words."""
    footer: str = ""
    """One word for the footer; nothing if it is not there."""

    @property
    def scope(self) -> str:
        return self.id.partition(".")[0]


KEYS: tuple[Key, ...] = (
    Key("app.help", "f1", "keys", "show these keys"),
    Key("app.runs", "f2", "runs", "go to the runs", "runs"),
    Key("app.gates", "f3", "gates", "open the next gate that waits", "gates"),
    Key("app.blocks", "f4", "blocks", "go to the conversation"),
    Key("app.palette", "ctrl+p", "command_palette", "find a command"),
    Key("app.search", "ctrl+r", "search", "search what was typed before"),
    Key("app.editor", "ctrl+g", "editor", "write the prompt in your editor"),
    Key("app.details", "ctrl+o", "details", "show everything, or fold it again", "details"),
    Key("app.mode", "shift+tab", "mode", "let gates of the watched run take the prompt, or not"),
    Key("app.up", "pageup,shift+pageup", "page(-1)", "scroll up"),
    Key("app.down", "pagedown,shift+pagedown", "page(1)", "scroll down"),
    Key("app.end", "ctrl+end", "to_end", "scroll to the end"),
    Key("app.next", "alt+down", "next_run(1)", "look at the next run"),
    Key("app.previous", "alt+up", "next_run(-1)", "look at the run before"),
    Key(
        "app.cancel",
        "escape",
        "cancel",
        "close, go back, leave a gate; twice: clear the text; without text: ask whether to stop the run",
    ),
    Key(
        "app.interrupt",
        "ctrl+c",
        "interrupt",
        "copy what is selected, clear the prompt; twice: leave",
    ),
    Key("app.leave", "ctrl+d", "leave", "leave, when the prompt is empty; runs go on"),
    Key("prompt.enter", "enter", "enter", "send"),
    Key("prompt.newline", "ctrl+j,alt+enter,shift+enter", "newline", "new line"),
    Key("prompt.complete", "tab", "complete", "complete the word"),
    Key("prompt.up", "up", "up", "earlier input; the answer above, while a gate is open"),
    Key("prompt.down", "down", "down", "later input; the answer below, while a gate is open"),
    Key("runs.up", "up,k", "move(-1)", "the run above"),
    Key("runs.down", "down,j", "move(1)", "the run below"),
    Key("runs.look", "enter", "look", "look at the run", "look"),
    Key("runs.pause", "p", "do('pause')", "let nothing new begin in it", "pause"),
    Key("runs.resume", "r", "do('resume')", "go on with it", "resume"),
    Key("runs.stop", "s", "stop", "end it; asks first", "stop"),
    Key("runs.logs", "l", "do('logs')", "show what it has said", "logs"),
    Key("runs.retry", "t", "do('retry')", "try it again from where it failed"),
    Key("stream.up", "up,k", "move(-1)", "the block above"),
    Key("stream.down", "down,j", "move(1)", "the block below"),
    Key("stream.first", "home,g", "first", "the first block"),
    Key("stream.last", "end,G", "last", "the last block"),
    Key("stream.unfold", "enter,o", "unfold", "open the block, or fold it", "open"),
    Key("stream.refer", "r", "refer", "refer to it in the prompt", "refer"),
    Key("stream.copy", "c,y", "copy", "copy it", "copy"),
)


def bindings(scope: Scope) -> list[BindingType]:
    return [
        Binding(key.keys, key.action, key.about, show=False, id=key.id) for key in KEYS if key.scope == scope
    ]


NAMES = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "enter": "Enter",
    "tab": "Tab",
    "question_mark": "?",
}


def shown(keys: str, most: int = 1) -> str:
    """Keys as people write them."""
    return " ".join(map(one, keys.split(",")[:most]))


def one(key: str) -> str:
    if key in NAMES:
        return NAMES[key]
    if len(key) == 1:
        return key
    return "-".join(NAMES.get(part, part.capitalize()) for part in key.split("+"))


def key_of(id: str, keymap: Mapping[str, str]) -> str:
    """The key that does something now."""
    return shown(keymap.get(id) or next(key.keys for key in KEYS if key.id == id))


# -- the user's keymap -----------------------------------------------------------------------------------


def places(project: str) -> list[Path]:
    """Where a keymap may be: for all projects, and for this one, which wins."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [home / "nerve" / KEYMAP, Path(project or ".") / FOLDER / KEYMAP]


def read_keymap(files: Iterable[Path]) -> tuple[dict[str, str], list[str]]:
    """The user's keys by the names of what they do, and a sentence for each that is not understood."""
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        try:
            given = tomllib.loads(file.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems.append(f"{file} cannot be read: {error}. Its keys are not used.")
            continue
        for id, keys in flat(given.get("keys", given)):
            if problem := wrong(id, keys) or (file.parent.name == FOLDER and kept(id, keys)):
                problems.append(f"{file}: {problem}")
            else:
                keymap[id] = keys if isinstance(keys, str) else ",".join(keys)
    return keymap, problems


def flat(given: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """`[app] help = "f1"` and `"app.help" = "f1"` are the same."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def wrong(id: str, keys: Any) -> str:
    known = [key.id for key in KEYS]
    if id not in known:
        return f"nothing is called '{id}'{suggest(id, known) or '. F1 shows what there is.'}"
    several = isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys)
    if not (several or (isinstance(keys, str) and keys)):
        return f"'{id}' needs a key as text, such as \"f5\", or a list of them"
    return ""


def kept(id: str, keys: str | list[str]) -> str:
    """Why a project may not say what a key does."""
    own = {each for key in KEYS if key.id in KEPT for each in key.keys.split(",")}
    given = keys.split(",") if isinstance(keys, str) else ",".join(keys).split(",")
    if id in KEPT or own.intersection(each.strip() for each in given):
        return f"'{id}' is as it was: how to stop and leave is not for a project to say. Use your own keymap."
    return ""
