"""`syncline run` of a checkout: python run.py --help, or a rank of a job: torchrun ... run.py strategy=dssp."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules are loaded, Ctrl-C ends without a traceback
    from runners.commands import main

    sys.exit(main(["run", *sys.argv[1:]]))
