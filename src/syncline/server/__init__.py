"""What a shard of the parameter server is, whoever drives it: the simulator, a real process, or replay."""
