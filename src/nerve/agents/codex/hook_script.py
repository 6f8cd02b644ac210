"""The hook that Codex runs before every tool call: sends the call to the engine and prints its response.

A stand-alone script without imports of the package, because it starts for each call. If the engine does not
respond, the call is blocked.
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
        sys.stderr.write("the engine did not respond to the permission request\n")
        return 2
    sys.stdout.buffer.write(b"" if answer == b"{}" else answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
