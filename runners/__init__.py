"""The command `syncline`, and what makes runs."""
