"""Writes the histories that this build makes: `python -m engine.temporal.keep_histories`, in `tests`.

Names after the command write only these.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engine.temporal.history_scenes import SCENES, play_to_the_end, register_scenes
from engine.temporal.temporal_runs import TemporalRuns, open_runs
from journals.workflows import NAMES, register
from nerve import Session
from nerve.engine.temporal import run_workflow
from temporal_server import TemporalServer
from workspaces.repositories import make_repository

HISTORIES = Path(__file__).parent / "histories"
YAML = """
name: file
inputs:
  parts: {type: array}
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo built {{ inputs.parts.length }}"}
    - kind: map
      id: each
      over: inputs.parts
      max_parallel: 2
      body: {kind: bash, id: test, command: "echo tested {{ item }}"}
    - kind: loop
      id: polish
      until: iteration >= 2
      max_iterations: 5
      body: {kind: bash, id: pass, command: "echo pass {{ iteration }}"}
    - {kind: emit, id: progress, event: progress, data: {percent: 50}}
    - {kind: bash, id: fails, command: "exit 3", retry: {attempts: 2, delay: 0.01}, on_error: skip}
    - {kind: gate, id: ship, prompt: "Ship it?", choices: [approve, reject], reject: [reject]}
    - {kind: transform, id: end, expression: "steps.build.output + steps.each.output.length"}
"""
INPUTS: Mapping[str, dict[str, Any]] = {"file": {"parts": ["a", "b", "c"]}}
ALL_NAMES = (*NAMES, "file", *SCENES)


def make_session(project: Path | None = None) -> Session:
    session = Session("team", project=project)
    register(session, [])
    register_scenes(session)
    session.load(YAML, "yaml")
    return session


async def keep(runs: TemporalRuns, name: str) -> None:
    if (scene := SCENES.get(name)) is not None:
        run = await scene(runs)
    else:
        run = await play_to_the_end(runs, name, INPUTS.get(name))
    history = await run.handle.fetch_history()
    text = re.sub(r'"identity": "[^"]*"', '"identity": "worker"', history.to_json())
    text = re.sub(r'"stackTrace": "(?:[^"\\\\]|\\\\.)*"', '"stackTrace": ""', text)  # paths of this machine
    (HISTORIES / f"{name}.json").write_text(text + "\n")


async def keep_all() -> None:
    run_workflow.HOST_TIMEOUT = timedelta(seconds=1)
    with TemporalServer() as server, TemporaryDirectory() as folder:
        make_repository(Path(folder))
        async with open_runs(server.url(server.create_namespace()), make_session(Path(folder))) as runs:
            for name in sys.argv[1:] or ALL_NAMES:
                await keep(runs, name)


if __name__ == "__main__":
    asyncio.run(keep_all())
