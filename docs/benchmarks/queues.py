#!/usr/bin/env python3
"""Makes a list of jobs of three queues that come and go, with priorities, gangs and preemption.

    queues.py CARDS DAYS > LIST

What comes in DAYS days asks for 97 per cent of so many CARDS; by day twice as much comes as by night. The list is in the format of
our own (docs/simulate.md), and the same each time.
"""

import csv
import math
import random
import sys

HOUR, DAY = 3600, 24 * 3600
OFFERED = 0.97

#: For each queue: its part of what is offered, (workers, cards of each, thousandths of a card) with how often, the median of the
#: runtime in hours, how far it scatters, priorities, and whether its jobs may be preempted.
QUEUES = {
    "training": (0.55, {(1, 8, 1000): 4, (1, 4, 1000): 6, (4, 8, 1000): 2, (8, 4, 1000): 1, (1, 1, 1000): 7}, 3.0, 1.2, (40, 60), "true"),
    "serving": (0.25, {(1, 1, 250): 6, (1, 1, 500): 5, (1, 1, 1000): 3, (2, 1, 1000): 1}, 12.0, 0.6, (80, 80), "false"),
    "notebooks": (0.20, {(1, 1, 100): 8, (1, 1, 250): 5, (1, 1, 500): 3, (1, 2, 1000): 1}, 1.0, 1.0, (20, 50), "true"),
}


def arrival(draw, days):
    """A second, by day twice as often as by night."""
    while True:
        second = draw.uniform(0, days * DAY)
        if draw.random() * 1.5 < 1 + 0.5 * math.sin(2 * math.pi * (second % DAY) / DAY - math.pi / 2):
            return int(second)


def jobs_of(draw, queue, cards, days):
    share, shapes, median, scatter, priorities, preemptible = QUEUES[queue]
    left = OFFERED * share * cards * days * DAY
    while left > 0:
        workers, of_each, milli = draw.choices(list(shapes), list(shapes.values()))[0]
        runtime = int(min(max(draw.lognormvariate(math.log(median * HOUR), scatter), 60), 2 * DAY))
        left -= workers * of_each * milli / 1000 * runtime
        yield {
            "cards": of_each, "card_milli": milli, "cpu_milli": 1000, "memory_mib": 4096, "submitted_s": arrival(draw, days),
            "runtime_s": runtime, "workers": workers, "queue": queue, "priority": draw.choice(priorities), "preemptible": preemptible,
        }  # fmt: skip


def main(cards, days):
    draw = random.Random(7)
    jobs = sorted((job for queue in QUEUES for job in jobs_of(draw, queue, int(cards), int(days))), key=lambda job: job["submitted_s"])
    out = csv.DictWriter(sys.stdout, ["job", *jobs[0]], lineterminator="\n")
    out.writeheader()
    out.writerows({"job": f"job-{number}", **job} for number, job in enumerate(jobs))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
