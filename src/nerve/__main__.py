"""Entry point of `nerve` and `python -m nerve`."""

from typing import NoReturn

from nerve.early_interrupt import install_early_interrupt


def main() -> NoReturn:
    """Run the command line; its imports take time, so Ctrl-C is handled before."""
    install_early_interrupt()
    from nerve.cli import main

    main()


if __name__ == "__main__":
    main()
