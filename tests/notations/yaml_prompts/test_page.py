"""The page about YAML: every example can be read, and every key is in it."""

import re
from pathlib import Path

import pytest

from nerve.notations.yaml_prompts import read_document
from nerve.notations.yaml_prompts.forms import ACTIONS, BASH_KEYS, GATE_KEYS, STEP_KEYS, WORKFLOW_KEYS
from nerve.spec.checker import check_document
from nerve.spec.prompt_variables import VARIABLE_NAMES
from nerve.text import yaml_reader

PAGE = (Path(__file__).parents[3] / "docs/guides/yaml.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0])
def test_an_example_of_the_page_is_a_workflow(block: str) -> None:
    assert check_document(read_document(block)).errors == []


@pytest.mark.parametrize(
    "key", sorted({*STEP_KEYS, *WORKFLOW_KEYS, *ACTIONS, *BASH_KEYS, *GATE_KEYS, "depends_on"})
)
def test_every_key_is_in_the_page(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize("name", VARIABLE_NAMES)
def test_every_variable_is_in_the_page(name: str) -> None:
    assert f"`${name}`" in PAGE


def test_the_limits_are_in_the_page() -> None:
    assert f"{yaml_reader.MAX_YAML_BYTES // 1024} KiB" in PAGE
    assert f"{yaml_reader.MAX_VALUES:,} values" in PAGE
    assert f"{yaml_reader.MAX_DEPTH} levels" in PAGE
