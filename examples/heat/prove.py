"""Runs the example and proves its claims; scripts/heat builds it first and calls this.

1. The plain program runs without crossdock. Its end state is the one with which all others are compared.
2. The costs of publishing and of observers are measured, with free CPUs: a solver with one rank runs plain, publishing,
   and publishing to observers, in turn. The figures are medians of the wall time and of the solver's CPU time. Then the
   coupled program runs with all ranks, alone and with all observers.
3. With all observers, one rank is killed at a random moment. The same workflow is then started again and continues from
   the last checkpoint. With --damage the newest checkpoint is damaged before that: the program notices this and uses
   the checkpoint before it.
The end states of all runs are the same bit for bit. Ends with `N passed, N failed`.
"""

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build/heat"
CROSSDOCK = BUILD / "crossdock"
# The name contains the process id, so that another run on this machine is not mistaken for this one.
NAME = f"heat-{os.getpid()}"
RANKS, CPUS = 4, len(os.sched_getaffinity(0))
OBSERVERS = ["checkpoint", "analyse", "plot"]
PNG = b"\x89PNG\r\n\x1a\n"
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated", "OMPI_MCA_btl": "self,vader",
       "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", help="may be given more than once; the plain run serves all")
    parser.add_argument("--quick", action="store_true", help="a smaller plate and fewer steps")
    parser.add_argument("--damage", action="store_true", help="damage the newest checkpoint before the restart")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="of the moment and the victim")
    options = parser.parse_args()
    size, steps = (256, 6000) if options.quick else (1024, 4000)
    dice = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    judge = Judge()
    cost(judge, (options.engine or ["auto"])[0], *(200, 1) if options.quick else (1000, 3))
    plain = run_plain(size, steps)
    for engine in options.engine or ["auto"]:
        prove(judge, Runs(engine, size, steps), plain, dice, options.damage)
    print(f"{judge.passed} passed, {judge.failed} failed")
    sys.exit(judge.failed > 0)


def prove(judge, runs, plain, dice, damage):
    alone = runs.run(without=OBSERVERS)
    judge.judge(f"{runs.engine}: the coupled solver alone ends well, with the plain program's state bit for bit", ends_alike(alone, plain))
    watched = runs.run()
    judge.judge(f"{runs.engine}: so it does with all observers", ends_alike(watched, plain))
    judge.judge(f"{runs.engine}: the analysis proves every mode's decay", proved(watched))
    judge.judge(f"{runs.engine}: the plot is drawn", drawn(runs, watched))
    print(f"{runs.engine}: {RANKS} ranks on {CPUS} CPUs: plain {plain.seconds:.2f} s by the clock and {plain.cpu:.2f} s of CPU time, published "
          f"{alone.seconds:.2f} s and {alone.cpu:.2f} s, with all observers {watched.seconds:.2f} s and {watched.cpu:.2f} s"
          + (". The clock says how the kernel divides the CPUs; what publishing costs is above" if CPUS < RANKS + 3 else ""), flush=True)
    killed = runs.run(kill=dice)
    judge.judge(f"{runs.engine}: a killed rank ends the run with an error", None if killed.code else "it ended as if nothing had happened")
    if damage:
        damage_newest(runs.out / "checkpoints")
    again = runs.run(keep=True)
    judge.judge(f"{runs.engine}: the restarted run ends with the undisturbed state bit for bit", ends_alike(again, plain))
    judge.judge(f"{runs.engine}: it went on from a checkpoint", went_on(again, damage))
    judge.judge(f"{runs.engine}: the last checkpoint holds the end state", holds_the_end(runs.out, runs.size, runs.steps))


def cost(judge, engine, steps, turns, size=1024):
    """Measures what publishing and observers cost a solver of one rank, which leaves other CPUs free. The plate does not
    fit into a CPU's cache, as with a real code. With a small plate, copying a version would be a larger part of the work."""
    if CPUS < 2:
        print("the cost of publishing is not measured: there is one CPU, and so none is spare", flush=True)
        return
    runs = Runs(engine, size, steps, ranks=1)
    ways = {"plain": lambda: run_plain(size, steps, 1), "published": lambda: runs.run(without=OBSERVERS), "watched": runs.run}
    ended = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            ended[name].append(way())
    alike = [trouble for name in ("published", "watched") for one in ended[name] if (trouble := ends_alike(one, ended["plain"][0]))]
    judge.judge(f"{engine}: one rank ends with the same state, plain, published and watched", alike[0] if alike else None)
    wall = {name: statistics.median(one.seconds for one in runs_) for name, runs_ in ended.items()}
    cpu = {name: statistics.median(one.cpu for one in runs_) for name, runs_ in ended.items()}
    percent = lambda of, name: f"{(of[name] / of['plain'] - 1) * 100:+.1f} %"
    print(f"cost with CPUs to spare (1 rank on {CPUS} CPUs, {size} x {size} points, {steps} steps, a version every 20, median of {turns}):\n"
          f"     plain      {wall['plain']:.2f} s, {cpu['plain']:.2f} s of CPU time\n"
          + "\n".join(f"     {name:10} {wall[name]:.2f} s ({percent(wall, name)}), {cpu[name]:.2f} s of CPU time ({percent(cpu, name)})"
                      for name in ("published", "watched"))
          + f"\n     load of the machine at the end: {os.getloadavg()[0]:.1f}", flush=True)


class Judge:
    """Counts the claims that held and those that failed."""

    def __init__(self):
        self.passed = self.failed = 0

    def judge(self, claim, trouble):
        self.passed, self.failed = self.passed + (not trouble), self.failed + bool(trouble)
        print(f"{'FAIL' if trouble else 'ok  '} {claim}" + (f"\n     {trouble}" if trouble else ""), flush=True)


class Ended:
    """The results of a run."""

    def __init__(self, code, said, logs, state):
        self.code, self.said, self.state = code, said, state
        self.logs = {path.name.split(".")[0]: path.read_text(errors="replace") for path in logs.glob("*.log")} if logs else {}
        took = re.search(r"the steps took\s+([0-9.]+) s and\s+([0-9.]+) s of CPU time", self.logs.get("solve", said))
        self.seconds, self.cpu = (float(took[1]), float(took[2])) if took else (float("nan"), float("nan"))


def run_plain(size, steps, ranks=RANKS):
    out = BUILD / "plain"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    words = ["mpirun.openmpi", "--oversubscribe", "-n", str(ranks), BUILD / "program/heat", str(size), str(steps), "20", out]
    done = subprocess.run(words, env={**os.environ, **MPI}, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"error: the plain program failed:\n{done.stdout}{done.stderr}")
    return Ended(0, done.stdout, None, (out / "final.bin").read_bytes())


class Runs:
    """Runs of the workflow in one engine."""

    def __init__(self, engine, size, steps, ranks=RANKS):
        self.engine, self.size, self.steps, self.ranks = engine, size, steps, ranks
        self.out, self.logs = BUILD / "out", BUILD / "logs"

    def workflow(self, without):
        """Makes a workflow file from the example's: with this size, with absolute paths, and without some of the tasks."""
        text = (HERE / "workflow.yaml").read_text()
        text = text.replace("workflow: heat", f"workflow: {NAME}").replace('"512", "4000"', f'"{self.size}", "{self.steps}"').replace("../../", f"{TOP}/")
        text = text.replace("{host: ., ", f"{{host: {HERE}, ").replace(" analyse.py", f" {HERE}/analyse.py").replace(" plot.py", f" {HERE}/plot.py")
        text = text.replace(f'-n, "{RANKS}"', f'-n, "{self.ranks}"').replace(f'--ranks, "{RANKS}"', f'--ranks, "{self.ranks}"')
        for task in without:
            text = re.sub(rf"^  {task}:.*?(?=^  \w|\Z)", "", text, flags=re.M | re.S)
        path = BUILD / "workflow.yaml"
        path.write_text(text)
        return path

    def run(self, without=(), kill=None, keep=False):
        if not keep:
            shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(self.logs, ignore_errors=True)
        (self.out / "checkpoints").mkdir(parents=True, exist_ok=True)
        (self.out / "final.bin").unlink(missing_ok=True)
        words = [CROSSDOCK, "run", self.workflow(without), "--engine", self.engine, "--logs", self.logs, "--show", "quiet", "--deadline", "200"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        if kill:
            self.kill_a_rank(process, kill)
        said, _ = process.communicate(timeout=300)
        state = self.out / "final.bin"
        return Ended(process.returncode, said, self.logs, state.read_bytes() if state.exists() else None)

    def kill_a_rank(self, run, dice):
        """Kills one rank with SIGKILL, at a random moment after the second checkpoint."""
        until = time.monotonic() + 120
        while len(list((self.out / "checkpoints").glob("*.h5"))) < 2:
            if run.poll() is not None or time.monotonic() > until:
                return
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.5))
        ranks = sorted(ranks_of(run.pid))
        if ranks:
            os.kill(dice.choice(ranks), signal.SIGKILL)


def ranks_of(run):
    """Yields the process ids of this workflow's solver: processes named heat_series that descend from the run. If a service starts
    the containers, the processes are found by the environment variable that the launcher has set."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        parents[int(folder.name)], names[int(folder.name)] = int(rest.split()[1]), name
    for pid, name in names.items():
        above = pid
        while above in parents and above not in (0, 1, run):
            above = parents[above]
        if name == "heat_series" and (above == run or told(pid)):
            yield pid


def told(pid):
    try:
        return f"CROSSDOCK_WORKFLOW={NAME}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def ends_alike(ended, plain):
    if ended.code:
        return f"exit code {ended.code}\n" + ended.said[-3000:] + "".join(f"--- {n}\n{t[-1500:]}" for n, t in ended.logs.items())
    if ended.state != plain.state:
        return "another end state" if ended.state else "no end state"
    return None


def proved(ended):
    lines = re.findall(r"largest deviation of a mode from its exact decay ([0-9.e+-]+)", ended.logs.get("analyse", ""))
    if not lines:
        return "the analysis says nothing"
    print(f"     {len(lines)} versions analysed, largest deviation {lines[-1]}", flush=True)
    return None


def drawn(runs, ended):
    """Keeps the picture of the undisturbed run, because later runs write their pictures to the same file."""
    picture = runs.out / "heat.png"
    if not picture.exists() or picture.read_bytes()[:8] != PNG:
        return "no picture"
    for path in runs.out.glob("heat*.png"):
        shutil.copy(path, BUILD)
    points = re.search(r"heat.png drawn from (\d+) versions", ended.logs.get("plot", ""))
    print(f"     build/heat/heat.png, {points[1] if points else 'an unknown number of'} points", flush=True)
    return None


def went_on(ended, damaged):
    found = re.search(r"goes on behind step\s+(\d+)", ended.logs.get("solve", ""))
    if not found or int(found[1]) == 0:
        return "it began anew:\n" + ended.logs.get("solve", "")[:1500]
    print(f"     it went on behind step {found[1]}", flush=True)
    if damaged and "damaged" not in ended.logs["solve"] + ended.logs["checkpoint"]:
        return "no program reported the damaged checkpoint"
    return None


def damage_newest(folder):
    newest = next(reversed(sorted(folder.glob("*.h5"))), None)
    if newest is None:
        return
    with open(newest, "r+b") as file:
        file.seek(-100_000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    print(f"     one bit of {newest.name} flipped", flush=True)


def holds_the_end(out, size, steps):
    """Checks that the last checkpoint contains the end state of the undisturbed run. Joins the ranks' blocks by
    functions that every user has. Returns None, or what is wrong."""
    import crossdock
    import numpy as np

    saved, plate = crossdock.restart(out / "checkpoints"), np.empty((size, size))
    for series in saved.series:
        step = saved.attributes(series)["step"]
        if step != steps:
            return f"{saved.path} is of step {step}"
        block, at = saved.read("u", series)[1:-1, 1:-1], saved.constants("u", series)
        plate[at["y"] : at["y"] + block.shape[0], at["x"] : at["x"] + block.shape[1]] = block
    return None if plate.tobytes() == (out / "final.bin").read_bytes() else "another state"


if __name__ == "__main__":
    main()
