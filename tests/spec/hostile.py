"""Hostile definitions, drawn from all corpora and modified."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nerve.notations import NOTATIONS, SUFFIXES
from notations.json_steps import files as json_files
from notations.lisp.drawn import Drawing
from notations.yaml_prompts.test_fuzz import decoded, grown, mutated

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("examples", "tests/notations")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in SUFFIXES and path.name not in ("scene.json", "expected.json")
]
POISON = [
    *[
        "$(touch CANARY)",
        "`touch CANARY`",
        "; touch CANARY",
        "| touch CANARY",
        "&& touch CANARY #",
        "\ntouch CANARY\n",
    ],
    *["{{ __import__('os').system('touch CANARY') }}", "{{ constructor.constructor('return process')() }}"],
    *[
        "{{ import('os') }}",
        "{{ eval('1') }}",
        "{{ require('child_process').exec('touch CANARY') }}",
        "{{ run.id",
    ],
    *[
        "!!python/object/apply:os.system ['touch CANARY']",
        "!!python/module:evil",
        "#.(run-program 'touch CANARY')",
    ],
    *[
        "evil",
        "evil.py",
        "evil:main",
        "evil.module",
        "./evil.py",
        "workflow:evil",
        "python:evil",
        "claude",
        "bash",
    ],
    *[
        "/etc/passwd",
        "../../../../etc/passwd",
        "file:///etc/passwd",
        "~/.ssh/id_rsa",
        "/proc/self/environ",
        "//host/x",
    ],
    *[
        "http://127.0.0.1:9/x.json",
        "https://example.invalid/x.yaml",
        "git+ssh://127.0.0.1/x",
        "/dev/tcp/127.0.0.1/80",
    ],
    *[
        "..",
        ".",
        "a/b",
        "a\\b",
        "%2e%2e%2f",
        "CON",
        "-rf",
        "a\0b",
        "x" * 300,
        "\u202egnp.exe",
        "../outside",
        "link",
    ],
    *[
        "plan",
        "plan.md",
        "../steps/plan",
        "PLAN",
        "steps/plan",
        "/",
        "\x1b]0;x\x07",
        "\ud800",
        "${jndi:ldap://127.0.0.1/x}",
    ],
]
"""What others were broken through."""


def definitions(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Texts with their declared notations."""
    chance = random.Random(seed)
    drawing = Drawing(chance)
    known = [SUFFIXES[path.suffix].read(path.read_text(), str(path)).data for path in SOURCES]
    makers = [
        lambda: ("json", json_text(chance)),
        lambda: ("lisp", drawing.text()),
        lambda: ("yaml", chance.choice([mutated, grown, decoded])(chance)),
        *[lambda: poisoned_text(chance, known)] * 3,
        lambda: replaced(chance),
    ]
    for _ in range(count):
        yield chance.choice(makers)()


def json_text(chance: random.Random) -> str:
    text = json_files.written(chance, json_files.disfigured(chance, json_files.workflow(chance)))
    return json_files.damaged(chance, text) if chance.random() < 0.3 else text


def poisoned_text(chance: random.Random, known: list[Any]) -> tuple[str, str]:
    """A valid workflow with some strings replaced, in the full form of a notation."""
    notation = chance.choice(list(NOTATIONS))
    data = poisoned(chance, chance.choice(known), chance.choice([0.05, 0.2, 0.6]))
    try:
        return notation, NOTATIONS[notation].write(data)
    except ValueError:
        return "json", repr(data)


def poisoned(chance: random.Random, value: Any, share: float) -> Any:
    if isinstance(value, str) and chance.random() < share:
        return chance.choice(POISON)
    if isinstance(value, dict):
        kept = {key: item if key == "kind" else poisoned(chance, item, share) for key, item in value.items()}
        if "kind" in kept and chance.random() < share:
            kept |= chance.choice(EXTRAS)
        return kept
    return [poisoned(chance, item, share) for item in value] if isinstance(value, list) else value


EXTRAS: list[dict[str, Any]] = [
    *({"kind": "prompt", "file": name} for name in POISON),
    {"kind": "bash", "command": "touch CANARY", "cwd": "/"},
    {"expect": [{"command": "touch CANARY"}, {"file": "/etc/passwd"}, {"file": "../../x"}]},
    {"kind": "call", "target": "evil"},
    {"kind": "workflow", "workflow": "evil"},
    {"kind": "transform", "expression": "[].map.constructor('return 1')()"},
    {"kind": "transform", "expression": "'a'.repeat(1e9)"},
    {"kind": "assert", "fact": ["workflow-definition", {"name": "x", "source": "evil.py"}]},
]


def replaced(chance: random.Random) -> tuple[str, str]:
    """A project file with some words replaced."""
    path = chance.choice(SOURCES)
    words = path.read_text().split(" ")
    for _ in range(chance.randint(1, 4)):
        words[chance.randrange(len(words))] = chance.choice(POISON)
    return SUFFIXES[path.suffix].name, " ".join(words)
