"""A mistake inside a text is placed exactly where it stands in the file, whatever stands before it."""

import pytest

from nerve.notations import read_source
from nerve.spec.checker import check_document

YAML = "name: flow\ndescription: What it is for.\nnodes:\n  - id: a\n    prompt: "
JSON = '{"id": "flow", "steps": [\n{"id": "a", "type": "approval", "message": '
LISP = '(spec {:name "flow"\n :body {:kind "gate" :prompt '


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{YAML}'x {{{{ foo }}}}'\n", id="a text in quotes"),
        pytest.param(f"{YAML}'日本😀 {{{{ foo }}}}'\n", id="wide characters"),
        pytest.param(f"{YAML}|\n      one\n      x {{{{ foo }}}}\n", id="a line of a long text"),
        pytest.param(f"{YAML}|2\n        deep\n      x {{{{ foo }}}}\n", id="a long text that begins deeper"),
        pytest.param(f"{YAML}|\n\n\n      x {{{{ foo }}}}\n", id="a long text that begins with empty lines"),
        pytest.param(f"{YAML}| # why\n      x {{{{ foo }}}}\n", id="a comment behind the bar"),
        pytest.param(f"{YAML}|\n      one\n      x {{{{ foo }}}}\n".replace("\n", "\r\n"), id="CRLF in YAML"),
        pytest.param(f"{YAML}'x {{{{ foo }}}}'\n".replace("What", "\u2028"), id="a line separator in YAML"),
        pytest.param(f'{JSON}"x {{{{ foo }}}}"}}]}}', id="JSON"),
        pytest.param(f'{JSON}"日本😀 {{{{ foo }}}}"}}]}}', id="wide characters in JSON"),
        pytest.param(f'{JSON}"x {{{{ foo }}}}"}}]}}'.replace("\n", "\r\n\t"), id="CRLF and a tab in JSON"),
        pytest.param(
            f'{JSON}"x {{{{ foo }}}}"}}]}}'.replace("flow", "fl\u2028ow"), id="a line separator in JSON"
        ),
        pytest.param(f'{LISP}"x {{{{ foo }}}}"}}}})', id="Lisp"),
        pytest.param(f'{LISP}"one\r\ntwo {{{{ foo }}}}"}}}})', id="CRLF in a text in Lisp"),
        pytest.param(f'{LISP}"x {{{{ foo }}}}"}}}})'.replace("flow", "fl\x85ow"), id="a next line in Lisp"),
    ],
)
def test_an_unknown_name_is_reported_at_its_position(text: str) -> None:
    (problem,) = check_document(read_source(text)).errors
    line = text.split("\n")[problem.position.line - 1]
    assert line[problem.position.column - 1 :].startswith("foo")


def test_a_text_that_is_escaped_in_its_file_is_shown_as_it_reads() -> None:
    (problem,) = check_document(read_source(f'{JSON}"one\\ntwo {{{{ foo }}}}"}}]}}')).errors
    assert problem.message == "Unknown name `foo` (column 8 of 'two {{ foo }}')"
