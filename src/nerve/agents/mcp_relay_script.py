"""An MCP server for a program that starts one: copies messages between its pipes and a socket of the engine.

A stand-alone script without imports of the package, because it starts for each turn.
"""

import os
import socket
import sys
import threading


def send_all(engine: socket.socket) -> None:
    """Copy standard input to the engine until it ends."""
    while data := os.read(sys.stdin.fileno(), 65536):
        engine.sendall(data)
    engine.shutdown(socket.SHUT_WR)


def main() -> int:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(sys.argv[1])
        threading.Thread(target=send_all, args=[engine], daemon=True).start()
        while data := engine.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
