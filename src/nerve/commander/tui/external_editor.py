"""Editing the prompt in the editor of the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported


class EditorFailed(Exception):
    """The editor could not be used; the message says why."""


async def edit_in_external_editor(app: App[Any], text: str) -> str:
    """Suspend the app, let the user edit the text in an editor, and return the result."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.NamedTemporaryFile("w", prefix="nerve-", suffix=".md", delete=False) as file:
        file.write(text)
    path = Path(file.name)
    try:
        with app.suspend():
            process = await asyncio.create_subprocess_exec(*editor, path)
            await process.wait()
        return (await asyncio.to_thread(path.read_text, errors="replace")).rstrip("\n")
    except SuspendNotSupported:
        raise EditorFailed("This terminal does not support suspending the app for an editor.") from None
    except OSError as error:
        message = f"Cannot start editor '{editor[0]}': {error.strerror}. Set EDITOR to another one."
        raise EditorFailed(message) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
