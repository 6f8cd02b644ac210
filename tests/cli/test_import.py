"""`nerve import`: files of Archon and Claude Code in another folder come into the project, with a report."""

from pathlib import Path

import pytest

FILES = {
    ".archon/workflows/fix.yaml": """name: fix
description: Fix an issue
nodes:
  - {id: look, command: look}
  - {id: act, prompt: "Act on $look.output", depends_on: [look], always_run: true}
  - {id: tell, script: count, runtime: uv, depends_on: [act]}
  - {id: more, workflow: other, depends_on: [act]}
""",
    ".archon/workflows/deep/other.yaml": """name: other
description: Another
nodes:
  - {id: say, bash: echo other}
  - {id: use, bash: "echo $say.output", depends_on: [say]}
""",
    ".archon/workflows/bad.yaml": """name: bad
description: Not possible
nodes:
  - {id: a, prompt: x, thinking: {type: enabled}}
""",
    ".archon/commands/look.md": "---\ndescription: Look.\n---\nLook at $ARGUMENTS\n",
    ".archon/commands/unused.md": "Nothing uses this.\n",
    ".archon/scripts/count.py": "print(1)\n",
    ".claude/commands/git/commit.md": (
        "---\ndescription: Use it for: commits\nallowed-tools: Bash(git add:*)\ncontext: fork\n---\n"
        "Commit !`git status`\n"
    ),
    ".claude/agents/reviewer.md": "---\nname: reviewer\ndescription: Reviews: code\n---\nYou review.\n",
    ".claude/skills/pdf/SKILL.md": "---\nname: pdf\ndescription: PDF files\n---\nRead.\n",
    ".claude/skills/pdf/scripts/read.sh": "echo read\n",
    ".claude/settings.json": "{}\n",
}


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of somebody else."""
    folder = tmp_path_factory.mktemp("source")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def statuses(report) -> dict[str, str]:
    return {file["target"]: file["status"] for file in report.json["files"]}


def test_the_files_of_a_project_are_copied_to_the_same_places(do, project: Path, source: Path) -> None:
    done = do("import", str(source), "--json")
    assert statuses(done) == {
        **{name: "imported" for name in FILES if "scripts/read" not in name},
        ".archon/workflows/bad.yaml": "refused",
        ".claude/settings.json": "not read",
    }
    assert done.code == 1  # one was refused
    for name, text in FILES.items():
        if name not in (".archon/workflows/bad.yaml", ".claude/settings.json"):
            assert (project / name).read_text() == text
    assert not (project / ".archon/workflows/bad.yaml").exists()
    assert not (project / ".claude/settings.json").exists()
    assert do("check", "fix").code == 0


def test_the_report_says_what_has_no_effect_what_was_refused_and_why(do, source: Path) -> None:
    lines = do("import", str(source)).out.splitlines()
    refused = lines.index("refused    Archon workflow       .archon/workflows/bad.yaml")
    assert "'thinking': The thinking of a step is not supported" in lines[refused + 1]
    fix = lines.index("imported   Archon workflow       .archon/workflows/fix.yaml")
    assert "warning: 'always_run' has no effect" in lines[fix + 1]
    command = lines.index("imported   Claude Code command   .claude/commands/git/commit.md")
    assert "warning: 'context' has no effect in Nerve" in lines[command + 1]
    settings = lines.index("not read   Claude Code settings  .claude/settings.json")
    assert "Write what it sets into the step, or into .nerve/config.json." in lines[settings + 1]
    assert lines[-1] == "10 files: 8 imported, 1 refused, 1 not read"


def test_a_dry_run_writes_nothing(do, project: Path, source: Path) -> None:
    done = do("import", str(source), "--dry-run")
    assert done.out.endswith("Dry run, nothing was written. 10 files: 8 imported, 1 refused, 1 not read\n")
    assert not (project / ".archon").exists()
    assert not (project / ".claude").exists()


def test_an_existing_file_is_never_changed_and_a_second_import_changes_nothing(
    do, project: Path, source: Path
) -> None:
    do("import", str(source))
    (project / ".archon/commands/look.md").write_text("mine\n")
    again = do("import", str(source), "--json")
    assert statuses(again)[".archon/commands/look.md"] == "exists"
    assert set(statuses(again).values()) == {"unchanged", "exists", "refused", "not read"}
    assert (project / ".archon/commands/look.md").read_text() == "mine\n"
    told = do("import", str(source), "--quiet").out
    assert "A different file is there. Compare them: diff .archon/commands/look.md" in told
    assert "unchanged" not in told


def test_one_workflow_comes_with_the_files_that_it_names(do, project: Path, source: Path) -> None:
    done = do("import", str(source / ".archon/workflows/fix.yaml"), "--json")
    assert (done.code, statuses(done)) == (
        0,
        dict.fromkeys(
            [
                ".archon/workflows/fix.yaml",
                ".archon/workflows/deep/other.yaml",
                ".archon/commands/look.md",
                ".archon/scripts/count.py",
            ],
            "imported",
        ),
    )


def test_workflows_can_be_converted_to_our_form_with_their_commands(do, project: Path, source: Path) -> None:
    done = do("import", str(source / ".archon/workflows/fix.yaml"), "--to", "yaml", "--json")
    assert statuses(done) == {
        ".nerve/workflows/fix.yaml": "imported",
        ".nerve/workflows/other.yaml": "imported",
        ".archon/scripts/count.py": "imported",
    }
    assert "Look at {{ input" in (project / ".nerve/workflows/fix.yaml").read_text()
    assert do("check", "fix", "other").code == 0
    assert do("run", "other", "--quiet").out == "other\n"


def test_the_files_of_this_project_stay_where_they_are(do, project: Path, source: Path) -> None:
    do("import", str(source))
    own = statuses(do("import", "--json"))
    assert set(own.values()) == {"in place"}


def test_a_folder_of_a_plugin_has_commands_agents_and_skills(do, project: Path, source: Path) -> None:
    (source / ".claude").rename(source / "plugin")
    assert set(statuses(do("import", str(source / "plugin"), "--json"))) == {
        ".claude/commands/git/commit.md",
        ".claude/agents/reviewer.md",
        ".claude/skills/pdf/SKILL.md",
    }
    assert (project / ".claude/skills/pdf/scripts/read.sh").is_file()


def test_a_file_that_leads_out_of_its_project_is_refused(
    do, project: Path, source: Path, tmp_path: Path
) -> None:
    secret = source.parent / "secret.md"
    secret.write_text("secret\n")
    (source / ".claude/commands/leak.md").symlink_to(secret)
    done = do("import", str(source / ".claude"), "--json")
    assert statuses(done)[".claude/commands/leak.md"] == "refused"
    assert not (project / ".claude/commands/leak.md").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "Folder or file not found: nowhere."),
        (".", "has no files of Archon or Claude Code. Name a project with .archon or .claude"),
        (".nerve/workflows/ship.json", "has no files of Archon or Claude Code."),
    ],
)
def test_a_source_without_such_files_is_refused(do, project: Path, name: str, message: str) -> None:
    refused = do("import", name)
    assert (refused.code, message in refused.err) == (2, True)
