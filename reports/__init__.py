"""Tables and figures from stored records: no engine, no torch, no hydra."""
