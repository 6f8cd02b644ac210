"""Read workflows in JSON: the step machine format, and the spec itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from nerve.notations.json_steps.lowering import WORKFLOW_PREFIX, StepGroup, lower_workflow
from nerve.notations.json_steps.parallel_grouping import group_parallel
from nerve.notations.json_steps.step_schema import (
    KEY_EXAMPLES,
    MAX_COMPARED_NAMES,
    REQUIRED_KEYS,
    ROUTE_KEYS,
    STEP_TYPE_SCHEMAS,
    VALUE_RULES,
    WORKFLOW_SCHEMA,
    StepSource,
    describe_json_value,
    input_step_ids,
    limited_suggestion,
    misplaced_key_fix,
    step_keys,
)
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.spec.key_suggestions import suggest_key
from nerve.text.json_reader import parse_located_json
from nerve.text.source import Diagnostics, Document, InvalidDefinition, LocatedList, LocatedMap, Position

NOTATION = "json"
MAX_NESTING = 10
"""Maximum nesting of parallel steps."""
WORKFLOW_SHAPE_FIX = 'Write {"id": "a-name", "steps": [{…}]}.'


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a workflow in JSON; raises `InvalidDefinition` with every problem and its position."""
    source = parse_located_json(text, file)
    reader = StepReader(file)
    if not isinstance(source, LocatedMap):
        position = getattr(source, "position", None)
        message = f"A workflow must be an object, got {describe_json_value(source)}"
        reader.fail(position, message, WORKFLOW_SHAPE_FIX)
    if "body" not in source:
        spec = reader.read_spec(source)
        return Document(spec, NOTATION, file, text, reader.notes, state_word="step")
    if "steps" in source:
        message = "A workflow must have either 'steps' or 'body', not both"
        reader.fail(source.key_positions.get("body"), message, "Remove one of them.")
    source.pop("$schema", None)
    return Document(source, NOTATION, file, text)


class StepReader(Diagnostics):
    """Reads one workflow in the step machine format and collects its problems."""

    def drop_invalid_keys(
        self,
        source: LocatedMap,
        keys: dict[str, str],
        what: str,
        fix: Callable[[str], str] = lambda _: "",
    ) -> LocatedMap:
        """Return the source with only its valid entries; report the others."""
        for key in [key for key in source if key not in keys]:
            self.report_unknown_key(source, key, keys, what, fix(key))
        valid = LocatedMap((), source.position)
        valid.key_positions, valid.value_positions = source.key_positions, source.value_positions
        for key, value in source.items():
            if key not in keys:
                continue
            rule = VALUE_RULES[keys[key]]
            if rule.is_valid(value):
                valid[key] = value
                continue
            at = source.value_positions.get(key, source.key_positions.get(key, source.position))
            message = f"'{key}' of {what} must be {rule.description}, got {describe_json_value(value)}"
            self.add(at, message, rule.fix)
        return valid

    def report_unknown_key(
        self, source: LocatedMap, key: str, keys: Collection[str], what: str, fix: str
    ) -> None:
        """Report an unknown key; parsing continues with the suggested key."""
        at, message = source.key_positions.get(key, source.position), f"Unknown key '{key}' in {what}"
        if fix or (word := suggest_key(key, keys)) is None:
            self.add(at, message, fix or f"Valid keys: {', '.join(keys)}.")
            return
        self.add(at, f"{message}. Did you mean '{word}'?")
        if word not in source:
            source.set_at(word, source[key], source.value_positions.get(key, at))

    def parse_steps(self, source: LocatedMap, what: str, depth: int = 0) -> tuple[StepSource, ...]:
        """Parse the steps of a workflow or a parallel step."""
        items = source.get("steps")
        if not isinstance(items, LocatedList):
            return ()
        if not items:
            self.add(items.position, f"No steps in {what}", "Add at least one step.")
        if depth > MAX_NESTING:
            message = f"Parallel steps are nested deeper than {MAX_NESTING} levels"
            self.add(items.position, message, "Call a workflow instead.")
            return ()
        steps = []
        for index, item in enumerate(items):
            if isinstance(item, LocatedMap):
                steps.append(self.parse_step(item, index, depth))
            else:
                at = items.value_positions.get(index, items.position)
                message = f"A step must be an object, got {describe_json_value(item)}"
                self.add(at, message, 'Write {"id": …, "type": …}.')
        return tuple(step for step in steps if step is not None)

    def parse_step(self, source: LocatedMap, index: int, depth: int) -> StepSource | None:
        id = source.get("id")
        what = f"step '{id}'" if isinstance(id, str) else f"step {index + 1}"
        type = source.get("type")
        if not isinstance(type, str) or type not in STEP_TYPE_SCHEMAS:
            self.report_unknown_type(source, what)
            return None
        keys = step_keys(type, depth)
        if depth:
            keys |= {key: "target" for key in ROUTE_KEYS if key in source and source[key] is None}
        valid = self.drop_invalid_keys(
            source, keys, f"{what} of type {type}", lambda key: misplaced_key_fix(key, type, depth)
        )
        if missing := [key for key in ["id", *REQUIRED_KEYS[type]] if key not in source and key in keys]:
            message = f"Missing {' and '.join(map(repr, missing))} in {what} of type {type}"
            self.add(source.position, message, f"Add {', '.join(KEY_EXAMPLES[key] for key in missing)}.")
        nested = self.parse_steps(valid, what, depth + 1)
        min_success = valid.get("min_success", 0)
        if min_success > len(nested) > 0:
            message = f"min_success of {what} is {min_success}, of {len(nested)} steps"
            self.add(valid.value_positions.get("min_success"), message, "Lower it.")
        return StepSource(valid["id"], type, valid, nested) if "id" in valid else None

    def report_unknown_type(self, source: LocatedMap, what: str) -> None:
        types = f"Valid types: {', '.join(STEP_TYPE_SCHEMAS)}."
        if "type" not in source:
            close = next((key for key in source if suggest_key(key, ["type"])), None)
            if close is not None:
                self.report_unknown_key(source, close, ["type"], what, "")
            else:
                self.add(source.position, f"Missing 'type' in {what}", types)
            return
        type, at = source["type"], source.value_positions.get("type", source.position)
        close = limited_suggestion(type, STEP_TYPE_SCHEMAS) if isinstance(type, str) else ""
        self.add(at, f"Unknown step type: {describe_json_value(type).strip(chr(39))}{close}", types)

    def check_source_step_ids(self, steps: Iterable[StepSource]) -> dict[str, StepSource]:
        """Return all steps by id, including nested steps; report duplicate ids."""
        known: dict[str, StepSource] = {}
        for top in steps:
            for step in top.with_nested():
                if first := known.get(step.id):
                    line = (first.position_of("id") or Position()).line
                    message = f"Duplicate step id '{step.id}'; the first is on line {line}"
                    self.add(step.position_of("id"), message, "Rename one of them.")
                known.setdefault(step.id, step)
        return known

    def check_step_inputs(self, known: dict[str, StepSource]) -> None:
        """Report inputs that name an unknown step or a reserved name."""
        for step in known.values():
            for index, name in enumerate(input_step_ids(step)):
                input_value = step.get("input")
                at = (
                    input_value.value_positions.get(index, input_value.position)
                    if isinstance(input_value, LocatedList)
                    else step.position_of("input")
                )
                if name not in known:
                    close = limited_suggestion(name, known)
                    fix = "" if close else f"Steps: {', '.join(list(known)[:MAX_COMPARED_NAMES])}."
                    self.add(at, f"'input' of step '{step.id}' names the unknown step '{name}'{close}", fix)
                elif name in ("input", "context"):
                    message = f"A step with the reserved id '{name}' cannot be an input"
                    self.add(at, message, "Give it another id.")

    def read_spec(self, source: LocatedMap) -> LocatedMap:
        """Return the spec of a workflow in the step machine format."""
        if "steps" not in source:
            forms = ("steps", "body")
            close = next(
                (key for key in source if key not in WORKFLOW_SCHEMA and suggest_key(key, forms)), None
            )
            if close is None:
                self.fail(source.position, "A workflow must have 'steps' or 'body'", WORKFLOW_SHAPE_FIX)
            self.report_unknown_key(source, close, forms, "a workflow", "")
            raise InvalidDefinition(self.problems)
        source = self.drop_invalid_keys(source, WORKFLOW_SCHEMA, "a workflow")
        if "id" not in source and "id" not in source.key_positions:
            self.add(source.position, "'id' of the workflow is missing", f"Add {KEY_EXAMPLES['id']}.")
        steps = self.parse_steps(source, "the workflow")
        known = self.check_source_step_ids(steps)
        self.check_step_inputs(known)
        for step in known.values():
            name = step.get("agent") or ""
            if name == WORKFLOW_PREFIX:
                message = f"'{WORKFLOW_PREFIX}' does not name a workflow"
                self.add(step.position_of("agent"), message, f"Write {WORKFLOW_PREFIX}<id>.")
            if "params" in step.source and not name.startswith(WORKFLOW_PREFIX):
                message = (
                    f"'params' of step '{step.id}' are the inputs of a workflow, and '{name}' is an agent"
                )
                fix = f'Name steps with "input", or write {WORKFLOW_PREFIX}<id>.'
                self.add(step.position_of("params"), message, fix)
            for key in (
                ("output_schema", "cwd", *STEP_SETTING_KEYS) if name.startswith(WORKFLOW_PREFIX) else ()
            ):
                if key in step.source:
                    message = f"'{key}' of step '{step.id}' is for an agent, not for a workflow"
                    self.add(step.position_of(key), message, "Put it in the steps of that workflow.")
        self.raise_if_any()
        units: list[StepSource | StepGroup] = list(steps)
        if source.get("parallel"):
            units = group_parallel(steps, known, self, source.value_positions.get("parallel"))
        return lower_workflow(source, units, self)
