"""A command that answers one prompt: reads it from stdin, queries a Chat Completions API, and prints.

python command_agent.py BASE_URL
"""

from __future__ import annotations

import http.client
import json
import sys
from urllib.parse import urlparse


def main(url: str) -> int:
    prompt = sys.stdin.buffer.read().decode()
    where = urlparse(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True}
    connection.request("POST", f"{where.path}/chat/completions", json.dumps(body).encode())
    response = connection.getresponse()
    if response.status != 200:
        sys.stderr.write(f"the API said {response.status}: {response.read().decode()}\n")
        return 1
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if data and data != "[DONE]":
            for choice in json.loads(data)["choices"]:
                sys.stdout.write(choice["delta"].get("content") or "")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
