"""A small interpreter of Archon's rules, written from its documentation, to compare with runs of Nerve."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

REFERENCE = re.compile(r"\$([a-zA-Z_][\w-]*)\.output(?:\.([a-zA-Z_]\w*))?")
MESSAGE = "the message"


class UnusableError(Exception):
    """An output that a node must not read."""


@dataclass
class Ended:
    state: str
    output: str = ""


@dataclass
class Reference:
    """Runs nodes layer by layer; scripts and agents are given as functions of their final text."""

    shell: Callable[[str], tuple[bool, str]]
    agent: Callable[[str], str]
    ended: dict[str, Ended] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)

    def run(self, nodes: list[dict[str, Any]]) -> str:
        pending = {node["id"]: node for node in nodes}
        while pending:
            layer = [
                node
                for node in pending.values()
                if all(up not in pending for up in node.get("depends_on", []))
            ]
            results = {node["id"]: self.run_node(node) for node in layer}
            self.ended.update(results)
            for id in results:
                del pending[id]
        return "failed" if any(each.state == "failed" for each in self.ended.values()) else "completed"

    def run_node(self, node: Mapping[str, Any]) -> Ended:
        if not self.joins(node):
            return Ended("skipped")
        try:
            if "when" in node and not self.holds(node["when"]):
                return Ended("skipped")
            if "bash" in node:
                success, output = self.shell(self.replace(node["bash"], quoted=True))
                return Ended("completed" if success else "failed", output)
            if "loop" in node:
                return self.run_loop(node["loop"])
            return Ended("completed", self.ask(self.replace(node["prompt"])))
        except UnusableError:
            return Ended("failed")

    def joins(self, node: Mapping[str, Any]) -> bool:
        states = [self.ended[up].state for up in node.get("depends_on", [])]
        some = "completed" in states
        rules = {
            "all_success": all(state == "completed" for state in states),
            "one_success": some,
            "none_failed_min_one_success": some and "failed" not in states,
            "all_done": True,
        }
        return not states or rules[node.get("trigger_rule", "all_success")]

    def run_loop(self, loop: Mapping[str, Any]) -> Ended:
        previous = ""
        for _ in range(loop["max_iterations"]):
            prompt = loop["prompt"].replace("$LOOP_PREV_OUTPUT", previous)
            answer = self.ask(self.replace(prompt))
            signal = re.escape(loop["until"])
            tag = rf"<([a-zA-Z][\w-]*)[^>]*>\s*{signal}\s*</\1>"
            previous = re.sub(tag, "", answer, flags=re.IGNORECASE).strip() or answer
            patterns = [f"(?i:{tag})", rf"{signal}[\s.,;:!?]*\Z", rf"(?m:^\s*{signal}\s*$)"]
            if any(re.search(pattern, answer) for pattern in patterns):
                return Ended("completed", previous)
        return Ended("failed")

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.agent(prompt)

    def replace(self, text: str, quoted: bool = False) -> str:
        text = text if quoted else text.replace("$ARGUMENTS", MESSAGE)

        def value(match: re.Match[str]) -> str:
            found = self.value(match[1], match[2])
            if isinstance(found, bool | int) and match[2]:
                return json.dumps(found)
            text = found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
            if not quoted:
                return text
            word = "'" + text.replace("'", "'\\''") + "'"
            if match.string[match.start() - 1] == "<":  # in double quotes, where Nerve keeps the value a word
                word = re.sub(r'([\\"$`])', r"\\\1", word)
            return word

        return REFERENCE.sub(value, text)

    def value(self, id: str, name: str | None) -> Any:
        step = self.ended[id]
        if step.state == "failed" or (name and step.state == "skipped"):
            raise UnusableError
        if name is None:
            return step.output
        try:
            return json.loads(step.output)[name]
        except (ValueError, KeyError, TypeError):
            raise UnusableError from None

    def holds(self, condition: str) -> bool:
        for clause in condition.split("||"):
            is_true = True
            for atom in clause.split("&&"):
                match = re.fullmatch(r"\s*(\S+) (==|!=|<=|>=|<|>) '([^']*)'\s*", atom)
                assert match is not None
                reference = REFERENCE.fullmatch(match[1])
                assert reference is not None
                found = self.value(reference[1], reference[2])
                text = found if isinstance(found, str) else json.dumps(found)
                if match[2] in ("==", "!="):
                    is_true = (text == match[3]) == (match[2] == "==")
                else:
                    number = re.match(r"\s*-?\d+(\.\d+)?", text)
                    if number is None:
                        return False
                    left, right = float(number[0]), float(match[3])
                    is_true = {
                        "<": left < right,
                        ">": left > right,
                        "<=": left <= right,
                        ">=": left >= right,
                    }[match[2]]
                if not is_true:
                    break
            if is_true:
                return True
        return False
