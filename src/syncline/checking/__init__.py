"""Holds parts of the user's own, and ours, to what the engines rely on."""
