"""Counts of what processes, folders and the host hold, and the table of what grew between two of them per 1,000 jobs."""

import dataclasses
import os
import pathlib

CGROUPS = "/sys/fs/cgroup"
#: The measure that is compared with what processes had when they had just started: they should come back to that.
OWN = "own KiB"


@dataclasses.dataclass(frozen=True)
class Growth:
    """The growth that is allowed of all processes of a role together: so much, and so much more for each job."""

    fixed: float
    per_job: float = 0

    def over(self, jobs):
        return self.fixed + self.per_job * jobs


def processes():
    """Parents and states of all processes of this host, by process id."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        found[int(pid)] = (int(parent), state)
    return found


def own_kib(pid):
    """The memory that a process has for itself: files in memory, its program among them, are not counted."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def of_process(pid, host):
    children = [state for parent, state in host.values() if parent == pid]
    return {
        OWN: own_kib(pid),
        "open files": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "children": sum(state != "Z" for state in children),
        "zombies": children.count("Z"),
    }


def of_folder(data):
    files = size = empty = 0
    # Files come and go while they are counted.
    for folder, folders, names in os.walk(data):
        empty += not folders and not names
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_blocks // 2
                files += 1
            except OSError:
                pass
    return {"files": files, "files KiB": size, "empty folders": empty}


def control_groups(pool, node):
    """Counts the control groups of workers of a node, in all hierarchies."""
    ends = f"{pool.groups}/{node}"
    return sum(len(folders) for folder, folders, _ in os.walk(CGROUPS) if folder.endswith(ends))


def count(pool):
    """Counts everything: by process, and for each measure."""
    host, counts = processes(), {}
    for name, process in pool.processes.items():
        series = pool.series(name)
        counts[name] = {
            **of_process(process.pid, host),
            "series": len(series),
            "series of jobs": sum("job_id=" in one for one in series),
            **of_folder(pool.data(name)),
            "log KiB": (pool.folder / f"{name}.log").stat().st_size // 1024,
        }
        if name in pool.nodes:
            counts[name]["control groups"] = control_groups(pool, name)
    return counts


class Table:
    """The growth of the processes of each role."""

    def __init__(self, roles, before, after, jobs):
        self.roles, self.before, self.after, self.jobs = roles, before, after, jobs

    def rows(self):
        """Yields for each role and measure the growth of each process, and before and after of all of them together."""
        for role, names in self.roles.items():
            for measure in self.after[names[0]]:
                pairs = [(self.before[name][measure], self.after[name][measure]) for name in names]
                yield role, measure, [after - before for before, after in pairs], *map(sum, zip(*pairs))

    def text(self, allowed):
        per_1000 = 1000 / self.jobs
        widths = "{:8}{:16}" + "{:>11}" * 4 + "  |" + "{:>11}" * 4
        lines = [widths.format("grew", "per 1,000 jobs", "first", "second", "third", "all", "before", "after", "grew", "allowed")]
        for role, measure, grown, before, after in self.rows():
            rates = (f"{each * per_1000:+,.0f}" for each in (*grown, after - before))
            bound = allowed[role][measure].over(self.jobs)
            numbers = (f"{before:,}", f"{after:,}", f"{after - before:+,}", f"{bound:,.0f}")
            lines.append(widths.format(role, measure, *rates, *numbers))
        return "\n".join(lines)

    def too_much(self, allowed):
        """Names what grew by more than is allowed."""
        wrong = []
        for role, measure, _, before, after in self.rows():
            if after - before > allowed[role][measure].over(self.jobs):
                wrong.append(f"{measure} of {role} grew from {before:,} to {after:,} over {self.jobs} jobs")
        return wrong
