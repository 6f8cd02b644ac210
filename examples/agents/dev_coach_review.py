"""A developer, a coach and a reviewer on a scratch project, with agents of your choice.

    python examples/agents/dev_coach_review.py                   # canned answers: no key, no cost
    python examples/agents/dev_coach_review.py --agent claude    # pip install '.[claude]'
    python examples/agents/dev_coach_review.py --agent codex     # pip install '.[codex]'

The developer and the reviewer are agents. The coach is not an agent: it runs the tests. The reviewer answers
with structured output. The developer asks for permission to work outside of its files, and a person decides
at the end. With `--folder` the project stays, and after a crash or Ctrl-C the same command resumes the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from nerve import BashNode, Limits, Session, WorkflowContext, WorkflowEvent
from nerve.agents import AgentNode, Provider
from nerve.agents.registry import create_provider
from nerve.errors import NerveError
from nerve.testing import RecordedQuery, ScriptedProvider

TASK = "slugify(title) in slug.py: 'Hello, World!' becomes 'hello-world'. The tests are in test_slug.py."
TESTS = """\
import unittest

from slug import slugify


class Slugify(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slugify("Hello World"), "hello-world")

    def test_punctuation(self):
        self.assertEqual(slugify("  Hello, World! "), "hello-world")
"""
VERDICT = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "comments": {"type": "string"}},
    "required": ["approved", "comments"],
    "additionalProperties": False,
}
MAX_ROUNDS = 3
MAX_TRIES = 5


async def dev_coach_review(ctx: WorkflowContext) -> dict[str, Any]:
    """Develop until the tests pass and the reviewer approves, then ask whether to merge."""
    await develop(ctx, f"Implement this: {ctx.input}")
    for round in range(1, MAX_ROUNDS + 1):
        coach = await ctx.run("coach")
        for _ in range(MAX_TRIES):
            if coach["success"]:
                break
            await develop(ctx, f"The tests fail. Fix the code, not the tests:\n\n{coach.output}")
            coach = await ctx.run("coach")
        if not coach["success"]:
            return {"success": False, "reason": "the tests fail", "rounds": round}

        code = await ctx.run("show")
        review = await ctx.run("reviewer", f"Review slug.py, whose tests pass:\n\n{code['output']}")
        if not review["success"]:
            return {"success": False, "reason": review["error"], "rounds": round}
        if review["output"]["approved"]:
            answer = await ctx.gate("The reviewer approved. Merge?", choices=["approve", "reject"])
            if answer == "approve":
                await ctx.run("merge", effect="once")
            return {"success": answer == "approve", "rounds": round}
        await develop(ctx, f"The reviewer says:\n\n{review['output']['comments']}")
    return {"success": False, "reason": "max_rounds", "rounds": MAX_ROUNDS}


async def develop(ctx: WorkflowContext, prompt: str) -> None:
    done = await ctx.run("dev", prompt)
    if not done["success"]:
        raise RuntimeError(f"the developer could not continue: {done['error']}")


def register(session: Session, agent: Provider, folder: Path) -> None:
    work = folder / "work"
    AgentNode(
        "dev",
        session,
        agent,
        system="You are a careful developer. Change only slug.py, and keep it short.",
        cwd=str(work),
        permissions={
            "allow": ["Read", "Glob", "Grep", f"Edit({work}/slug.py)", f"Write({work}/slug.py)"],
            "deny": ["WebFetch", "WebSearch"],
        },
    )
    AgentNode(
        "reviewer",
        session,
        agent,
        system="You review code: is it right, is it simple, does every function say what it does?",
        cwd=str(work),
        thread="fresh",
        output_schema=VERDICT,
        permissions={"otherwise": "deny"},
    )
    BashNode("coach", session, '"$PYTHON" -B -m unittest 2>&1', cwd=work, env={"PYTHON": sys.executable})
    BashNode("show", session, "cat slug.py", cwd=work)
    BashNode("merge", session, "cp work/slug.py slug.py", cwd=folder)
    session.workflow(dev_coach_review, limits=Limits(turns=30))


# -- the scripted agent ----------------------------------------------------------------------------

FIRST = """\
def slugify(title):
    return title.lower().replace(" ", "-")
"""
SECOND = """\
import re


def slugify(title):
    return re.sub(r"[\\W_]+", "-", title.lower()).strip("-")
"""
THIRD = SECOND.replace("(title):\n", '(title):\n    """Lower case, with a dash between words."""\n')


def scripted(call: RecordedQuery) -> Any:
    """What the canned agents do; it follows from the prompt alone, so that a crash changes nothing."""
    prompt = call.prompt
    if "Review slug.py" in prompt:
        approved = '"""' in prompt
        comments = "" if approved else "slugify has no docstring."
        return json.dumps({"approved": approved, "comments": comments})
    versions = {"The reviewer says": THIRD, "The tests fail": SECOND, "Implement": FIRST}
    text = next(text for sign, text in versions.items() if sign in prompt)
    Path(call.cwd or ".", "slug.py").write_text(text)
    return [{"tool": "Write", "input": {"file_path": "slug.py"}}, "slug.py is written."]


# -- running it ------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """The project, and the developer's working copy of it."""
    for place in (folder, folder / "work"):
        place.mkdir(parents=True, exist_ok=True)
        if not (place / "test_slug.py").exists():
            (place / "test_slug.py").write_text(TESTS)
            (place / "slug.py").write_text("def slugify(title):\n    raise NotImplementedError\n")


def watch(event: WorkflowEvent) -> None:
    data = event.data
    match str(event.event_type):
        case "node_started":
            print(f"● {event.path}", flush=True)
        case "tool_call" if "name" in data:
            print(f"  {event.path} uses {data['name']} {json.dumps(data['input'])[:100]}")
        case "node_completed" | "node_error" | "node_timeout":
            told = str(data["result"]["output"] if data["success"] else data["error"]).strip()
            print(f"{'✓' if data['success'] else '✗'} {event.path}: {told.rpartition(chr(10))[2][:100]}")
        case "provider_limited":
            print(f"⏸ {data['message']}")


async def ask(prompt: str, choices: list[str], yes: bool) -> str:
    """The first choice if everything is agreed to; else what a person types."""
    print(f"\n{prompt} ({' or '.join(choices)})")
    if yes:
        print(choices[0])
        return choices[0]
    while (answer := (await asyncio.to_thread(input, "> ")).strip()) not in choices:
        print(f"Please type {' or '.join(choices)}.")
    return answer


async def main(agent: str, folder: Path, yes: bool) -> int:
    prepare(folder)
    provider = ScriptedProvider(scripted) if agent == "scripted" else create_provider(agent)
    async with Session(store=folder / "journal.db") as session:
        register(session, provider, folder)
        await session.recover()
        run = await session.start("dev_coach_review", TASK, key=agent, event_sink=watch)
        while (gate := await run.next_gate()) is not None:
            await run.answer(await ask(gate.prompt, gate.choices or ["yes"], yes), gate.gate_id)
        result = await run.wait()
    print(f"{json.dumps(result)}\n{(folder / 'slug.py').read_text()}", end="")
    return 0 if result["success"] else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="dev, coach and reviewer, with agents of your choice")
    parser.add_argument("--agent", choices=["claude", "codex", "scripted"], default="scripted")
    parser.add_argument(
        "--folder", type=Path, help="the folder to work in and to resume; a new one by default"
    )
    parser.add_argument("--yes", action="store_true", help="agree to whatever is asked")
    told = parser.parse_args()
    place = (told.folder or Path(tempfile.mkdtemp(prefix="dev-coach-review-"))).absolute()
    print(f"{told.agent} in {place}")
    try:
        raise SystemExit(asyncio.run(main(told.agent, place, told.yes)))
    except NerveError as error:
        raise SystemExit(f"✗ {error}") from None
    except (KeyboardInterrupt, EOFError):
        raise SystemExit(f"\nGo on with: --agent {told.agent} --folder {place}") from None
