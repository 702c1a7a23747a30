"""Commands of `syncline`: the state of plans and runs, their results, retry, cancel and clean."""
