"""idle.py ADDRESS TOKEN RUN STREAMS SOCKETS: follow a run so many times, say so, and read for ever."""

import asyncio
import json
import sys

from websockets.asyncio.client import connect

ADDRESS, TOKEN, RUN, STREAMS, SOCKETS = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
HOST, _, PORT = ADDRESS.rpartition(":")


async def stream() -> None:
    reader, writer = await asyncio.open_connection(HOST, int(PORT))
    head = f"GET /events/workflow/{RUN} HTTP/1.1\r\nHost: {ADDRESS}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"gate_waiting")
    KEPT.append((reader, writer))


async def socket() -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    dialled = await connect(f"ws://{ADDRESS}/ws", additional_headers=headers, proxy=None)
    await dialled.send(json.dumps({"id": 1, "op": "subscribe", "args": {"run": RUN}}))
    await dialled.recv()
    KEPT.append(dialled)


KEPT: list[object] = []


async def main() -> None:
    await asyncio.gather(*(stream() for _ in range(STREAMS)), *(socket() for _ in range(SOCKETS)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main())
