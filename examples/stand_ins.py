"""Stand-ins for the agents of the examples, so that each runs on any machine: `--with examples/stand_ins.py`.

They return fixed answers. A prompt that asks for a verdict is answered with approval.
"""

from nerve import FunctionNode, Session
from nerve.testing import ScriptedProvider

NODES = {
    "planner": "1. Write it. 2. Try it.",
    "coder": "written",
    "tester": "all tests pass",
    "deployer": "deployed",
    "notifier": "notified",
    "test-unit": "212 passed",
    "test-integration": "31 passed",
    "test-e2e": "7 passed",
    "reporter": "250 tests, all passed",
}
"""The agents of the JSON workflows and their answers."""

PROMPTS = {
    "ACCEPTED": "ACCEPTED",
    "APPROVED": "APPROVED",
    "Answer NONE": "NONE",
    "^Write a summary": "Both say yes.",
    "Who is right": "The advocate is right.",
    ".": "Done.",
}
"""Answers of Claude Code in the other workflows, by a pattern of the prompt."""


def register(session: Session) -> None:
    for name, answer in NODES.items():
        FunctionNode(name, session, lambda context, answer=answer: answer)
    session.providers["claude"] = ScriptedProvider(PROMPTS, "claude")
