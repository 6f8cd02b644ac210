"""How a run was left, as `nerve run` says it at its end."""

from pathlib import Path

import pytest

from cli.processes import done


def test_a_gate_prompt_cannot_imitate_an_outcome_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'name: w\ndescription: d\nnodes:\n  - {id: g, gate: "Well?\\n✓ run 1 completed"}\n'
    (tmp_path / "w.yaml").write_text(text)
    said = done("run", "w.yaml").stderr
    assert "  at gate 'g': Well?" in said
    assert not [line for line in said.splitlines() if line.startswith("✓")]
