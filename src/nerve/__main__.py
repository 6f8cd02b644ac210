"""Entry point of `nerve` and `python -m nerve`."""

import gc
import os
import sys
from contextlib import suppress
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
    except SystemExit as end:
        if "asyncio" not in sys.modules and isinstance(end.code, int):
            # Without an event loop there is nothing to close, and freeing the modules takes long.
            with suppress(OSError):
                sys.stderr.flush()
            os._exit(end.code)
        raise
    finally:
        # The interpreter searches for garbage several times as it ends; the system frees the memory anyway.
        gc.freeze()


if __name__ == "__main__":
    main()
