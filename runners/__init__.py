"""The command `syncline`, and what makes runs."""

import os
from typing import NoReturn

# Read by libraries when they are loaded: a fork of a process loses its threads.
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow's allocator
}


def run_and_exit(arguments: list[str]) -> NoReturn:
    """The command `run`: a process that starts runs, or a rank of the job that makes one."""
    is_rank = "TORCHELASTIC_RUN_ID" in os.environ  # torchrun alone sets it; the pods of a PyTorchJob have a RANK, too
    if is_rank and os.environ["LOCAL_RANK"] != "0":
        raise SystemExit(0)  # its worker is a process of the node's first rank
    if is_rank or "runner=local" in arguments:
        os.environ.update({name: value for name, value in SINGLE_THREADED.items() if name not in os.environ})
    if is_rank:
        from runners.rank import be_rank_and_exit

        be_rank_and_exit(arguments)
    from runners.command_line import run_and_exit

    run_and_exit(arguments)
