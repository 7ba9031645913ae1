"""The main job of Tessera, shown on this machine: a highly available pool runs real work and loses its leader meanwhile.

Three members and four agents run as processes of their own on loopback, with the reference pool of 200 simulated blocks;
everything else is real. A gang of three workers on three nodes trains a small network; a stream of short jobs runs beside it.
The leader is killed with SIGKILL. What must hold is checked at the end, and the exit code says whether it did.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
NODES = ["node-0", "node-1", "node-2", "node-3"]


def say(text=""):
    print(text, flush=True)


#: Above those that pools give to their jobs (20000 to 29999), which would find the process of another pool there, and below those
#: that the kernel gives to connections that go out, which would take one before whoever it is for listens on it.
PORTS = range(30_000, 32_000)
PLACES = itertools.count(os.getpid() * 211)  # other processes begin elsewhere


def free_port():
    for place in itertools.islice(PLACES, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", PORTS[place % len(PORTS)]))
            return PORTS[place % len(PORTS)]
    raise RuntimeError(f"all ports from {PORTS.start} to {PORTS.stop} are taken")


def control_groups(folder, node):
    """Where those of a node's workers lie: apart from those of other pools of this host, and where the suite looks for them."""
    return "/".join(filter(None, ("tessera", os.environ.get("TESSERA_SUITE"), f"{folder.name}-{node}")))


class Pool:
    """The processes of the demo; all of them, and only they, are ended by pid."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.members = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self.processes = {}
        self.environment = {**os.environ, "TESSERA_SERVER": ",".join(self.members), "NO_COLOR": "1"}

    def start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def start_member(self, number):
        address = self.members[number]
        self.start(f"m{number}", "server", "--name", f"m{number}", "--listen", address, "--data-dir",
                   str(self.folder / f"m{number}"))

    def start_agent(self, node, *more):
        config = self.folder / f"{node}.toml"
        config.write_text(f'cgroup_root = "{control_groups(self.folder, node)}"\n')
        self.start(node, "agent", "--run-as", "agent", "--name", node, "--data-dir", str(self.folder / node), "--server",
                   ",".join(self.members), "--inventory", str(HERE / "reference-pool.toml"), "--config", str(config), *more)

    def tessera(self, *arguments, check=True):
        done = subprocess.run([self.binary, *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"tessera {' '.join(arguments)}: {'; '.join(done.stderr.splitlines())}")
        return done

    def ask(self, *arguments):
        return json.loads(self.tessera(*arguments, "-o", "json").stdout)

    def leader(self):
        """The number of the member that leads."""
        address = self.ask("cluster", "status")["leader"]["address"]
        return self.members.index(address)

    def stop(self):
        # Agents last, so that jobs are over before: first cancel what runs, then end the processes.
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        for process in self.processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait(what, condition, patience=60):
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < patience:
        try:
            answer = condition()
        except (RuntimeError, KeyError, TypeError, ValueError):
            answer = None
        if answer:
            return answer
        # Most conditions start a program that asks the pool, which takes from the processors what is waited for.
        time.sleep(min(0.05 + waited / 8, 0.5))
    raise RuntimeError(f"waited {patience} s in vain for {what}")


def job_file(path, **job):
    path.write_text(json.dumps(job))
    return str(path)


class Stream:
    """Short jobs, one after the other: each counts the samples of every digit in scikit-learn's data."""

    def __init__(self, pool, every):
        import sklearn

        data = pathlib.Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
        script = f"gzip -dc {data} | awk -F, '{{ seen[$NF]++ }} END {{ for (d in seen) total += seen[d]; print total }}'"
        self.file = job_file(
            pool.folder / "short.json",
            name="count-digits",
            command=["/bin/sh", "-c", script],
            virtual_card={"tflops": 1, "memory": "64MiB"},
        )
        self.pool, self.every = pool, every
        self.accepted = []  # (job, started asking, got the answer)
        self.failed = 0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(offset,), daemon=True) for offset in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, offset):
        time.sleep(offset * self.every / 4)
        while not self.over.is_set():
            asked = time.monotonic()
            done = self.pool.tessera("job", "submit", self.file, "--detach", "-o", "json", check=False)
            if done.returncode == 0:
                self.accepted.append((int(json.loads(done.stdout)["id"]), asked, time.monotonic()))
            else:
                self.failed += 1
            self.over.wait(self.every)

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def first_after(self, moment):
        """How long after a moment the first submission begun after it was accepted, in seconds; None when none was."""
        answers = [answered - moment for _, asked, answered in list(self.accepted) if asked >= moment]
        return min(answers, default=None)


def run(pool):
    say("starting three members and four agents on loopback ...")
    for number in range(3):
        pool.start_member(number)
    wait("the cluster to be made", lambda: pool.tessera("cluster", "init", check=False).returncode == 0)
    for node in NODES:
        pool.start_agent(node)
    wait("four nodes to be ready", lambda: len(pool.ask("node", "list")) == 4)
    say(pool.tessera("pool", "map").stdout)

    train = job_file(
        pool.folder / "train.json",
        name="train-digits",
        command=[sys.executable, str(HERE / "train.py")],
        gang=3,
        virtual_card={"tflops": 40, "memory": "2GiB", "span": "node", "mixed": True},
        environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    training = int(pool.ask("job", "submit", train, "--detach")["id"])
    say(f"job {training}: a gang of three workers trains on handwritten digits")
    stream = Stream(pool, every=0.4)

    def log():
        return pool.tessera("job", "logs", str(training), "--rank", "0", check=False).stdout

    wait("the training to be under way", lambda: "epoch 10:" in log(), 120)
    say(pool.tessera("pool", "map").stdout)
    say(log().strip())

    leader = pool.leader()
    before = len(stream.accepted)
    say(f"\nkilling the leader (m{leader}, pid {pool.processes[f'm{leader}'].pid}) with SIGKILL ...")
    killed = time.monotonic()
    pool.processes[f"m{leader}"].kill()
    pool.processes[f"m{leader}"].wait()
    failover = wait("the next accepted submission", lambda: stream.first_after(killed), 30)
    say(f"next submission accepted {failover * 1000:.0f} ms after the kill, {before} were accepted before"
        " (starting the command line and waiting for its turn included)")
    say(f"new leader: m{pool.leader()}")
    pool.start_member(leader)

    job = wait("the training to end", lambda: ended(pool, training), 180)
    stream.stop()
    say("\n" + log().strip())
    submitted = [number for number, _, _ in stream.accepted]
    ends = {number: wait(f"job {number}", lambda number=number: ended(pool, number)) for number in submitted}
    return verdict(pool, job, ends, stream, failover)


def ended(pool, number):
    job = pool.ask("job", "show", str(number))
    return job if job["state"] in ("completed", "failed", "cancelled", "timeout") else None


def verdict(pool, training, ends, stream, failover):
    """Says what was seen, and whether it is what was promised."""
    wrong = [number for number, job in ends.items() if job["state"] != "completed" or job["attempts"] != 1]
    checks = {
        f"training completed, {training['attempts']} attempt": training["state"] == "completed" and training["attempts"] == 1,
        f"{len(ends)} acknowledged submissions, {len(ends) - len(wrong)} completed, each run once": not wrong,
        "no job number handed out twice": len(ends) == len(stream.accepted),
        f"no submission failed ({stream.failed} did)": stream.failed == 0,
        "every law holds (pool verify)": pool.tessera("pool", "verify", check=False).returncode == 0,
    }
    say()
    for check, holds in checks.items():
        say(f"  {'ok  ' if holds else 'FAIL'} {check}")
    say(f"\nfailover: {failover * 1000:.0f} ms")
    return all(checks.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the tessera binary")
    parser.add_argument("--stop", action="store_true", help="stop at the end, also on a terminal")
    options = parser.parse_args()
    binary = shutil.which(options.binary) or sys.exit(f"{options.binary} is not a program")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-demo-"))
    pool = Pool(binary, folder)
    good = False
    try:
        good = run(pool)
        if good and sys.stdout.isatty() and not options.stop:
            say("\nThe pool stays up until you press Ctrl-C. In another terminal:\n")
            say(f"  export PATH={pathlib.Path(binary).parent}:$PATH TESSERA_SERVER={','.join(pool.members)}")
            say("  tessera pool map")
            say("  tessera job run --tflops 50 --span node --mixed -- sh -c 'cat $TESSERA_VCARD_FILE'")
            say("  tessera node drain node-1 --reason 'looking around'")
            signal.pause()
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:
        say(f"FAIL {error}; logs are in {folder}")
    finally:
        pool.stop()
        if good:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
