"""Stand-ins for the agents of the examples, so that each runs on any machine: `--with examples/stand_ins.py`.

Nothing is thought here. A prompt that asks for a verdict is told that all is well.
"""

from nerve import FunctionNode, Session
from nerve.testing import ScriptedProvider

NODES = {
    "planner": "1. Write it. 2. Try it.",
    "coder": "written",
    "tester": "all tests pass",
    "deployer": "deployed",
    "notifier": "everybody knows",
    "test-unit": "212 passed",
    "test-integration": "31 passed",
    "test-e2e": "7 passed",
    "reporter": "250 tests, all passed",
}
"""The agents of the workflows in JSON, and what each says."""

PROMPTS = {
    "ACCEPTED": "ACCEPTED",
    "APPROVED": "APPROVED",
    "Answer NONE": "NONE",
    "^Write a summary": "Both say yes.",
    "Who is right": "The advocate is right.",
    ".": "Done.",
}
"""What Claude Code would be asked in the others: a pattern of the prompt, and the answer."""


def register(session: Session) -> None:
    for name, said in NODES.items():
        FunctionNode(name, session, lambda given, said=said: said)
    session.providers["claude"] = ScriptedProvider(PROMPTS, "claude")
