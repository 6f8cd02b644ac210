"""The colours: those of the terminal unless somebody chooses others."""

from __future__ import annotations

import os

DEFAULT_THEME = "ansi-dark"
THEMES = (
    "ansi-dark",
    "ansi-light",
    "textual-dark",
    "textual-light",
    "nord",
    "gruvbox",
    "dracula",
    "tokyo-night",
    "monokai",
    "catppuccin-mocha",
    "catppuccin-latte",
    "solarized-light",
    "rose-pine",
)


def preferred_theme() -> str:
    """What the environment says: NERVE_THEME, or whether the terminal is light."""
    if (theme_name := os.environ.get("NERVE_THEME", "")) in THEMES:
        return theme_name
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi-light" if background in ("7", "15") else DEFAULT_THEME
