"""The configuration of a project."""

import json

import pytest

from nerve.project.config import Config, Encryption, WorkflowSettings, project_config, read_config
from nerve.text.source import InvalidDefinition

SEED = """{
  "enabled": true,
  "workflows_dir": "./workflows",
  "workflows": {
    "feature-dev": {
      "enabled": true,
      "visible_to": ["plan", "build"]
    },
    "old": { "enabled": false }
  }
}"""


@pytest.mark.requirement("S2-22")
def test_a_configuration_says_where_workflows_are_and_who_sees_them() -> None:
    config = read_config(SEED)
    assert config.workflows_dir == "./workflows"
    assert config.settings_of("feature-dev") == WorkflowSettings(True, ("plan", "build"))
    assert config.is_enabled("feature-dev")
    assert not config.is_enabled("old")
    assert config.may_call("plan", "feature-dev")
    assert not config.may_call("deploy", "feature-dev")
    assert not config.may_call("plan", "old")


def test_what_is_not_mentioned_is_enabled_and_seen_by_all() -> None:
    assert read_config("{}") == Config()
    assert Config().may_call("anybody", "anything")


@pytest.mark.parametrize(
    ("workflow", "caller", "why"),
    [
        ("feature-dev", "deploy", "workflow 'feature-dev' is visible only to plan, build"),
        ("feature-dev", "plan", ""),
        ("feature-dev", "feature-dev", ""),
        ("feature-dev", None, ""),
        ("old", None, "workflow 'old' is disabled in .nerve/config.json"),
        ("other", "deploy", ""),
    ],
)
@pytest.mark.requirement("S2-22")
def test_a_refusal_says_who_may(workflow, caller, why) -> None:
    assert read_config(SEED).refusal(workflow, caller) == why


def test_a_configuration_has_the_settings_of_providers() -> None:
    config = read_config('{"providers": {"gemini": {"kind": "acp", "command": ["gemini"]}}}')
    assert config.providers == {"gemini": {"kind": "acp", "command": ["gemini"]}}
    with pytest.raises(InvalidDefinition, match="1:26: Provider 'gemini' must be an object"):
        read_config('{"providers": {"gemini": 3}}')


def test_the_configuration_of_a_folder_is_read_or_is_the_default(tmp_path) -> None:
    assert project_config(tmp_path) == project_config(tmp_path / "gone") == Config()
    (tmp_path / ".nerve").mkdir()
    (tmp_path / ".nerve/config.json").write_text('{"enabled": false}')
    assert not project_config(tmp_path).enabled
    (tmp_path / ".nerve/config.json").unlink()
    (tmp_path / ".nerve/config.json").mkdir()
    with pytest.raises(InvalidDefinition, match=r"\.nerve/config\.json:1:1: Cannot read the file"):
        project_config(tmp_path)


def test_an_empty_list_is_visible_to_no_other_workflow() -> None:
    assert not read_config('{"workflows": {"a": {"visible_to": []}}}').may_call("plan", "a")


def test_a_disabled_project_has_no_workflow() -> None:
    assert not read_config('{"enabled": false}').is_enabled("a")


def test_settings_cannot_be_changed() -> None:
    config = read_config(SEED)
    with pytest.raises(TypeError):
        config.workflows["old"] = WorkflowSettings()  # type: ignore[index]


def test_every_problem_is_reported_with_its_position() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read_config(
            '{"enable": true,\n "enabled": 1,\n "workflows": {"a": {"visible": []},\n'
            ' "b": {"visible_to": "plan"}, "c": 3}}'
        )
    assert [str(problem).removeprefix(".nerve/config.json:") for problem in caught.value.problems] == [
        "1:2: Unknown key 'enable' in the configuration. Did you mean 'enabled'?"
        " Valid keys: enabled, workflows_dir, workflows, providers, slots, budget, router, max_connections,"
        " encryption, telemetry.",
        "2:13: enabled must be true or false",
        "3:22: Unknown key 'visible' in workflow 'a'. Did you mean 'visible_to'?"
        " Valid keys: enabled, visible_to.",
        "4:22: visible_to of workflow 'b' must be a list of workflows",
        "4:36: Workflow 'c' must be an object",
    ]


@pytest.mark.parametrize(
    "given", ["[]", "3", "null", '{"workflows": []}', '{"workflows": {"a": []}}', "{", ""]
)
def test_anything_else_is_a_problem(given: str) -> None:
    with pytest.raises(InvalidDefinition):
        read_config(given)


@pytest.mark.parametrize("folder", ["../up", "/etc", "a/../../b", "~/x", "C:\\x", "..\\x", "", " "])
def test_the_folder_stays_inside_the_project(folder: str) -> None:
    with pytest.raises(InvalidDefinition, match="workflows_dir"):
        read_config(json.dumps({"workflows_dir": folder}))


def test_a_configuration_names_the_agent_that_routes() -> None:
    named = read_config('{"router": "claude"}').router
    assert named is not None
    assert (named.name, named.position.line, named.position.column) == ("claude", 1, 12)
    for wrong in ("3", '""', "[]"):
        with pytest.raises(
            InvalidDefinition, match="1:12: router must be the name of an agent or a provider"
        ):
            read_config(f'{{"router": {wrong}}}')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3", "1:16: 'encryption' must be an object"),
        ("{}", "1:16: 'encryption' must have either key_file or key_env"),
        ('{"key_file": "a", "key_env": "B"}', "1:16: 'encryption' must have either key_file or key_env"),
        ('{"key_file": 3}', "1:29: key_file of the encryption must be a non-empty string"),
        ('{"keyfile": "a"}', "1:17: Unknown key 'keyfile' in 'encryption'. Did you mean 'key_file'?"),
    ],
)
def test_encryption_names_one_source_of_keys(text: str, problem: str) -> None:
    assert read_config('{"encryption": {"key_file": "a"}}').encryption == Encryption(key_file="a")
    assert read_config('{"encryption": {"key_env": "B"}}').encryption == Encryption(key_env="B")
    with pytest.raises(InvalidDefinition) as caught:
        read_config(f'{{"encryption": {text}}}')
    assert str(caught.value.problems[0]).removeprefix(".nerve/config.json:").startswith(problem)
