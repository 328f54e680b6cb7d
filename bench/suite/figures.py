"""Measures figures 3 to 6 of the Dhmem paper (section IV), with the paper's axes, for crossdock and its peers.

 3  throughput of the three workflows, 10 MB, by what carries the data
 4  the same for codes that keep their own data: copy into, copy from, copy, MPI
 5  throughput over the number of tasks, 3 to 34 (a quick run: to 18): crossdock, MPI, threads
 6  throughput over the size of the data, 1 MB to 1 GB; its left end is also the paper's iterations per second
"""
from .records import record
from .workflows import OTHERS, SHAPES, tasks_of

MB = 1_000_000
METHODS = {"crossdock": {}, **OTHERS, "hybrid (MPICH)": {"method": "hybrid", "mpi": "mpich"}, "Boost.Interprocess": {"method": "boost"},
           "Unix socket": {"method": "unix"}, "TCP": {"method": "tcp"}}
COPIES = {"crossdock": {}, "copy into": {"method": "copyinto"}, "copy from": {"method": "copyfrom"}, "copy": {"method": "copy"},
          "MPICH": OTHERS["MPICH"], "Open MPI": OTHERS["Open MPI"]}
MPIS = {"crossdock": {}, "MPICH": OTHERS["MPICH"], "Open MPI": OTHERS["Open MPI"]}


def measure(run):
    found = []
    for part in (_three, _four, _five, _six):
        found += part(run)
    return found


def _case(run, figure, series, x, shape, tasks, size, options):
    """Yields the record of one point. If the point could not be measured, reports the reason and yields nothing."""
    done = run.synth.run(shape, tasks, size, **options)
    if not done:
        run.report(f"F{figure}", f"{series}, {shape}, {tasks} tasks, {size // MB} MB", run.synth.why())
        return []
    return [record(f"F{figure}", f"{series}, {shape}, {tasks} tasks, {size / MB:g} MB", "MB/s", done["megabytes_per_second"], figure=str(figure),
                   panel=shape if figure in (5, 6) else "", x=x, series=series, iterations_per_second=done["iterations_per_second"])]


def _three(run):
    methods = {k: v for k, v in METHODS.items() if not run.quick or k not in ("TCP", "Unix socket")}
    return [r for name, options in methods.items() for shape in SHAPES for r in _case(run, 3, name, shape, shape, tasks_of(shape), 10 * MB, options)]


def _four(run):
    return [r for name, options in COPIES.items() for shape in SHAPES for r in _case(run, 4, name, shape, shape, tasks_of(shape), 10 * MB, options)]


def _five(run):
    counts = [3, 9, 18] if run.quick else [3, 6, 9, 18, 34]
    methods = {"crossdock": {}, **OTHERS}
    return [r for shape in ("pipeline", "scatter-gather") for count in counts for name, options in methods.items()
            for r in _case(run, 5, name, count, shape, count, 10 * MB, options)]


def _six(run):
    sizes = [MB, 10 * MB, 100 * MB] if run.quick else [MB, 10 * MB, 100 * MB, 1000 * MB]
    shapes = ("simple",) if run.quick else SHAPES
    return [r for shape in shapes for size in sizes for name, options in MPIS.items()
            for r in _case(run, 6, name, size, shape, tasks_of(shape), size, options)]
