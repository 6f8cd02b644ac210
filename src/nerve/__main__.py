"""The `nerve` command, which `python -m nerve` is, too."""

from typing import NoReturn

from nerve.quiet import until_begun


def main() -> NoReturn:
    """Import the command line and do what it is asked."""
    until_begun()
    from nerve.cli import main

    main()


if __name__ == "__main__":
    main()
