"""What must hold at the end of a soak, when all jobs have ended: each check names what is wrong."""

from work import instant


def ends(ledger, jobs):
    """Nothing that was acknowledged is missing, there is nothing else, and each job has the end of its kind."""
    missing, strange = ledger.acknowledged.keys() - jobs.keys(), jobs.keys() - ledger.acknowledged.keys()
    wrong = [f"job {job} was acknowledged and is missing: {ledger.acknowledged[job][0]}" for job in sorted(missing)]
    wrong += [f"job {job} was submitted by nobody, or twice" for job in sorted(strange)]
    return wrong + list(filter(None, (ledger.check(jobs[job]) for job in sorted(jobs.keys() - strange))))


def agreement(pool, jobs):
    """Every member lists the same jobs, to the last field, and no law is broken on any."""
    wrong = []
    for number in range(len(pool.members)):
        listed = pool.jobs(number)
        for job in jobs.keys() | listed.keys():
            here, there = jobs.get(job, {}), listed.get(job, {})
            if differ := {name: (there.get(name), here.get(name)) for name in here | there if here.get(name) != there.get(name)}:
                wrong.append(f"member m{number} lists job {job} otherwise: {str(differ)[:1000]}")
    verified = pool.tessera("pool", "verify", check=False)
    if verified.returncode:
        wrong.append(f"pool verify: {verified.stdout}{verified.stderr}")
    return wrong


def is_plain(job):
    """Returns whether a job held what its history says. Workers of a gang give back their blocks one by one, and what is granted to an
    urgent job is its victim's for a while."""
    return job["spec"]["gang"] == 1 and job["spec"]["priority"] == 50


def held(job):
    """The block-milliseconds that the attempts of a job of one worker held, by the ledger's own history."""
    return sum(
        attempt["blocks"] * round(1000 * (instant(attempt["endedAt"]) - instant(attempt["grantedAt"])))
        for attempt in job["history"]
    )


def beside(job):
    """The most block-milliseconds that a job which moves held beside: from its reservation on it has the new place, while its history
    tells of the old one, and of a move that came to nothing it tells only that."""
    if job["spec"]["name"] != "is_moved" or not job["history"]:
        return 0
    first, last = job["history"][0], job["history"][-1]
    most = max(attempt["blocks"] for attempt in job["history"])
    return most * round(1000 * (instant(last["endedAt"]) - instant(first["grantedAt"])))


def accounts(pool, jobs, since):
    """The accounts of each member that was there the whole time add up, by job, queue and kind, and say of jobs of one worker what the
    ledger says. Members that took over a snapshot say that they did not see everything; the others must."""
    wrong, whole = [], 0
    for number in range(len(pool.members)):
        told = {by: pool.get(f"/v1/usage?by={by}&rows=10000&from={since}", number) for by in ("job", "queue", "kind")}
        if any(answer["gaps"] for answer in told.values()):
            continue
        whole += 1
        totals = {by: int(answer["total"]["sums"]["blockMilliseconds"]) for by, answer in told.items()}
        sums = {
            by: sum(int(row["sums"]["blockMilliseconds"]) for row in answer["rows"])
            for by, answer in told.items()
            if not int(answer["leftOut"])
        }
        if len(set(totals.values())) > 1 or any(sums[by] != totals[by] for by in sums):
            wrong.append(f"the accounts of m{number} do not add up: totals {totals}, sums {sums}")
        rows = {int(row["key"]): int(row["sums"]["blockMilliseconds"]) for row in told["job"]["rows"]}
        for job, row in rows.items():
            if job not in jobs or not is_plain(jobs[job]):
                continue
            least, more = held(jobs[job]), beside(jobs[job])
            if not least <= row <= least + more:
                told = f"{least}, and up to {more} beside" if more else least
                wrong.append(f"m{number} says that job {job} held {row} block-milliseconds, and its history says {told}")
    return wrong if whole else [*wrong, "no member has seen everything"]


def panics(pool):
    """The lines of logs that tell of a panic, which is a bug whatever follows from it."""
    return [
        f"{log.name}: {line.strip()[:300]}"
        for log in sorted(pool.folder.glob("*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "panicked" in line
    ]
