"""Measures P3: the time from when an object is ready in one task until another task has it. The receiver then reads all of
the object. Reading is not part of the figure, but a figure whose data was wrong does not count."""
import statistics

from . import peers
from .records import record

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AIM = "flat within 10 %; at least 30 times faster than Vineyard, Ray, ADIOS2 SST and MPI at 64 MB"
RIVALS = ("Vineyard", "Ray", "ADIOS2 SST", "MPICH", "Open MPI")
# The peers that hand data over without a copy.
ALIKE = ("threads", "iceoryx2", "iceoryx2, spinning", "Boost.Interprocess")


def sizes(quick):
    return [KIB, MIB, 64 * MIB] if quick else [KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB]


def rounds(size):
    return 20 if size <= MIB else 12 if size <= 64 * MIB else 5


def size_text(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def measure(run):
    """Makes one pass of the hand-overs (row P3), and returns the records of this pass and of all passes before it
    together. `run` is the run of the suite (main.Run). Passes after the first measure only crossdock and the peers in
    `ALIKE`: the other peers are so much slower that another pass could not change the verdict."""
    before = run.kept.setdefault("handover", [])
    ours = {waiting: {size: _synth(run, size, waiting=waiting, engine="bubblewrap") for size in sizes(run.quick)} for waiting in ("block", "spin")}
    if all(times is None for times in ours["block"].values()):
        run.report("P3", "containers", f"no container engine: {run.synth.why()}; measured between plain processes")
        ours = {waiting: {size: _synth(run, size, waiting=waiting) for size in sizes(run.quick)} for waiting in ("block", "spin")}
    others = {}
    for name, options in {"MPICH": {"method": "mpi", "mpi": "mpich"}, "Open MPI": {"method": "mpi", "mpi": "openmpi"}, "Unix socket": {"method": "unix"},
                          "TCP": {"method": "tcp"}, "threads": {"method": "threads"}, "Boost.Interprocess": {"method": "boost"}}.items():
        if not before or name in ALIKE:
            others[name] = {size: _synth(run, size, **options) for size in sizes(run.quick)}
    for name, times in peers.measure_all(run, sizes(run.quick), rounds, only=ALIKE if before else None).items():
        others[name] = times
    before.append({**{("ours", waiting): times for waiting, times in ours.items()}, **others})
    ours, others = {waiting: pool(before, ("ours", waiting)) for waiting in ours}, {name: pool(before, name) for name in before[0] if not isinstance(name, tuple)}
    found = list(_records(run, ours, others, {name: flatness(before, name) for name in (*ALIKE, ("ours", "block"), ("ours", "spin"))}))
    for size in sizes(run.quick):
        for series, times in {"crossdock, blocking": ours["block"], "crossdock, spinning": ours["spin"], **others}.items():
            if times.get(size):
                found.append(record("P3", f"{series}, {size_text(size)}", "us", times[size], figure="hand-over", x=size, series=series, pooled=True))
    return found


def pool(passes, name):
    """Gives, for crossdock or one peer (`name`), a dictionary from the size to the times of all passes."""
    found = {}
    for one in passes:
        for size, times in one.get(name, {}).items():
            found.setdefault(size, []).extend(times or [])
    return found


def flatness(passes, name):
    """Divides the longest time of any size by the shortest. In each pass, the times are first divided by the mean of
    that pass, because a pass may be slower than another one for all sizes. Then the median over the passes is taken
    for each size, because without the median the noise alone would make the longest time greater than the shortest."""
    shares = {}
    for one in passes:
        middle = {size: statistics.median(times) for size, times in one.get(name, {}).items() if times}
        if len(middle) < 2 or (shares and middle.keys() != shares.keys()):
            continue
        whole = statistics.geometric_mean(middle.values())
        for size, time in middle.items():
            shares.setdefault(size, []).append(time / whole)
    of_sizes = [statistics.median(share) for share in shares.values()]
    return max(of_sizes) / min(of_sizes) if of_sizes else None


def _synth(run, size, **options):
    """Measures the hand-overs of one size with `synth`, by crossdock unless `method` names another way. crossdock gets twice as
    many rounds as the others, because its aim (times that hardly depend on the size) needs less noise."""
    turns = rounds(size) if "method" in options else 2 * rounds(size)
    options = {"method": "crossdock", "engine": "process", **options}
    if options["engine"] == "process":
        options.pop("engine")
    done = run.synth.run("simple", tasks=2, size=size, latency=True, depth=1, trials=1, seconds=0, iterations=turns, warmup=2,
                         no_inline=True, **options)
    return [ns / 1000 for ns in done["hand_over_ns"]] if done else None


def _records(run, ours, others, flat):
    big = 64 * MIB
    middle = {waiting: {size: statistics.median(t) for size, t in times.items() if t} for waiting, times in ours.items()}
    for waiting, word in (("block", "blocking"), ("spin", "spinning")):
        if big not in middle[waiting]:
            run.report("P3", f"64 MiB between two containers, {word}", run.synth.why(), ours=True)
            continue
        found = {name: statistics.median(times[big]) for name, times in others.items() if times.get(big)}
        rivals = [found[name] for name in RIVALS if name in found]
        missing = [name for name in RIVALS if name not in found]
        case = f"64 MiB between two containers, {word}"
        if rivals:
            yield record("P3", case, "us", ours[waiting][big], AIM, middle[waiting][big] * 30 / min(rivals), found, without=missing, pooled=True)
        else:
            run.report("P3", case, "none of those that the aim names could be measured", ours=True)
        ratio = flat["ours", waiting]
        if ratio is None:
            continue
        # A wake takes longer after more data was written, because writing the data removes everything else from the
        # caches. The peers that hand over without a copy show how large this effect is.
        alike = {name: flat[name] for name in ALIKE if flat[name]}
        text = f"most / least over {', '.join(size_text(s) for s in middle[waiting])}, {word}"
        yield record("P3", text, "x", [ratio], AIM, ratio / 1.1, alike, pooled=True)
