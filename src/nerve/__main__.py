"""`python -m nerve` is `nerve`."""

from nerve.cli import main

main()
