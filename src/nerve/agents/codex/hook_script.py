"""The hook that Codex runs before every call of a tool: hands the call to the engine, and prints its answer.

A script of its own, which imports nothing of the package: it starts once for each call. If the engine cannot
be asked, the call is blocked.
"""

import socket
import sys


def main() -> int:
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(sys.argv[1])
            engine.sendall(sys.stdin.buffer.read())
            engine.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: engine.recv(65536), b""))
    except OSError as error:
        answer = str(error).encode()
    if not answer.startswith(b"{"):
        sys.stderr.write("nobody could be asked whether this is allowed\n")
        return 2
    sys.stdout.buffer.write(b"" if answer == b"{}" else answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
