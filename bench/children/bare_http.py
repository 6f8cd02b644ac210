"""bare_http.py FILE: a starlette handler that reads JSON, commits one row, synced, and replies."""

import asyncio
import json
import socket
import sys

import apsw
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

db = apsw.Connection(sys.argv[1])
db.pragma("journal_mode", "wal")
db.pragma("synchronous", "full")
db.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, input TEXT NOT NULL) STRICT")


async def start(request: Request) -> JSONResponse:
    arguments = await request.json()
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO runs (input) VALUES (?)", (json.dumps(arguments["input"]),))
    db.execute("COMMIT")
    return JSONResponse({"run_id": db.last_insert_rowid(), "result": f"hello {arguments['input']}"})


async def main() -> None:
    app = Starlette(routes=[Route("/api/runs", start, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", http="h11", log_config=None, lifespan="off"))
    # With IPPROTO_TCP, asyncio sets TCP_NODELAY and sends each reply at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        print(json.dumps({"url": f"http://127.0.0.1:{bound.getsockname()[1]}"}), flush=True)
        await server.serve([bound])


asyncio.run(main())
