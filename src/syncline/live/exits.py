"""Exit codes of the processes of a run, beside 0 and 1."""

RESTART = 75  # the run must restart from its checkpoint
SHARD_LOST = 76  # a worker lost a shard, or cannot connect to one
CONTROL_LOST = 77  # a process lost its launcher
