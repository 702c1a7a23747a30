"""What becomes of plans: who makes them, what waits, what is left."""
