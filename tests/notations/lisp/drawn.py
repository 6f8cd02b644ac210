"""Texts drawn at random: workflows after the grammar, with words and bytes exchanged here and there."""

import random
from collections.abc import Callable

from nerve.notations.lisp.bodies import BLOCK_FORMS, MISPLACED_CLAUSE_FIXES
from nerve.notations.lisp.expressions import FUNCTIONS
from nerve.notations.lisp.steps import STEPS
from nerve.notations.lisp.workflow import SECTIONS

WORDS = [
    "planner",
    "nobody",
    "x",
    "s0",
    "@workflow-id",
    "?n",
    "_",
    "...",
    "nil",
    "true",
    ":key",
    ":tag",
    ":max",
]
STRINGS = ['"text"', '"~a"', '"{{ x }}"', '"~~ ~a ~a"', '"a\\nb"', '"$1 ${X}"', '""']
HEADS = [*STEPS, *BLOCK_FORMS, *MISPLACED_CLAUSE_FIXES, *FUNCTIONS, *SECTIONS, "workflow", "spec", "state"]


class Drawing:
    """A drawer of forms, each no deeper than it is told."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def word(self) -> str:
        return self.chance.choice([*WORDS, *STRINGS, "0", "-1", "2.5", "9007199254740993", "12a"])

    def several(self, draw: Callable[[int], str], deep: int, most: int = 3) -> str:
        return " ".join(draw(deep - 1) for _ in range(self.chance.randint(0, most)))

    def junk(self, deep: int) -> str:
        """Any form at all."""
        if deep < 1 or self.chance.random() < 0.4:
            return self.word()
        shape = self.chance.choice(["({} {})", "[{} {}]", "{{:k {} {}}}"])
        return shape.format(self.chance.choice(HEADS), self.several(self.junk, deep, 4))

    def condition(self, deep: int) -> str:
        return self.chance.choice(
            [
                "(signal a/b :key @workflow-id)",
                "(signal a)",
                "(transcript-response :request-id r)",
                f"(fact (score :of {self.chance.choice(['?n', '_', '1', 'planner'])}))",
                f"(signal a :scope {self.value(deep - 1)})",
            ]
        )

    def value(self, deep: int) -> str:
        if deep < 1:
            return self.chance.choice(
                ["1", '"s"', "nil", "(input)", "@workflow-id", "(artifact planner)", "[1]"]
            )
        if self.chance.random() < 0.5:
            head = self.chance.choice(["=", "get", "if", "helper", "join", "!="])
            return f"({head} {self.value(deep - 1)} {self.value(deep - 1)})"
        head = self.chance.choice(["str", "+", "and", "or", "concat"])
        return f"({head} {self.value(deep - 1)} {self.several(self.value, deep, 2)})"

    def body(self, deep: int) -> str:
        simple = [
            lambda: f'(send-prompt :agent planner :template "~a" :args ({self.value(deep - 1)}))',
            lambda: '(send-prompt :agent worker :template "x" :tag r)',
            lambda: f"(await {self.condition(deep - 1)})",
            lambda: f'(log "~a" {self.value(deep - 1)})',
            lambda: f"(assert (score {self.value(deep - 1)} :n 1))",
            lambda: f"(goto {self.chance.choice(['s0'] * 20 + ['nowhere'])})",
            lambda: "(retract (signal a))",
        ]
        if deep < 1 or self.chance.random() < 0.4:
            return self.chance.choice(simple)()
        inner = self.several(self.body, deep)
        test, value = self.condition(deep - 1), self.value(deep - 1)
        return self.chance.choice(
            [
                f"(action {inner})",
                f"(let ((x {value})) {inner})",
                f"(loop :max 3 {inner} :until {test})",
                f"(branch (on {test} {inner}) (when {value} {inner}) (otherwise {inner}))",
                f"(select (on {test} {inner}) (timeout 3 {inner}))",
                f"(with-timeout 5 {inner} (on-timeout {inner}))",
            ]
        )

    def workflow(self) -> str:
        send = '(send-prompt :agent worker :template "x" :tag r)'
        count = self.chance.randint(1, 3)
        states = "\n".join(f"  (state s{n} {self.several(self.body, 4)})" for n in range(count))
        roles = '(roles (planner :agent-kind "c") (worker :handle-ref "w"))'
        return f"(defn helper (a b) (str a b))\n(workflow w {roles}\n  (state first {send})\n{states})"

    def text(self) -> str:
        """A workflow, as it is or damaged."""
        text = self.workflow() if self.chance.random() < 0.9 else self.junk(6)
        way = self.chance.randrange(4)
        if way == 1:
            for _ in range(self.chance.randint(1, 4)):
                text = self.exchanged(text)
        elif way == 2:
            return damaged(self.chance, text.encode()).decode(
                "utf-8", self.chance.choice(["replace", "ignore"])
            )
        elif way == 3:
            return damaged(self.chance, text.encode()).decode("latin-1")
        return text

    def exchanged(self, text: str) -> str:
        words = text.split(" ")
        words[self.chance.randrange(len(words))] = self.junk(2)
        return " ".join(words)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The bytes with some of them changed, gone or there twice."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(4):
            case 0:
                found[at:at] = bytes([chance.choice(b'()[]{}":;#|\\~@? \n\0\xff\xc3') for _ in range(3)])
            case 1:
                del found[at : at + chance.randint(1, 20)]
            case 2:
                found[at:at] = found[at : at + chance.randint(1, 200)]
            case _:
                found[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(found)
