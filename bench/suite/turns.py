"""Measures a former commit and this checkout in turns, and shows which figures became slower or faster.

Two results that were taken one after the other also differ because the machine has changed in between, and because some figures
have two modes (the kernel ran both processes on one CPU, or on two). In turns, both versions meet the same machine. The change of a
figure is the median of the changes of all turns, and its noise is the interquartile range of these changes, at least 5 %.

Among a hundred figures, some seem slower by chance, because the interquartile range of a few turns is itself uncertain. So the
figures that seem slower are measured again, in twice as many turns, and only the new turns decide about these figures.

On a machine with few CPUs, the time of a hand-over between processes that sleep depends most on the CPUs that the kernel chooses
for them, and a small change of the code can make another choice likelier. With all processes on one CPU, there is no such choice.

An idle CPU of a virtual machine stops, and to wake it may take as long as the rest of a hand-over. With `awake`, no CPU stops. So the
result says nothing about the time to wake a CPU, which users of such a machine do meet.

Both versions must be measured by the same rules. If a rule has changed since a former commit, `bench/former` has a patch that gives
the commit's measuring programs the new rule.
"""
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from . import compare
from .records import rounded, spread

# A change of less than this is noise.
LEAST_NOISE = 0.05
# A program of the lowest priority: it runs only while no other program wants its CPU, so the CPU never stops. It ends with this process.
STAY_AWAKE = ["setpriv", "--pdeathsig", "KILL", "chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]


def main(top, commit, turns, options, one_cpu=False, awake=False):
    """Compares the checkout `top` with `commit`. `options` are options of bench/run that both get. With `one_cpu`, all processes
    that are measured run on one CPU. With `awake`, no CPU stops while a version is measured."""
    named = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], cwd=top, capture_output=True, text=True, check=False)
    if named.returncode != 0:
        sys.exit(f"bench/run --against: there is no commit {commit} in {top}")
    commit = named.stdout.strip()
    trees = [checkout(top, commit), top]
    for tree in trees:
        print(f"building {tree}", file=sys.stderr, flush=True)
        if bench(tree, ["--build-only", *options]) != 0:
            sys.exit(f"bench/run --against: the benchmarks of {tree} cannot be built")
    found, status = show(commit, measure(trees, turns, options, one_cpu, awake))
    slower = {key for key, (change, noise) in found.items() if compare.word(change, noise) == "slower"}
    if not slower:
        return status
    rows = ",".join(sorted({row for row, _ in slower}))
    print(f"\nWhat seems slower is measured again, in {2 * turns} turns:", flush=True)
    again = measure(trees, 2 * turns, [*options, "--only", rows], one_cpu, awake)
    found, status = show(commit, [[only(slower, result) for result in version] for version in again])
    missing = slower - {key for key, (change, _) in found.items() if change is not None}
    for row, case in sorted(missing):
        print(f"{row} {case}: could not be measured again, so it counts as slower")
    return 1 if missing else status


def show(commit, results):
    """Prints how the results of both versions differ. Gives the change and the noise of each figure, and the exit status."""
    found = changes(*results)
    return found, compare.show(commit[:12], "this checkout", *map(merge, results), found)


def measure(trees, turns, options, one_cpu, awake):
    """Measures both versions in turns. Gives the results of all turns for each version."""
    results = [[], []]
    for turn in range(turns):
        # The order changes from turn to turn, so that neither version always comes first.
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            print(f"turn {turn + 1} of {turns}: {trees[which]}", file=sys.stderr, flush=True)
            out = trees[which] / "build/bench/turn"
            shutil.rmtree(out, ignore_errors=True)
            with awake_cpus() if awake else contextlib.nullcontext():
                bench(trees[which], ["--no-build", *options, "--out", str(out)], one_cpu)
            results[which].append(compare.read(out / "results.json"))
    return results


def only(keys, result):
    """Gives the records of a result that have one of these keys."""
    return {key: record for key, record in result.items() if key in keys}


def checkout(top, commit):
    """Gives a folder with the files of the commit, in which the benchmarks can be built. `make clean` removes it."""
    tree = top / "build/bench" / f"commit-{commit[:12]}"
    if not (tree / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(top), str(tree)], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", commit], cwd=tree, check=True)
    for patch in (top / "bench/former").glob("*.patch"):
        if commit.startswith(patch.stem):
            print(f"{patch.relative_to(top)} changes how {commit[:12]} measures", file=sys.stderr, flush=True)
            subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True)
    subprocess.run(["scripts/setup", "bench"], cwd=tree, stdout=2, check=True)
    return tree


def bench(tree, options, one_cpu=False):
    """Runs a version's own suite, and returns its exit status. What the suite could not measure is not compared."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tree / "build/target")}
    words = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))] if one_cpu else []
    return subprocess.run([*words, "bench/run", *options], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode


@contextlib.contextmanager
def awake_cpus():
    """Keeps all CPUs that this process may use awake."""
    with contextlib.ExitStack() as started:
        loops = []
        for cpu in os.sched_getaffinity(0):
            loops.append(started.enter_context(subprocess.Popen(["taskset", "--cpu-list", str(cpu), *STAY_AWAKE])))
            started.callback(loops[-1].kill)
        deadline = time.monotonic() + 10
        while any(os.sched_getscheduler(loop.pid) != os.SCHED_IDLE for loop in loops if loop.poll() is None) and time.monotonic() < deadline:
            time.sleep(0.001)
        yield
        if any(loop.poll() is not None or os.sched_getscheduler(loop.pid) != os.SCHED_IDLE for loop in loops):
            sys.exit("bench/run --awake: a program that keeps a CPU awake has not run at the lowest priority until the end")


def merge(results):
    """Gives one record for each figure, with the median of all turns."""
    keys = set().union(*results)
    return {key: merged([result[key] for result in results if key in result]) for key in keys}


def merged(records):
    return {**records[-1], "value": rounded(statistics.median(one["value"] for one in records))}


def changes(before, after):
    """Gives the change and the noise of each figure that both versions have in at least one turn."""
    return {key: change([(a[key], b[key]) for a, b in zip(before, after) if key in a and key in b])
            for key in set().union(*before) & set().union(*after)}


def change(pairs):
    found = [c for c in (compare.change_of(a, b)[0] for a, b in pairs) if c is not None]
    if not found:
        return None, None
    low, middle, high = spread(found)
    return middle, max(LEAST_NOISE, high - low)
