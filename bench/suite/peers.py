"""The peers that are used from Python, each in an environment of its own, made by bench/peers/setup from pinned
requirements. A peer that cannot be installed or run is reported with its reason."""
import json
import os

from . import isolate

# For each name of a peer in the results: the peer's folder in bench/peers.
PYTHON = {"Vineyard": "vineyard", "Vineyard, blob in place": "vineyard", "Ray": "ray", "ADIOS2 SST": "adios2", "gRPC": "grpc",
          "multiprocessing.shared_memory": "multiprocessing"}
ARGUMENTS = {"Vineyard, blob in place": ["--in-place"]}
RUST = {"iceoryx2": "block", "iceoryx2, spinning": "spin"}
# Above this size, either the peer reaches a limit of its own, or its several copies of the data do not fit into memory.
MOST = {"gRPC": 256 << 20}


def environment(top, folder):
    return top / "build/env" / f"peer-{folder}"


def versions(top):
    """Gives the versions that each environment has, as bench/peers/setup noted them. For an environment that could not be made,
    gives the reason."""
    found = {}
    for folder in sorted(set(PYTHON.values())):
        for name in ("versions", "problem"):
            file = environment(top, folder) / name
            if file.is_file():
                found[folder if name == "versions" else f"{folder} (not installed)"] = file.read_text().strip().replace("\n", ", ")
    return found


def why_not(top, folder):
    problem = environment(top, folder) / "problem"
    if problem.is_file():
        return f"cannot be installed: {isolate.last_lines(problem.read_text(), 2)}"
    if not (environment(top, folder) / "bin/python3").exists():
        return "not installed; bench/peers/setup does that"
    return ""


def measure_all(run, sizes, rounds, only=None):
    """Measures the hand-overs of all peers, or of those in `only`. Returns, for each name and each size, the times in microseconds."""
    found = {}
    for name, folder in PYTHON.items():
        if only is not None and name not in only:
            continue
        if why := why_not(run.top, folder):
            run.report("P3", name, why)
            continue
        python = environment(run.top, folder) / "bin/python3"
        program = run.top / "bench/peers/handover" / f"{folder}_peer.py"
        wanted = [f"{size}:{rounds(size)}" for size in sizes if size <= MOST.get(name, 1 << 62)]
        found[name] = _collect(run, name, [str(python), str(program), *ARGUMENTS.get(name, []), *wanted], len(sizes))
    for name, waiting in RUST.items():
        if only is not None and name not in only:
            continue
        program = run.target / "peers/release/peer-iceoryx2-handover"
        if not program.exists():
            run.report("P3", name, "not built; bench/peers/setup does that")
            continue
        found[name] = _collect(run, name, [str(program), waiting, *[f"{size}:{rounds(size)}" for size in sizes]], len(sizes))
    return found


def _collect(run, name, command, sizes):
    """Runs a peer and reads its lines, one for each size. If the peer fails, the lines before the failure still count."""
    if run.out_of_time():
        run.report("P3", name, "left out: the time of a quick run was over")
        return {}
    limit = (12 if run.quick else 60) + 4 * sizes
    run.progress(f"{name}: hand-over")
    ended = isolate.run(command, limit, {"PYTHONUNBUFFERED": "1", "RAY_DEDUP_LOGS": "0", "OMP_NUM_THREADS": "1"}, os.getcwd())
    times = {}
    for line in ended.out.splitlines():
        if line.startswith("HANDOVER "):
            one = json.loads(line.removeprefix("HANDOVER "))
            if one["right"]:
                times[one["size"]] = [ns / 1000 for ns in one["ns"]]
            else:
                run.report("P3", f"{name}, {one['size']} bytes", "the data that came was not the data that was sent")
    if ended.problem:
        run.report("P3", name, ended.problem)
    return times
