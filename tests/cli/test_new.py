"""`nerve new`: templates and ready-made workflows."""

from pathlib import Path

import pytest

from nerve.ready_made import read_ready_made, ready_made_names


def test_without_a_value_from_lists_the_ready_made_workflows(do) -> None:
    listed = do("new", "--from")
    assert [line.split()[0] for line in listed.out.splitlines()] == ready_made_names()
    assert list(do("new", "--from", "--json").json["workflows"]) == ready_made_names()


@pytest.mark.parametrize("name", ready_made_names())
def test_a_ready_made_workflow_is_copied_and_passes_the_check_without_warnings(
    do, project: Path, name: str
) -> None:
    done = do("new", "--from", name)
    assert (done.code, done.out) == (0, f".nerve/workflows/{name}.yaml\n")
    assert (project / done.out.strip()).read_text() == read_ready_made(name)
    assert do("check", name).out == "1 workflow, no problems\n"


def test_a_copy_can_have_another_name(do) -> None:
    assert do("new", "mend", "--from", "fix-issue", "--json").json == {"file": ".nerve/workflows/mend.yaml"}
    assert do("check", "mend").code == 0


def test_the_name_of_a_copy_may_follow_the_ready_made_workflow(do) -> None:
    assert do("new", "--from", "fix-issue", "mend").out == ".nerve/workflows/mend.yaml\n"
    refused = do("new", "mend", "--from", "fix-issue", "repair")
    assert refused.code == 2
    assert "Two names were given, 'mend' and 'repair'. Give one." in refused.err


def test_an_existing_file_is_never_changed(do, project: Path) -> None:
    file = project / ".nerve/workflows/fix-issue.yaml"
    file.write_text("mine")
    refused = do("new", "--from", "fix-issue")
    assert (refused.code, file.read_text()) == (2, "mine")
    assert ".nerve/workflows/fix-issue.yaml already exists." in refused.err


def test_an_unknown_name_is_refused_with_the_known_ones(do) -> None:
    refused = do("new", "--from", "fix-isue")
    assert refused.code == 2
    assert (
        "Unknown ready-made workflow 'fix-isue'. Did you mean 'fix-issue'? Known: fix-issue, " in refused.err
    )
    assert "'x'. Known: fix-issue, " in do("new", "--from", "x").err


def test_a_name_or_a_ready_made_workflow_is_needed(do) -> None:
    refused = do("new")
    assert refused.code == 2
    assert "nerve new NAME, or nerve new --from READY-MADE" in refused.err


def test_a_ready_made_workflow_is_a_yaml_file(do) -> None:
    refused = do("new", "--from", "fix-issue", "--to", "lisp")
    assert refused.code == 2
    assert "nerve convert fix-issue --to lisp" in refused.err


def test_a_template_is_written_in_each_notation(do) -> None:
    assert do("new", "tidy").out == ".nerve/workflows/tidy.yaml\n"
    assert do("new", "neat", "--to", "lisp").out == ".nerve/workflows/neat.lisp\n"
    assert do("check", "tidy", "neat").code == 0
