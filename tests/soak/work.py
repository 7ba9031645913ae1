"""One job or a few of a kind, from their submission to their end, and the check of all ends."""

import concurrent.futures
import datetime
import json
import random
import threading
import time

from pool import Over, Refused, request_id, until

ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
#: Reasons with which an attempt ends that a killed agent, or a drain, interrupted.
INTERRUPTED = ("DRAINED", "NODE_LOST", "WORKER_VANISHED", "NODE_FAULT", "MOVE_FAILED")
#: Reasons with which a member refuses what it may carry out a moment later.
NOT_NOW = ("ILLEGAL_TRANSITION", "MOVE_IMPOSSIBLE", "BLOCKS_NOT_FREE", "NODE_NOT_GRANTABLE")


def state(job):
    return job["state"].removeprefix("JOB_STATE_")


def rests(job):
    """Returns whether a job runs, and is not on its way to other cards."""
    return state(job) == "RUNNING" and "move" not in job


def instant(written):
    """Returns the seconds since 1970 of a time as the API writes it; those of now, where it has not come yet."""
    return datetime.datetime.fromisoformat(written).timestamp() if written else time.time()


def spec(job):
    """Returns a job as the API has it, from one as job files have it."""
    checkpoint, retry, card = job.get("checkpoint"), job.get("retry"), job["virtual_card"]
    mebibytes = {name: job[name]["memory"].removesuffix("MiB") for name in ("host", "virtual_card") if name in job}
    fields = {
        "name": job.get("name"), "command": job.get("command"), "script": job.get("script"), "environment": job.get("environment"),
        "gang": job.get("gang"), "priority": job.get("priority"), "held": job.get("hold"), "timeLimit": job.get("time_limit"),
        "nodeLabels": job.get("node_labels"), "affinity": job.get("affinity"),
        "virtualCard": {
            "milliTflops": str(1000 * card["tflops"]), "memoryMib": mebibytes["virtual_card"],
            "kinds": [f"CARD_KIND_{kind.upper()}" for kind in card["kinds"]],
        },
        "host": "host" in job and {"memoryMib": mebibytes["host"]},
        "retry": retry and {"maxRetries": retry["max_retries"], "backoff": retry["backoff"]},
        "checkpoint": checkpoint and {**checkpoint, "mode": f"CHECKPOINT_MODE_{checkpoint['mode'].upper()}"},
    }  # fmt: skip
    return {name: value for name, value in fields.items() if value}


class Ledger:
    """The jobs that were acknowledged, with the ends that they must have, and whatever was not as it must be."""

    def __init__(self, pool, faults):
        self.pool, self.faults = pool, faults
        self.rare_card, self.lock, self.works, self.wrong = threading.Lock(), threading.Lock(), 0, []
        self.begin()

    def begin(self):
        """Begins anew: what was acknowledged so far is not asked for any more."""
        self.acknowledged, self.since = {}, f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def work(self, kind, seed):
        """Runs jobs of a kind to their end; what goes wrong is noted."""
        with self.lock:
            self.works += 1
            work = Work(self, kind.__name__, self.works, seed)
        try:
            kind(work)
        except Over:
            pass
        except Exception as error:  # a hand whose work fails in any way must not end unheard
            work.expect(False, f"{type(error).__name__}: {error}")

    def was_hit(self, job):
        """Returns whether a fault of ours was on a node of the job while it was there."""
        stays = [(at["nodes"], instant(at["grantedAt"]), instant(at.get("endedAt"))) for at in job["history"]]
        return any(fault.hits(nodes, since, end) for fault in self.faults for nodes, since, end in stays)

    def check(self, job):
        """Compares the end of a job with that of its kind; returns what is wrong, if anything."""
        kind, end = self.acknowledged[int(job["id"])]
        last = job["history"][-1] if job["history"] else {}
        seen = {"state": state(job), "reason": job["reason"]["code"], "exit_code": last.get("exitCode")}
        must = {"state": end.state, "reason": end.reason, "exit_code": end.exit_code}
        if not self.was_hit(job):
            seen |= {"signal": last.get("signal"), "attempts": job["attempts"], "retries": job["retries"],
                     "decisive_rank": last.get("decisiveRank")}  # fmt: skip
            must |= {name: getattr(end, name) for name in ("signal", "attempts", "retries", "decisive_rank")}
            allowed = end.between
        else:
            allowed = (*end.between, *INTERRUPTED)
        between = [attempt["reason"]["code"] for attempt in job["history"][:-1]]
        if seen != must or not set(between) <= set(allowed):
            return f"{kind}: job {job['id']} ended as {seen} after {between}, and must end as {must} after any of {allowed}"
        return None


class Work:
    """The jobs of one run of a kind."""

    def __init__(self, ledger, kind, number, seed):
        self.ledger, self.kind, self.random = ledger, kind, random.Random(f"{seed}-{number}")
        self.pool, self.rare_card, self.was_hit = ledger.pool, ledger.rare_card, ledger.was_hit
        self.name, self.newest = f"{number:06}", 0
        # Workers have identities of their own, and leave marks here.
        self.marks = self.pool.folder / "marks" / self.name
        self.marks.mkdir(parents=True)
        self.marks.chmod(0o777)

    def expect(self, holds, what):
        if not holds:
            self.ledger.wrong.append(f"{self.kind}: job {self.newest}: {what}")

    def submit(self, job, end):
        """Submits a job through the command line or as JSON, again until it is acknowledged, and once; returns its number."""
        by = self.random.choice((self.by_command, self.by_json))
        number = by({name: value for name, value in {"name": self.kind, **job}.items() if value is not None})
        self.newest = number
        if number in self.ledger.acknowledged:
            self.expect(False, "its number was given to two jobs")
        self.ledger.acknowledged[number] = (self.kind, end)
        return number

    def submit_all(self, jobs, end):
        """Submits jobs at the same time; returns their numbers."""
        with concurrent.futures.ThreadPoolExecutor(4) as several:
            return list(several.map(lambda job: self.submit(job, end), jobs))

    def by_json(self, job):
        return int(self.pool.post("/v1/jobs", {"spec": {"command": [], **spec(job)}})["jobId"])

    def by_command(self, job):
        request = request_id()
        file = self.marks / f"{request}.json"
        file.write_text(json.dumps(job))
        done = self.pool.command("job", "submit", str(file), "--detach", "-o", "json", "--request-id", request)
        file.unlink()
        return int(json.loads(done)["id"])

    def output(self, job):
        return self.pool.command("job", "logs", str(job))

    def steer(self, job, what):
        """Cancels, releases, suspends, resumes or moves a job, as soon as its state allows that."""

        def accepted():
            try:
                return self.pool.post(f"/v1/jobs/{job}:{what}", {"jobId": str(job)})
            except Refused as refused:
                # A node that is drained has its jobs suspended, and started elsewhere.
                if not any(reason in str(refused) for reason in NOT_NOW) or self.is_over(job):
                    raise
            return None

        self.until(job, f"it to be one that can be told to {what}", accepted)

    def get(self, job):
        return self.pool.get(f"/v1/jobs/{job}")["job"]

    def is_over(self, job):
        found = self.get(job)
        return found if state(found) in ENDS else None

    def comes_to(self, job, wanted):
        """Waits until a job is in a state; returns the job."""

        def there():
            found = self.get(job)
            if state(found) in ENDS and state(found) != wanted:
                raise AssertionError(f"it ended as {state(found)}, {found['reason']}, before it was {wanted}")
            return found if state(found) == wanted else None

        return self.until(job, f"it to be {wanted}", there)

    def ends(self, job):
        return self.until(job, "its end", lambda: self.is_over(job))

    def until(self, job, what, condition):
        self.newest = job
        try:
            return until(what, condition)
        except AssertionError as error:
            found = self.get(job)
            raise AssertionError(f"{error}; it is {state(found)}, {found['reason']}") from None

