"""python -m certood is certood."""

from certood.cli import main

main()
