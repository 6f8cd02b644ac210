"""Option types that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
TextList = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
FileList = Annotated[tuple[Path, ...], Parameter(name="--with", negative="", show_default=False)]
