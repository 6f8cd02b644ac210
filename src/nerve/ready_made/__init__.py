"""Ready-made workflows, which `nerve new --from NAME` copies into a project."""

from __future__ import annotations

from importlib import resources

__all__ = ["describe_ready_made", "read_ready_made", "ready_made_names"]

SUFFIX = ".yaml"
DESCRIPTION_KEY = "description: "


def ready_made_names() -> list[str]:
    """Return the names of the ready-made workflows, sorted."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def read_ready_made(name: str, new_name: str | None = None) -> str:
    """Return the text of a ready-made workflow, one of `ready_made_names`, under its or a new name."""
    text = resources.files(__name__).joinpath(name + SUFFIX).read_text(encoding="utf-8")
    if new_name in (None, name):
        return text
    # A name such as 21 or true needs its quotes.
    text = text.replace(f"\nname: {name}\n", f'\nname: "{new_name}"\n', 1)
    return text.replace(f"nerve run {name} ", f"nerve run {new_name} ")


def describe_ready_made(name: str) -> str:
    """Return the description of a ready-made workflow."""
    lines = read_ready_made(name).splitlines()
    return next(line.removeprefix(DESCRIPTION_KEY) for line in lines if line.startswith(DESCRIPTION_KEY))
