"""The themes; the default uses the colours of the terminal."""

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
    """Return the theme from NERVE_THEME, or by the terminal background in COLORFGBG."""
    if (theme_name := os.environ.get("NERVE_THEME", "")) in THEMES:
        return theme_name
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi-light" if background in ("7", "15") else DEFAULT_THEME
