"""Measures rows P4 and P5: the three workflows of the Dhmem paper, with crossdock and, for comparison, with threads and
both MPIs. In row P4 the data has 10 MB, in row P5 it is tiny."""
import statistics

from .records import record

MB = 1_000_000
SHAPES = ("simple", "pipeline", "scatter-gather")
TINY = 8
OTHERS = {"threads": {"method": "threads"}, "MPICH": {"method": "mpi", "mpi": "mpich"}, "Open MPI": {"method": "mpi", "mpi": "openmpi"}}


def tasks_of(shape):
    return 2 if shape == "simple" else 9


def measure(run):
    return [*_rows(run, "P4", 10 * MB, "megabytes_per_second", "MB/s"), *_rows(run, "P5", TINY, "iterations_per_second", "iterations/s")]


def _rows(run, row, size, key, unit):
    for shape in SHAPES:
        case = f"{shape}, {tasks_of(shape)} tasks, {'10 MB' if size > TINY else f'{size} B'}"
        # MPI's eager protocol lets a sender run far ahead of the receiver. A port lets it run ahead by the depth of the
        # port, and the documentation recommends a deep port for messages of a few bytes. Queues of threads get the same
        # depth.
        depth = {} if size > TINY else {"depth": 2048}
        ours = run.synth.run(shape, tasks_of(shape), size, **depth)
        if not ours:
            run.report(row, case, run.synth.why(), ours=True)
            continue
        found = {}
        for name, options in OTHERS.items():
            done = run.synth.run(shape, tasks_of(shape), size, **depth, **options)
            if done:
                found[name] = statistics.median(done[key])
            else:
                run.report(row, f"{name}: {case}", run.synth.why())
        value = statistics.median(ours[key])
        mpi = max((found[name] for name in ("MPICH", "Open MPI") if name in found), default=None)
        if mpi is None or (row == "P4" and "threads" not in found):
            run.report(row, case, f"{value:.6g} {unit}, but nothing to compare it with", ours=True)
            continue
        if row == "P4":
            aim, ratio = "at least 1.0 times threads; at least 3 times the better MPI", max(found["threads"], 3 * mpi) / value
        else:
            times = 2 if tasks_of(shape) == 2 else 10
            aim, ratio = f"at least {times} times the better MPI", times * mpi / value
        shares = {name: round(value / v, 2) for name, v in found.items()}
        yield record(row, case, unit, ours[key], aim, ratio, found, times=shares, sleeps_per_message=ours["sleeps_per_message"])
