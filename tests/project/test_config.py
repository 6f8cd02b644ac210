"""The configuration of a project."""

import json
from typing import Any

import pytest

from nerve.project.config import (
    PLACEMENTS,
    Config,
    Encryption,
    WorkflowSettings,
    project_config,
    read_config,
)
from nerve.project.notify_settings import SecretSource
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
    assert not config.refusal("feature-dev", "plan")
    assert config.refusal("feature-dev", "deploy")
    assert config.refusal("old", "plan")


def test_what_is_not_mentioned_is_enabled_and_seen_by_all() -> None:
    assert read_config("{}") == Config()
    assert not Config().refusal("anything", "anybody")


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
    assert read_config('{"workflows": {"a": {"visible_to": []}}}').refusal("a", "plan")


def test_a_disabled_project_has_no_workflow() -> None:
    assert not read_config('{"enabled": false}').is_enabled("a")


def test_settings_cannot_be_changed() -> None:
    config = read_config(SEED)
    with pytest.raises(TypeError):
        config.workflows["old"] = WorkflowSettings()  # type: ignore[index]


def test_the_place_of_steps_is_host_shared_or_fresh() -> None:
    assert [read_config(f'{{"place": "{place}"}}').place for place in PLACEMENTS] == list(PLACEMENTS)
    with pytest.raises(InvalidDefinition, match="1:11: place must be host, shared or fresh"):
        read_config('{"place": "here"}')


def test_every_problem_is_reported_with_its_position() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read_config(
            '{"enable": true,\n "enabled": 1,\n "workflows": {"a": {"visible": []},\n'
            ' "b": {"visible_to": "plan"}, "c": 3}}'
        )
    assert [str(problem).removeprefix(".nerve/config.json:") for problem in caught.value.problems] == [
        "1:2: Unknown key 'enable' in the configuration. Did you mean 'enabled'?"
        " Valid keys: enabled, workflows_dir, workflows, providers, agents, mcp, models, slots, budget,"
        " router, max_connections, encryption, telemetry, place, public_url, notify, sign_in, chat.",
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


CHANNEL = '{"kind": "ntfy", "topic": "t"}'


def read_notify(text: str) -> Any:
    return read_config(f'{{"notify": {text}}}').notify


def test_notifications_have_channels_and_rules() -> None:
    settings = read_notify(
        '{"channels": {"phone": {"kind": "ntfy", "topic": "t", "token": {"env": "T"}}},'
        ' "rules": [{"events": ["gate_opened"], "to": ["phone", "bell"], "tags": {"team": "core"}}]}'
    )
    assert settings.channels["phone"].values == {"topic": "t", "token": SecretSource(env="T")}
    [rule] = settings.rules
    assert (rule.events, rule.to, rule.tags, rule.content) == (
        ("gate_opened",),
        ("phone", "bell"),
        {"team": "core"},
        False,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "1:12: 'notify' must be an object"),
        ('{"rule": []}', "1:13: Unknown key 'rule' in 'notify'. Did you mean 'rules'?"),
        (
            '{"channels": {"a": {"kind": "slak"}}}',
            "1:40: Unknown kind 'slak' of channel 'a'. Did you mean 'slack'?",
        ),
        ('{"channels": {"a": {}}}', "1:31: The kind of channel 'a' is missing"),
        ('{"channels": {"a": {"kind": "telegram"}}}', "1:31: Channel 'a' needs chat"),
        (
            '{"channels": {"a": {"kind": "slack", "token": "xoxb-1"}}}',
            "1:58: token of channel 'a' must say where the secret is",
        ),
        (
            '{"channels": {"a": {"kind": "webhook", "url": "ftp://x", "secret": {"env": "S"}}}}',
            "1:58: url of channel 'a' must be a URL that starts with https:// or http://",
        ),
        (
            '{"channels": {"a": {"kind": "ntfy", "topic": "t", "url": "https://u:p@x"}}}',
            "1:69: url of channel 'a' must not contain a user name or a password",
        ),
        (
            '{"channels": {"a": {"kind": "email", "host": "h", "from": "a@b", "to": "x y"}}}',
            "1:83: to of channel 'a' must be an e-mail address, such as ada@example.com",
        ),
        ('{"channels": {"bell": {"kind": "desktop"}}}', "1:34: The channel 'bell' needs no settings"),
        (
            '{"rules": [{"events": ["gate_open"], "to": ["bell"]}]}',
            "1:35: Unknown event 'gate_open' in events of rule 1 of 'notify'. Did you mean 'gate_opened'?",
        ),
        (
            f'{{"channels": {{"phone": {CHANNEL}}},'
            ' "rules": [{"events": ["run_failed"], "to": ["fone"]}]}',
            "1:112: Unknown channel 'fone' in to of rule 1 of 'notify'. Did you mean 'phone'?",
        ),
        ('{"rules": [{"to": ["bell"]}]}', "1:23: Rule 1 of 'notify' needs events"),
        ('{"rules": [{"events": [], "to": ["bell"]}]}', "1:34: Events of rule 1 of 'notify' must be a list"),
    ],
)
def test_problems_of_notifications_have_their_position(text: str, problem: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read_notify(text)
    assert str(caught.value.problems[0]).removeprefix(".nerve/config.json:").startswith(problem)


def test_content_of_an_encrypted_store_is_refused() -> None:
    rule = '{"events": ["gate_opened"], "to": ["bell"], "content": true}'
    with pytest.raises(InvalidDefinition, match="content of rule 1 of 'notify' must be false"):
        read_config(f'{{"encryption": {{"key_env": "K"}}, "notify": {{"rules": [{rule}]}}}}')


def test_the_public_address_has_no_slash_at_its_end() -> None:
    assert read_config('{"public_url": "https://a.example/nerve/"}').public_url == "https://a.example/nerve"
    for wrong in ("a.example", "https://a.example/?token=1", "https://user@a.example"):
        with pytest.raises(InvalidDefinition, match="public_url"):
            read_config(json.dumps({"public_url": wrong}))


def test_a_provider_for_the_sign_in_is_read() -> None:
    text = """{"sign_in": {"oidc": {"issuer": "https://login.example.com/", "client_id": "nerve",
        "client_secret": {"env": "OIDC_SECRET"}, "claim": "sub"}}}"""
    sign_in = read_config(text).sign_in
    assert sign_in is not None
    assert sign_in.oidc is not None
    oidc = sign_in.oidc
    assert (oidc.issuer, oidc.client_id) == ("https://login.example.com/", "nerve")
    assert (oidc.client_secret, oidc.contact) == (SecretSource(env="OIDC_SECRET"), "oidc")
    assert oidc.scopes == ("openid", "email", "profile")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"oicd": {}}', "Unknown key 'oicd' in 'sign_in'. Did you mean 'oidc'?"),
        ('{"oidc": {"client_id": "x"}}', "'oidc' needs issuer"),
        ('{"oidc": {"issuer": "https://a.example", "client_id": ""}}', "client_id of 'oidc' must be"),
        (
            '{"oidc": {"issuer": "http://a.example", "client_id": "x"}}',
            "issuer of 'oidc' must start with https",
        ),
        (
            '{"oidc": {"issuer": "https://a.example", "client_id": "x", "client_secret": "y"}}',
            "client_secret of 'oidc' must say where the secret is",
        ),
        (
            '{"oidc": {"issuer": "https://a.example", "client_id": "x", "scopes": ["email"]}}',
            "scopes of 'oidc' must be a list of names with 'openid'",
        ),
    ],
)
def test_a_mistake_in_the_sign_in_is_reported(text: str, problem: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read_config(f'{{"sign_in": {text}}}')
    assert problem in str(caught.value)


def test_a_rule_names_people_and_roles_if_a_channel_reaches_them() -> None:
    rules = '"rules": [{"events": ["gate_reminded"], "to": ["@lead"]}]'
    notify = read_notify(f'{{"channels": {{"phone": {{"kind": "ntfy", "topic": "t"}}}}, {rules}}}')
    assert notify.rules[0].to == ("@lead",)
    with pytest.raises(InvalidDefinition) as caught:
        read_notify(f"{{{rules}}}")
    assert "to of rule 1 of 'notify' names '@lead', but no channel reaches single people" in str(caught.value)
    with pytest.raises(InvalidDefinition, match="Unknown channel '@Lead'"):
        read_notify('{"rules": [{"events": ["gate_opened"], "to": ["@Lead"]}]}')
