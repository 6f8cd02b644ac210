"""Inside a server: what the interpreter sees happen that is more than looking, a line each in a file."""

import os
import sys
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DOES = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.connect", "ctypes.")
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "shutil.", "os.chmod")


def watch_into(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith((*DOES, *CHANGES)) or (event == "open" and (arguments[2] or 0) & WRITES):
            os.write(file, f"{event} {str(arguments)[:200]}\n".encode(errors="replace"))

    sys.addaudithook(seen)
