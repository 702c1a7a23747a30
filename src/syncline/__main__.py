"""The command `syncline`, also as python -m syncline."""

import sys
from typing import NoReturn

from runners.commands import main


def entry() -> NoReturn:
    """The script `syncline`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
