#!/usr/bin/env python3
"""A pool under jobs of all kinds, with all ends, and under faults: soak.py --binary TESSERA [--seconds N] [--seed N]

Three members and three agents run on loopback. For so many seconds a few hands at a time submit jobs of all kinds
(`kinds.py`) and do with each what its kind demands, while members and agents are killed, stopped and restarted, nodes are drained
and leadership is handed over (`faults.py`). At the end each job must have the end of its kind, nothing acknowledged may be missing,
members must agree, and accounts must add up. What processes, folders and the host hold is counted after a warm-up and at the end;
what grew per 1,000 jobs is printed, and what must not grow fails the run (`counts.py`, `allowed.py`).

The seed decides the order of kinds and faults; what happens at once is not for it to say.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

from allowed import ALLOWED
from checks import accounts, agreement, ends, panics
from counts import CGROUPS, OWN, Table, count
from faults import Faults
from kinds import KINDS
from pool import OVER, Pool, Refused, rest, until
from work import ENDS, Ledger, state

#: Jobs of kinds that are at work at the same time.
HANDS = 6
#: The time after which a run waits for the end of all jobs and checks them, so that no list grows without end.
ROUND_S = 600
#: The least time under faults, however long the start took.
LEAST_S = 10
#: The time that counts may take to come down to what is allowed: threads end 10 s after their last work, connections are closed after as
#: long, and files of the store go when it has compacted.
SETTLES_S = 60
#: The time until control groups can be removed.
CLOSES_S = 10


def say(text):
    print(f"soak: {text}", flush=True)


def kinds(seed):
    """Kinds without end, in an order that the seed decides: all of them, then all of them again."""
    shuffled = random.Random(seed)
    while True:
        yield from shuffled.sample(KINDS, len(KINDS))


class Soak:
    """One run."""

    def __init__(self, pool, seconds, seed):
        self.pool, self.seconds, self.seed = pool, seconds, seed
        self.faults = Faults(pool, random.Random(seed))
        self.ledger = Ledger(pool, self.faults.made)
        self.roles = {"members": pool.member_names(), "agents": pool.nodes}
        self.begun = time.monotonic()

    def run(self):
        """Runs everything in order; what is wrong is in the ledger."""
        self.pool.bring_up()
        fresh = count(self.pool)
        self.say("the pool is up; each kind once, without faults")
        self.work(iter(KINDS), threading.Event())
        warm = self.close_books()
        before = {name: {**counts, OWN: fresh[name][OWN]} for name, counts in count(self.pool).items()}
        jobs, end = 0, max(self.begun + self.seconds, time.monotonic() + LEAST_S)
        while (seconds := min(end - time.monotonic(), ROUND_S)) > 0:
            self.say(f"{warm + jobs} jobs have ended, {len(self.faults.made)} faults were made; on for {seconds:.0f} s")
            self.work_under_faults(seconds)
            jobs += self.close_books()
        self.say("all jobs have ended; counting")
        self.ledger.wrong += panics(self.pool)
        self.compare(before, jobs)

    def say(self, text):
        say(f"{time.monotonic() - self.begun:4.0f} s: {text}")

    def work(self, deck, end):
        """Has hands take kinds from the deck until it is empty or the end has come, and waits until their jobs have ended."""
        dealing = threading.Lock()

        def hand():
            while not end.is_set() and not OVER.is_set():
                with dealing:
                    kind = next(deck, None)
                if kind is None:
                    return
                self.ledger.work(kind, self.seed)

        hands = [threading.Thread(target=hand, daemon=True) for _ in range(HANDS)]
        for each in hands:
            each.start()
        for each in hands:
            each.join()

    def work_under_faults(self, seconds):
        end = threading.Event()
        working = threading.Thread(target=self.work, args=(kinds(self.seed), end), daemon=True)
        working.start()
        clock = threading.Timer(seconds, end.set)
        clock.daemon = True
        clock.start()
        try:
            self.faults.run(end)
        except (AssertionError, Refused) as error:
            self.ledger.wrong.append(f"the pool is not whole after {self.faults.made[-1:]}: {error}")
        finally:
            end.set()
        working.join()

    def close_books(self):
        """Checks all jobs since the last time, has the pool forget them and nodes remove their output, and returns their number."""
        if dead := self.pool.dead():
            raise AssertionError(f"what nobody ended has ended: {', '.join(dead)}")
        jobs = self.pool.jobs()
        self.ledger.wrong += ends(self.ledger, jobs)
        if unended := [number for number, job in jobs.items() if state(job) not in ENDS]:
            raise AssertionError(f"nobody waits for the jobs {unended} any more, and they have not ended")
        self.ledger.wrong += agreement(self.pool, jobs) + accounts(self.pool, jobs, self.ledger.since)
        self.ledger.begin()
        retention = itertools.cycle(("1ms", "2ms"))

        def forgotten():
            # Whatever is over goes when the settings change, and then once a minute.
            self.keep(next(retention))
            kept = [path for node in self.pool.nodes for path in self.pool.data(node).glob("workers/[0-9]*/stdout.*")]
            return not kept and not self.pool.get("/v1/jobs?page_size=1")["jobs"]

        until("what is over to be forgotten", forgotten)
        self.keep("1day")
        return len(jobs)

    def keep(self, time):
        self.pool.command("pool", "config", "set", "--job-retention", time, "--output-retention", time)

    def compare(self, before, jobs):
        """Prints what grew since a count, when that has come down to what is allowed or had its time."""
        deadline = time.monotonic() + SETTLES_S
        while True:
            table = Table(self.roles, before, count(self.pool), jobs)
            if not (wrong := table.too_much(ALLOWED)) or time.monotonic() > deadline:
                break
            rest(1)
        say(f"what grew over {jobs} jobs:\n{table.text(ALLOWED)}")
        self.ledger.wrong += wrong


def clean(pool):
    """Ends the pool and removes its control groups; returns what was left of it although its processes were told to end in order:
    an agent that ends leaves none of its own control groups."""
    left = pool.stop()
    codes = {name: process.returncode for name, process in pool.processes.items()}
    left += [f"{name}, which ended with code {code}" for name, code in codes.items() if code]
    groups = [folder for folder, _, _ in os.walk(CGROUPS, topdown=False) if f"{pool.groups}/" in f"{folder}/"]
    left += [f"control group {group}" for group in groups if any(f"/{node}/" in f"{group}/" for node in pool.nodes)]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    left += [f"mount {mount}" for mount in mounts if f"{pool.folder}/" in mount]
    for group in groups:
        # What was killed in it takes a moment to be gone.
        deadline = time.monotonic() + CLOSES_S
        while os.path.exists(group) and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                os.rmdir(group)
            time.sleep(0.01)
    return left + [f"control group {group} that cannot be removed" for group in groups if os.path.exists(group)]


def interrupt(number, _):
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the tessera binary")
    parser.add_argument("--seconds", type=int, default=60, help="how long jobs are submitted, start and warm-up included")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides the order of kinds and faults")
    options = parser.parse_args()
    binary = shutil.which(options.binary) or sys.exit(f"{options.binary} is not a program")
    if os.geteuid() != 0:
        sys.exit("soak.py needs root, for control groups")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    say(f"seed {options.seed}, {options.seconds} s")
    pool = Pool(binary, pathlib.Path(tempfile.mkdtemp(prefix="tessera-soak-")))
    soak, ended = Soak(pool, options.seconds, options.seed), ""
    wrong = soak.ledger.wrong
    try:
        soak.run()
    except Exception:  # whatever it is, the pool is ended and what was wrong before is told
        wrong.append(traceback.format_exc())
    except KeyboardInterrupt as interrupted:
        ended = f"ended by {interrupted}"
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        OVER.set()
        left = clean(pool)
    # Whoever interrupts it leaves work that nobody has told to end.
    wrong += [f"left behind: {what}" for what in left if not ended]
    for what in wrong:
        say(f"WRONG: {what}")
    if ended or not wrong:
        say(ended or "all is well")
        # A hand that was interrupted may write its last file meanwhile.
        shutil.rmtree(pool.folder, ignore_errors=True)
        shutil.rmtree(pool.folder, ignore_errors=True)
    else:
        say(f"{len(wrong)} things are wrong; seed {options.seed}, logs in {pool.folder}")
    # Hands that wait for an answer are not waited for.
    sys.stdout.flush()
    os._exit(1 if wrong or ended else 0)


if __name__ == "__main__":
    main()
