"""Completion of file paths."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.commander.core.completion import CompletionNames, find_completions
from nerve.commander.path_completion import make_file_completer


def test_completed_paths_keep_the_typed_prefix(tmp_path: Path, monkeypatch) -> None:
    for name in ("src/app.py", "src/.secret", "README.md", "__pycache__/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    files = make_file_completer(tmp_path)
    assert files("./") == ["./README.md", "./src/"]
    assert files("./re") == ["./README.md"]
    assert files("") == ["README.md", "src/"]
    assert files("./src/") == ["./src/app.py"]
    assert files("./src/.") == ["./src/.secret"]
    assert files("~/sr") == ["~/src/"]
    assert files("./nothing/") == []
    assert [each.text for each in find_completions("read @./s", 9, CompletionNames(files=files))] == [
        "@./src/"
    ]


@given(st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_typed_path_is_accepted(tmp_path: Path, typed: str) -> None:
    assert all(path.startswith(typed.rpartition("/")[0]) for path in make_file_completer(tmp_path)(typed))
