"""The growth that each measure may show over a soak, of all processes of a role together, and why.

A fixed part is what does not depend on the number of jobs: the processes of the second count may have been started again, have led, or
have met a fault. A part for each job is what they keep of it on purpose.
"""

import os

from counts import OWN, Growth

NONE = Growth(0)

#: Measures of members and of agents.
BOTH = {
    # Connections that a caller keeps, and of new files of the store, which are open as long as they are there.
    "open files": Growth(150),
    # Threads for blocking calls, which end 10 s after their last one and begin again with every question of the count itself.
    "threads": Growth(60),
    "zombies": NONE,
    # Names of calls, outcomes and refusals that a process meets for the first time; who has led has those of a leader from then on.
    "series": Growth(300),
    "series of jobs": NONE,
    # Faults are told; what is told of a job is a few lines.
    "log KiB": Growth(2_048, per_job=4),
}
ALLOWED = {
    "members": {
        **BOTH,
        # Caches of the store; answered request ids, for an hour.
        OWN: Growth(300 << 10, per_job=64),
        "children": NONE,
        # Files of the store, which writes some at each start, and has more or fewer of them before and after it compacts.
        "files": Growth(150),
        # The log, as far as snapshots have not taken its place; answered request ids; the accounts, for each job.
        "files KiB": Growth(96 << 10, per_job=64),
        "empty folders": NONE,
    },
    "agents": {
        **BOTH,
        # An agent that has run many jobs at once, and saved their checkpoints, keeps 10 to 15 MiB more than one that has just started,
        # where it has two processors: the allocator keeps a little for each of its threads, of which there are as many.
        OWN: Growth((40 << 10) + (10 << 10) * os.cpu_count(), per_job=4),
        # Each has a supervisor in reserve, in both counts.
        "children": NONE,
        # The note by which an order that comes late is answered, for an hour: a file in a folder, for each attempt of each worker.
        "files": Growth(100, per_job=2),
        "files KiB": Growth(1_024, per_job=8),
        # Folders of jobs whose last checkpoint is just being removed.
        "empty folders": Growth(20),
        "control groups": NONE,
    },
}
