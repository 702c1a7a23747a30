"""The commands of python -m syncline: the state of plans and runs, their results, retry, cancel and clean."""
