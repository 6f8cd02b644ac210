"""The response with the bytes of an artifact, which may be anything that an agent or a program wrote."""

from __future__ import annotations

from email.utils import format_datetime
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from nerve.api.artifacts import OpenArtifact

ARTIFACT_PATH = "/api/runs/{run}/artifacts/{name}"
INLINE_TYPES = ("image/", "text/", "application/json")
"""What a browser may show; it saves everything else."""
ARTIFACT_POLICY = "sandbox; default-src 'none'"


def respond_with_artifact(artifact: OpenArtifact, method: str) -> Response:
    """Return the bytes of an artifact, so that a browser runs nothing of it; without a body for HEAD."""
    about = artifact.about
    disposition = "inline" if about.media_type.startswith(INLINE_TYPES) else "attachment"
    file_name = quote(about.name.rpartition("/")[2], safe="")
    charset = "; charset=utf-8" if about.media_type.startswith("text/") else ""
    headers = {
        "content-type": about.media_type + charset,
        "content-length": str(about.size),
        "content-disposition": f"{disposition}; filename*=UTF-8''{file_name}",
        "content-security-policy": ARTIFACT_POLICY,
        "cross-origin-resource-policy": "same-origin",
        "last-modified": format_datetime(about.modified_at, usegmt=True),
        "x-content-type-options": "nosniff",
    }
    if method == "HEAD":
        artifact.file.close()
        return Response(headers=headers)
    return StreamingResponse(artifact.chunks(), headers=headers)
