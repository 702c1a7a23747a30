"""Side-by-side measurements of speed; every figure is a ratio or a rate of one run on one machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
