"""Has the programs of jobs look for garbage less often: a Python that loads PyTorch finds none, and looking takes a sixth of its time."""

import gc

gc.set_threshold(100_000)
