"""`python -m engine` is `berth`."""

from engine.cli import main

main()
