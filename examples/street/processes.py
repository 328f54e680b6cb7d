"""Measures the processes of a run from outside: the CPU time of the daemons, and the memory of tasks and daemons."""

import re
import time
from pathlib import Path

# The seconds between two measurements of CPU time, and of memory. Reading the memory takes the kernel some milliseconds
# for each task, so memory is measured less often.
LOOK_S, MEMORY_S = 0.1, 0.4
TASKS = ("extract", "detect", "combine")
PARTS = (*TASKS, "daemons")
SCRIPT = re.compile(rb"/(extract|detect|combine)\.py$")


class Watch:
    """Looks at the processes of a run until the run ends. For each look, `used` has the time and the CPU seconds of each daemon,
    and `held` has the time and the bytes of each part of the run."""

    def __init__(self, launched, roots):
        """Looks until the process `launched` ends. `roots` are other processes whose descendants belong to the run, for example the
        first processes of hosts."""
        self.used, self.held, self.known, before, next_s = [], [], {}, shared_bytes(), 0
        while launched.poll() is None:
            now, found = time.monotonic(), self._find([launched.pid, *roots])
            self.used.append((now, {pid: cpu_s(pid) for pid in found["daemons"]}))
            if now >= next_s:
                parts = {part: sum(map(own_bytes, pids)) for part, pids in found.items()}
                self.held.append((now, {**parts, "shared": max(0, shared_bytes() - before)}))
                next_s = now + MEMORY_S
            time.sleep(LOOK_S)

    def daemon_cpu_s(self, begin):
        """Gives the CPU seconds that all daemons used after the time `begin`."""
        before, most = {}, {}
        for at, cpu in self.used:
            (before if at <= begin else most).update(cpu)
        return sum(used - before.get(pid, 0) for pid, used in most.items())

    def memory(self, begin, end):
        """Gives, for each look between the two times, the bytes of each part. If there was no look between them, gives all looks."""
        return [parts for at, parts in self.held if begin <= at <= end] or [parts for _, parts in self.held]

    def _find(self, roots):
        """Finds the processes of each part of the run that exist now."""
        found = {part: [] for part in PARTS}
        for pid in {below for root in roots for below in descendants(root)}:
            if part := self._part_of(pid):
                found[part].append(pid)
        return found

    def _part_of(self, pid):
        """Gives the part of the run to which a process belongs. Gives None for launchers, first processes of containers
        and the like."""
        if pid not in self.known:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                return None
            if b"serve" in words[:3] or b"keeper" in words[0] or b"broker" in words[0]:
                self.known[pid] = "daemons"
            elif b"python" in words[0].rpartition(b"/")[2]:
                script = next((found for word in words[1:4] if (found := SCRIPT.search(word))), None)
                self.known[pid] = script and script[1].decode()
        return self.known.get(pid)


def descendants(pid):
    children = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        try:
            children += map(int, path.read_text().split())
        except OSError:
            continue
    return children + [below for child in children for below in descendants(child)]


def cpu_s(pid):
    """Gives the CPU seconds of a process and of all threads that it had, by the clock of the process (`clock_getcpuclockid`)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def own_bytes(pid):
    """Gives the memory of a process without shared memory: its private pages, and its share of the files that it maps."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_File:")))


def shared_bytes():
    """Gives the bytes of all shared memory of the machine. Each page counts once, whether a process maps it or not."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))
