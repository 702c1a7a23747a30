"""The command `syncline`, and what makes runs."""

import os
from typing import NoReturn


def run_and_exit(arguments: list[str]) -> NoReturn:
    """The command `run`: a process that starts runs, or a rank of the job that makes one."""
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun alone sets it; the pods of a PyTorchJob have a RANK, too
        if os.environ["LOCAL_RANK"] != "0":
            raise SystemExit(0)  # its worker is a process of the node's first rank
        from runners.rank import be_rank_and_exit

        be_rank_and_exit(arguments)
    from runners.command_line import run_and_exit

    run_and_exit(arguments)
