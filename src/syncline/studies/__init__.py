"""Studies: what is to be run next follows from what was run."""
