"""`python -m picker` is the `picker` command."""

from picker.cli import main

main()
