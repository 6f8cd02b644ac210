"""docs/reference/cli.md: its example is real, its commands say what it shows, and nothing is missing."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from nerve.cli import exit_codes
from nerve.cli.answer import AnswerOptions
from nerve.cli.command_table import CLI_COMMANDS, NESTED_TABLES
from nerve.cli.parameters import CommonOptions
from nerve.cli.start import StartOptions

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?", "ID"),
    (r"--gate [0-9a-f]{8}", "--gate ID"),
    (r" *\(\d+\.\ds\)", " (TIME)"),
    (r"\d+(\.\d)?s", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
    (r"started by \w+", "started by USER"),
    (r"yes by \w+ \(cli\)", "yes by USER (cli)"),
]


@pytest.fixture
def example(project, tmp_path_factory, monkeypatch) -> None:
    """The project of the page."""
    folder = tmp_path_factory.mktemp("page")
    monkeypatch.chdir(folder)
    [(name, text)] = re.findall(r"^`([^`]+)`:\n\n```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(text)


def same(text: str) -> str:
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def read_commands() -> list[str]:
    """Return the commands of the page without `$ nerve `, each with what it prints."""
    blocks = [block for kind, block in FENCE.findall(PAGE) if kind == "console"]
    return [part for block in blocks for part in re.split(r"^\$ nerve ", block, flags=re.MULTILINE)[1:]]


def is_import(command: str) -> bool:
    return command.startswith("import ")


def test_the_report_of_an_import_is_the_one_on_the_page(do, project) -> None:
    files = {
        "app/.archon/workflows/fix.yaml": "name: fix\ndescription: Fix an issue\nnodes:\n"
        "  - id: look\n    command: look\n  - id: act\n    prompt: Act\n    depends_on: [look]\n"
        "    always_run: true\n",
        "app/.archon/workflows/triage.yaml": "name: triage\ndescription: Label issues\nnodes:\n"
        "  - id: read\n    prompt: Read\n    depends_on: []\n    thinking: {type: enabled}\n",
        "app/.archon/commands/look.md": "Look at $ARGUMENTS\n",
        "app/.claude/settings.json": "{}\n",
        f"{project.name}/.archon/commands/look.md": "Look closely at $ARGUMENTS\n",
    }
    for name, text in files.items():
        file = project.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    [command] = filter(is_import, read_commands())
    line, _, shown = command.partition("\n")
    assert do(*line.split()).out == shown


def test_every_command_prints_what_the_page_shows(do, example) -> None:
    commands = [command for command in read_commands() if not is_import(command)]
    assert len(commands) == 17
    for command in commands:
        line, _, shown = command.partition("\n")
        done = do(*line.split())
        said = done.out + done.err if line.startswith("init") else done.err + done.out
        assert same(said) == same(shown), line


def test_every_command_option_and_exit_code_is_on_the_page() -> None:
    nested = [f"{group} {name}" for group, entries in NESTED_TABLES.items() for name in entries]
    for verb in [*CLI_COMMANDS, *nested]:
        assert f"`nerve {verb}" in PAGE
    functions = [
        resolve_name(entry.import_path)
        for entries in (CLI_COMMANDS, *NESTED_TABLES.values())
        for entry in entries.values()
    ]
    names = {name for function in functions for name in function.__kwdefaults__ or ()}
    shared = {
        name
        for options in (CommonOptions, StartOptions, AnswerOptions)
        for name in options.__dataclass_fields__
    }
    for name in (names | shared) - {"common", "options"}:
        renamed = {"modules": "with", "source": "from", "as_person": "as"}
        option = renamed.get(name, name.rstrip("_").replace("_", "-"))
        assert f"--{option}" in PAGE
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == codes
