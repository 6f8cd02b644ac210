"""Entry point of `nerve` and `python -m nerve`."""

import gc
from typing import NoReturn

from nerve.early_interrupt import install_early_interrupt

GARBAGE_THRESHOLD = 20_000
"""New objects before the next search for garbage. Imports create many objects and little garbage."""


def main() -> NoReturn:
    """Run the command line; its imports take time, so Ctrl-C is handled before."""
    install_early_interrupt()
    gc.set_threshold(GARBAGE_THRESHOLD)
    from nerve.cli import main

    try:
        main()
    finally:
        # The interpreter searches for garbage several times as it ends; the system frees the memory anyway.
        gc.freeze()


if __name__ == "__main__":
    main()
