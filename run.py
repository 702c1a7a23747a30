"""`syncline run` of a checkout: python run.py --help."""

import sys

from runners.command_line import run_and_exit

if __name__ == "__main__":
    run_and_exit(sys.argv[1:])
