"""Exit codes of the processes of a run, beside 0 and 1."""

RESTART = 75  # the run is to begin again from its checkpoint
SHARD_GONE = 76  # a worker lost a shard, or cannot reach one
LINE_LOST = 77  # a process lost its launcher
