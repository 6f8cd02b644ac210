"""The ready-made workflow `research`."""

import json

from nerve.testing import RecordedQuery
from ready_made.scene import Scene


class Agent:
    """Finds a true and a wrong claim for each question; its first report cites nothing."""

    def __init__(self, verified: list[int]) -> None:
        self.verified, self.reports = verified, 0

    def __call__(self, call: RecordedQuery) -> str:
        if call.prompt.startswith("Divide this question"):
            return json.dumps({"questions": ["What is hot?", "What is not?"]})
        if call.prompt.startswith("Answer this question with claims"):
            name = "hot" if "hot?" in call.prompt else "not"
            claims = [
                {"claim": f"{word} {name}", "source": name, "quote": "so"} for word in ("true", "wrong")
            ]
            return json.dumps({"claims": claims})
        if call.prompt.startswith("Try to refute"):
            return json.dumps({"verified": self.verified})
        self.reports += 1
        return "Tea." if self.reports == 1 else "Tea is hot [1]."


async def test_the_report_has_only_verified_claims_and_their_sources(scene: Scene) -> None:
    run = await scene.start("research", "Is tea hot?", {}, Agent(verified=[0]))
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "- What is hot?\n- What is not?" in gate.prompt
    await run.answer("approve")
    assert await run.wait() == 'Tea is hot [1].\n\n## Sources\n\n1. hot: "so"\n2. not: "so"'
    assert scene.prompts[-1].count("true") == 2
    assert "wrong" not in scene.prompts[-1]
    assert len(scene.prompts) == 7


async def test_without_a_verified_claim_there_is_no_report(scene: Scene) -> None:
    agent = Agent(verified=[])
    run = await scene.start("research", "Is tea hot?", {}, agent)
    await run.next_gate()
    await run.answer("approve")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert agent.reports == 0
