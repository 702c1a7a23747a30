"""`syncline run` of a checkout: python run.py --help."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are loaded, Ctrl-C ends without a traceback
    from runners.command_line import run_and_exit

    run_and_exit(sys.argv[1:])
