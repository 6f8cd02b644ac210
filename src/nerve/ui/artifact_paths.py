"""Find artifacts of runs among the paths that steps return."""

from __future__ import annotations

import re
from typing import NamedTuple

_ARTIFACT_PATH = re.compile(r"(?:.*/)?\.[a-z]+/artifacts/([A-Za-z0-9][A-Za-z0-9-]{7,127})/(.+)", re.DOTALL)


class ArtifactReference(NamedTuple):
    """An artifact by its run and its name."""

    run_id: str
    name: str


def find_artifact(path: str) -> ArtifactReference | None:
    """Return the artifact that a path in a project means; None if it means another file.

    The path may be absolute, or relative to the project: `.nerve/artifacts/RUN/charts/cost.png`.
    """
    match = _ARTIFACT_PATH.fullmatch(path)
    if match is None or {"", ".", ".."} & set(match[2].split("/")):
        return None
    return ArtifactReference(match[1], match[2])
