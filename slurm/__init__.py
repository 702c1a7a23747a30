"""Scripts for sbatch, from pure functions; nothing of ours is imported, nothing is read or started."""
