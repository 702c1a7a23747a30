"""Side-by-side measurements of speed; every figure is a ratio or a rate of one run on one machine."""
