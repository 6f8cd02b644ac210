"""Step machines drawn at random, right ones and wrong ones."""

import json
import random
from typing import Any

AGENTS = ["planner", "coder", "workflow:other"]
EXPRESSIONS = [
    "context.s0.success === true",
    "input",
    "results['s1']",
    "1 + 1",
    "given",
    "steps.s2.output.n >= 80",
]


def workflow(chance: random.Random) -> dict[str, Any]:
    """A workflow that can be read."""
    ids = [f"s{n}" for n in range(chance.randint(1, 8))]
    made: dict[str, Any] = {"id": chance.choice(["w", "feature-dev", "Größe"])}
    if chance.random() < 0.5:
        made["description"] = "what it does"
    if chance.random() < 0.5:
        made["max_iterations"] = chance.choice([0, 1, 99, 5000])
    if chance.random() < 0.5:
        made["max_duration_ms"] = chance.choice([0, 1, 1234.5, 600_000])
    if chance.random() < 0.3:
        made["initial_context"] = {"x": [1, {"y": None}]}
    if chance.random() < 0.5:
        made["parallel"] = chance.random() < 0.8
    return made | {"steps": [routed(chance, step(chance, id, ids), ids) for id in ids]}


def step(chance: random.Random, id: str, ids: list[str], depth: int = 0) -> dict[str, Any]:
    type = chance.choices(["agent", "approval", "parallel", "condition", "transform"], [5, 1, 1, 1, 2])[0]
    made: dict[str, Any] = {"id": id, "type": type}
    match type:
        case "agent":
            made["agent"] = chance.choice(AGENTS)
            if chance.random() < 0.6:
                made["input"] = chance.choice([[], chance.sample(ids, 1), chance.choice(ids)])
            if chance.random() < 0.3:
                child = made["agent"].startswith("workflow:")
                made |= {"params": {"x": "{{ input }}"}} if child else {"output_schema": {"type": "object"}}
        case "approval":
            made |= {"message": "Sure?"} if chance.random() < 0.5 else {}
            made |= {"on_reject": "continue"} if depth and chance.random() < 0.5 else {}
        case "parallel":
            count = chance.randint(1, 3)
            nested = [step(chance, f"{id}.{n}", ids, depth + 1) for n in range(count)] if depth < 3 else []
            made["steps"] = nested or [{"id": f"{id}.0", "type": "approval"}]
            made |= {"min_success": chance.randint(0, len(made["steps"]))} if chance.random() < 0.5 else {}
        case _:
            made[type] = chance.choice(EXPRESSIONS)
    if chance.random() < 0.3:
        made |= {"max_retries": chance.randint(1, 4), "retry_delay_ms": chance.choice([0, 10, 0.5])}
    if chance.random() < 0.3:
        made["timeout_ms"] = chance.choice([1, 60_000, 120_000])
    return made


def routed(chance: random.Random, step: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    keys = {"condition": ["then", "else"], "approval": ["next", "on_approve", "on_reject"]}
    for key in keys.get(step["type"], ["next"]):
        if key in ("then", "else") or chance.random() < 0.8:
            step[key] = chance.choice(ids) if chance.random() < 0.9 else None
    if step["type"] in ("agent", "transform") and chance.random() < 0.6 and step["id"] != ids[-1]:
        step["next"] = ids[ids.index(step["id"]) + 1]
    if chance.random() < 0.2:
        step["on_error"] = chance.choice([*ids, "skip"])
    return step


def damaged(chance: random.Random, text: str) -> str:
    """A text with some of its bytes changed, doubled, moved or gone."""
    data = bytearray(text.encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) or 1)
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randint(1, 20)]
            case 2:
                data[at:at] = data[chance.randrange(len(data) or 1) :][: chance.randint(1, 40)]
            case 3:
                data[at:at] = chance.choice(
                    [b'"', b"[", b"{", b"}", b",", b":", b"\\", b"\0", b"NaN", b"1e999"]
                )
            case 4:
                data = data[:at]
    return data.decode("utf-8", chance.choice(["replace", "surrogateescape"]))


def disfigured(chance: random.Random, value: Any) -> Any:
    """A value of JSON in which something is of the wrong kind, missing, or somewhere else."""
    odd = [None, True, -1, 0, 1.5, "", "s0", "nobody", [], {}, [None], {"id": "s0"}, "x" * 200, 2**53]
    if chance.random() < 0.03:
        return chance.choice(odd)
    if isinstance(value, dict):
        keys = [key for key in value if chance.random() > 0.02]
        extra = {"then": "s0"} if chance.random() < 0.02 else {}
        return {
            chance.choice([*keys, key]) if chance.random() < 0.02 else key: disfigured(chance, value[key])
            for key in keys
        } | extra
    return [disfigured(chance, item) for item in value] if isinstance(value, list) else value


def written(chance: random.Random, value: Any) -> str:
    return json.dumps(value, indent=chance.choice([None, 0, 2]), ensure_ascii=chance.random() < 0.5)
