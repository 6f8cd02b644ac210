"""The `nerve` command, which `python -m nerve` is, too."""

from typing import NoReturn

from nerve.early_interrupt import install_early_interrupt


def main() -> NoReturn:
    """Import the command line and do what it is asked."""
    install_early_interrupt()
    from nerve.cli import main

    main()


if __name__ == "__main__":
    main()
