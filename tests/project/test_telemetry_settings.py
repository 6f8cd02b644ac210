"""The key `telemetry` of the configuration."""

import pytest

from nerve.project.config import TelemetrySettings, read_config
from nerve.text.source import InvalidDefinition


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("{}", None),
        ('{"telemetry": false}', None),
        ('{"telemetry": true}', TelemetrySettings()),
        ('{"telemetry": {}}', TelemetrySettings()),
        ('{"telemetry": {"content": true}}', TelemetrySettings(content=True)),
    ],
)
def test_it_is_a_switch_or_an_object(text: str, settings: TelemetrySettings | None) -> None:
    assert read_config(text).telemetry == settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"telemetry": 1}', "1:15: 'telemetry' must be an object"),
        ('{"telemetry": {"contents": true}}', "1:16: Unknown key 'contents' in 'telemetry'"),
        ('{"telemetry": {"content": 1}}', "1:27: content of the telemetry must be true or false"),
    ],
)
def test_other_values_are_reported_with_their_position(text: str, problem: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read_config(text)
    assert problem in str(caught.value)
