"""Calls the program `synth`. The result of a case is kept, because several rows and figures have the same cases."""
import json
import os

from . import isolate, machine

MB = 1_000_000


class Synth:
    def __init__(self, top, target, quick, out_of_time=lambda: False):
        self.top, self.target, self.quick, self.out_of_time = top, target, quick, out_of_time
        self.known, self.problems, self.last, self.progress = {}, {}, "", lambda text: None

    def forget(self):
        """Forgets all results, so that every case is measured again."""
        self.known.clear()

    @property
    def command(self):
        return self.target / "release" / "synth"

    def run(self, shape, tasks=9, size=10 * MB, method="crossdock", mpi="mpich", **options):
        """Measures a case and returns its figures. Returns None if that fails; `why` then gives the reason."""
        options = {"seconds": 0.25 if self.quick else 0.4, "trials": 3 if self.quick else 5, "iterations": 10**7, **options}
        limit = 20 if self.quick else 45
        key = (shape, tasks, size, method, mpi if method in ("mpi", "hybrid") else "", tuple(sorted(options.items())))
        if key in self.known:
            return self.known[key]
        if key in self.problems:
            self.last = self.problems[key]
            return None
        if why := self._too_much(shape, tasks, size, method, options):
            return self._failed(key, why)
        if self.out_of_time():
            self.last = "left out: the time of a quick run was over"
            return None
        words = [str(self.command), shape, "--tasks", str(tasks), "--size", str(size), "--method", method, "--mpi", mpi,
                 "--build", str(self.top / "build/synth"), "--deadline", str(int(limit)), "--json"]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        environment = {}
        if method in ("mpi", "hybrid") and tasks > len(os.sched_getaffinity(0)):
            # MPICH's documentation recommends this setting if there are more ranks than CPUs: a rank that waits gives
            # up its CPU. Open MPI does so without a setting.
            environment["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
        self.progress(" ".join(words[1:11]))
        ended = isolate.run(words, limit + 10, environment, self.top)
        if ended.problem:
            return self._failed(key, ended.problem)
        try:
            self.known[key] = json.loads(ended.out)
        except ValueError:
            return self._failed(key, f"printed no JSON: {isolate.last_lines(ended.out, 2)}")
        return self.known[key]

    def _failed(self, key, why):
        self.problems[key] = self.last = why

    def _too_much(self, shape, tasks, size, method, options):
        """Says in words that a case needs more than 60 % of the available memory, and so is not tried. Returns "" for other cases."""
        senders = {"simple": 1, "pipeline": tasks - 1, "scatter-gather": tasks - 1}[shape]
        receivers = {"simple": 1, "pipeline": tasks - 1, "scatter-gather": 2 * (tasks - 2)}[shape]
        depth = options.get("depth", 2)
        need = senders * depth * size + (receivers * depth * size if method not in ("crossdock", "hybrid", "threads", "boost") else 0)
        have = machine.available_bytes()
        return f"needs {need / 2**30:.1f} GiB, {have / 2**30:.1f} GiB are there" if need > have * 0.6 else ""

    def why(self):
        """The reason why the last case gave no figures."""
        return self.last
