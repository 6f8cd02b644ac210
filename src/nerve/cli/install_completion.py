"""`nerve --install-completion`."""

from __future__ import annotations

from cyclopts.completion.install import create_install_completion_command

from nerve.cli.parser import app

install_completion_command = create_install_completion_command(app.install_completion, add_to_startup=True)
