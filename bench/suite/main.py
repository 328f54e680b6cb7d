"""`make bench`: runs what bench/programs lists and writes build/bench/results.json and report.html.

  bench/run [--quick] [--only P1,P4] [--build-only | --no-build] [--again SECONDS] [--out FOLDER]
  bench/run --compare A.json B.json
  bench/run --against COMMIT [--turns N] [--one-cpu] [--awake] [--quick] [--only P16]
  bench/run --docs [RESULTS.json]

Programs with a figure that is near its limit are run again, several times (passes.py), so that a verdict does not
depend on what the machine did in one minute.

Exit status: 0 when everything that could be measured was measured, whether or not the aims are met; 1 when one of
crossdock's own programs failed.
"""
import argparse
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from . import compare, docs, figures, handover, isolate, machine, passes, peers, report, table, turns, workflows
from .records import checked, problem
from .synth import Synth

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
PARTS = {"handover": handover.measure, "workflows": workflows.measure, "figures": figures.measure}
# The seconds that a whole quick run takes, and the seconds that a full run may spend on repetitions.
QUICK_SECONDS, AGAIN_SECONDS = 335, 1500


class Run:
    """One run of the suite: its settings, the data that parts keep from pass to pass, and the problems."""

    def __init__(self, options):
        self.top, self.quick = TOP, options.quick
        self.target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "build/target"))
        self.synth = Synth(TOP, self.target, self.quick, self.out_of_time)
        self.synth.progress = self.progress
        self.problems, self.kept, self.failed, self.begun = {}, {}, False, time.monotonic()

    def report(self, row, case, what, ours=False):
        """Notes a figure that could not be measured. The whole run fails only if the figure is crossdock's own
        (`ours`), because a peer may be missing on this machine."""
        self.failed |= ours
        self.problems[row, case] = problem(row, case, what or "no reason was given")
        self.progress(f"{row} {case}: {what}")

    def progress(self, text):
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", file=sys.stderr, flush=True)

    def out_of_time(self):
        return self.quick and time.monotonic() - self.begun > QUICK_SECONDS


def main():
    options = arguments()
    if options.compare:
        return compare.main(*options.compare)
    if options.against:
        given = [*(["--quick"] if options.quick else []), *(["--only", ",".join(options.only)] if options.only else [])]
        return turns.main(TOP, options.against, options.turns, given, options.one_cpu, options.awake)
    if options.docs is not None:
        return docs.main(TOP, pathlib.Path(options.docs or TOP / "build/bench/results.json"))
    signal.signal(signal.SIGTERM, stop)
    isolate.adopt_orphans()
    os.chdir(TOP)
    run = Run(options)
    chosen = choose(programs(), options.only)
    if not options.no_build:
        build(run, chosen)
    if options.build_only:
        return 1 if run.failed else 0
    run.begun = time.monotonic()
    parts, interrupted = [], False
    about = {"machine": machine.machine(), "kernel": machine.kernel(), "versions": {**machine.versions(TOP), "peers": peers.versions(TOP)},
             "taken": machine.now(), "quick": run.quick, "only": options.only, "isolated": bool(isolate.namespaces())}
    print(table.head(about), flush=True)
    try:
        for name, rows, limit, command in chosen:
            parts.append(passes.Part(name, functools.partial(one, run, name, rows, limit, command)))
            run.progress(f"{name} ({', '.join(rows)})")
            parts[-1].once()
        ends = run.begun + QUICK_SECONDS if run.quick else time.monotonic() + options.again
        passes.again(parts, lambda: ends - time.monotonic(), run.progress)
    except KeyboardInterrupt:
        interrupted = True
    about["seconds"] = round(time.monotonic() - run.begun, 1)
    records = [record for part in parts for record in part.merged()]
    everything = [r for r in [*records, *run.problems.values()] if wanted(r["id"], options.only)]
    write(options.out, everything, about)
    print(table.text(everything))
    print(f"\n{about['seconds']:.0f} s; {options.out / 'results.json'}, {options.out / 'report.html'}")
    return 130 if interrupted else 1 if run.failed else 0


def stop(*_):
    """Handles SIGTERM as Ctrl-C, so that the figures that were measured so far are written."""
    raise KeyboardInterrupt


def arguments():
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=lambda text: [w.strip().upper() for w in text.split(",") if w.strip()], default=[])
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--no-build", action="store_true", help="what is there is measured as it is")
    parser.add_argument("--again", type=float, default=AGAIN_SECONDS, metavar="SECONDS", help="how long a full run repeats what is near its limit (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=TOP / "build/bench")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"))
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--one-cpu", action="store_true", help="with --against: measure with all processes on one CPU")
    parser.add_argument("--awake", action="store_true", help="with --against: measure with CPUs that never stop")
    parser.add_argument("--docs", nargs="?", const="", metavar="RESULTS")
    options = parser.parse_args()
    options.out = options.out.absolute()
    return options


def programs():
    """Yields the lines of bench/programs: name, rows, the most seconds of a quick and of a full run, command."""
    for line in (TOP / "bench/programs").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, rows, quick, full, command = (part.strip() for part in line.split("|", 4))
            yield name, rows.split(), (int(quick), int(full)), command


def choose(lines, only):
    """Chooses the lines of bench/programs that have a row of `only`. The papers' figures come last, so that a quick run
    that has no time left leaves out points of these figures."""
    chosen = [line for line in lines if not only or any(row in only for row in line[1])]
    return sorted(chosen, key=lambda line: line[3] == "suite:figures")


def wanted(row, only):
    return not only or row in only


def build(run, chosen):
    """Compiles all programs before the first measurement, so that no compiler runs during one."""
    run.progress("building")
    jobs = [("crossdock", ["cargo", "build", "--release", "--quiet", "--locked", "-p", "crossdock-cli", "-p", "crossdock-capi", "-p", "crossdock-bench"])]
    jobs += [(name, ["bash", "-c", command]) for name, _, _, command in chosen if not command.startswith("suite:")]
    environment = {**os.environ, "BENCH_BUILD": "1", "QUICK": "1", "CARGO_TARGET_DIR": str(run.target)}
    for name, command in jobs:
        done = subprocess.run(command, cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            run.report("build", name, isolate.last_lines(done.stderr, 4), ours=True)
    suite = {command for _, _, _, command in chosen if command.startswith("suite:")}
    if "suite:handover" in suite:
        subprocess.run([str(TOP / "bench/peers/setup")], cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if suite:
        warm_up(run)


def warm_up(run):
    """Lets `synth` compile the programs of its tasks."""
    for method in (["crossdock"], ["boost"], ["mpi", "--mpi", "mpich"], ["mpi", "--mpi", "openmpi"]):
        words = [str(run.synth.command), "simple", "--size", "8", "--method", *method, "--emit", str(run.target / "bench-synth"), "--build", "build/synth"]
        done = subprocess.run(words, cwd=TOP, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            run.report("build", f"synth, {' '.join(method)}", isolate.last_lines(done.stderr, 4))


def one(run, name, rows, limit, command):
    """Makes one pass of one line of bench/programs, and returns its records."""
    if command.startswith("suite:"):
        if command != "suite:figures":  # the figures may reuse runs of the workflows
            run.synth.forget()
        return PARTS[command.removeprefix("suite:")](run)
    environment = {"QUICK": "1" if run.quick else "", "CARGO_TARGET_DIR": str(run.target)}
    seconds = max(10, min(limit[0], 20 + QUICK_SECONDS - (time.monotonic() - run.begun))) if run.quick else limit[1]
    ended = isolate.run(["bash", "-c", command], seconds, environment, TOP)
    try:
        if not ended.problem:
            return checked(json.loads(ended.out), name)
    except ValueError as error:
        ended.problem = str(error)
    run.report(rows[0], name, ended.problem, ours=True)
    return []


def write(folder, records, about):
    folder.mkdir(parents=True, exist_ok=True)
    everything = [*records, {"id": "machine", **about}]
    for name, text in (("results.json", json.dumps(everything, indent=1) + "\n"), ("report.html", report.page(records, about))):
        new = folder / f".{name}.new"
        new.write_text(text)
        new.rename(folder / name)


def read(file):
    """Reads a results.json: the records, and the description of the machine."""
    found = json.loads(pathlib.Path(file).read_text())
    return [r for r in found if r["id"] != "machine"], next(r for r in found if r["id"] == "machine")
