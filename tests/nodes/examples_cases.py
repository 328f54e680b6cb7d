"""The cases of tests/nodes/workflows --examples: the examples melt, heat and street with their tasks on three hosts.

The workflow files are those of the examples. Only the hosts of the tasks are added, and one task of heat starts its
ranks on all hosts. The results must be the same bit for bit as those of a run on one host.
"""

import json
import re
import shutil

# The sizes of the runs: those of a quick test (True), and those of a full test (False).
MELT_STEPS = {True: 100, False: 500}
HEAT_SIZE = {True: ("128", "400", "20"), False: ("512", "2000", "20")}
STREET_FRAMES = {True: 20, False: 200}


def add(suite, quick):
    for host in suite.names:
        suite.said(host, "mkdir", "-p", suite.here / "top")
        suite.expect(suite.end(suite.on(host, "root", "mount", "--bind", "-o", "ro", suite.top, suite.here / "top")), 0)
    # podman, like docker, has a storage of its own on each host; bubblewrap has none. A full test runs an engine of
    # each kind.
    settings = [("alice", "bubblewrap")] if quick else [(user, engine) for engine in ("bubblewrap", "podman") for user in ("root", "alice")]
    for name, example in (("melt", Melt), ("heat", Heat), ("street", Street)):
        if suite.only and not any(word in f"examples: {name}" for word in suite.only):
            continue
        example = example(suite, quick)
        suite.case(f"examples: {name} on one host", example.on_one_host)
        for user, engine in settings:
            suite.case(f"examples: {name} on three hosts ({user}, {engine})", example.on_three_hosts, user, engine)


class Example:
    """One of the examples: `files` are its results, `spread` says where its tasks run."""

    def __init__(self, suite, quick):
        self.suite, self.quick = suite, quick
        self.reference = {}

    def text(self, places):
        """Gives the text of the example's workflow file, with the paths that exist on the hosts, and with a line for
        each task that says on which host the task runs."""
        here = self.suite.here
        text = (self.suite.top / f"examples/{self.name}/workflow.yaml").read_text()
        text = self.sized(text).replace("../../", f"{here}/top/").replace("{host: ., ", f"{{host: {here}/top/examples/{self.name}, ")
        text = re.sub(rf"{here}/top/build/[\w/]+(?=, task: /out)", f"{here}/out", text)
        for task, place in places.items():
            text, count = re.subn(rf"^  {task}:.*\n", rf"\g<0>    {place}\n", text, flags=re.M)
            if count != 1:
                self.suite.fail(f"examples/{self.name}/workflow.yaml has {count} tasks of the name {task}")
        return text

    def run(self, places, user, engine, hosts):
        out = self.suite.here / "out"
        shutil.rmtree(out, ignore_errors=True)
        for folder in (out, out / "checkpoints"):
            folder.mkdir()
            folder.chmod(0o777)
        ended = self.suite.run_it(self.text(places), "--json", user=user, engine=engine, hosts=hosts)
        logs = {path.name: path.read_text(errors="replace")[-1000:] for path in (self.suite.here / f"crossdock-logs/{self.name}").glob("*.log")}
        if ended[0] != 0:
            self.suite.fail(f"exit code {ended[0]}: {ended[1]}{ended[2]}\n{logs}")
        used = sorted({task["host"] for task in json.loads(ended[1])["tasks"] if "host" in task})
        if hosts and used != hosts.split(","):
            self.suite.fail(f"tasks ran on {used}")
        self.check(out)
        return {file: (out / file).read_bytes() for file in self.files}

    def on_one_host(self):
        self.reference = self.run({}, "alice", "bubblewrap", None)

    def on_three_hosts(self, user, engine):
        got = self.run(self.places, user, engine, "n1,n2,n3")
        if not self.reference:
            self.suite.fail("there is no result of one host to compare with")
        differ = [file for file in self.files if got[file] != self.reference[file]]
        if differ:
            self.suite.fail(f"{differ} are not those of the run on one host")

    def check(self, out):
        """Checks further claims about the results of a run."""


class Melt(Example):
    name, files = "melt", ["melt.npz", "melt.png", "proof.txt"]
    places = {"simulate": "node: n1", "analyse": "node: n2", "plot": "node: n3"}

    def sized(self, text):
        return text.replace('"500"', f'"{MELT_STEPS[self.quick]}"')

    def check(self, out):
        proof = (out / "proof.txt").read_text()
        if not proof.startswith("proved"):
            self.suite.fail(proof)


class Street(Example):
    name, files = "street", ["detections.json", "street.mp4", "contact-sheet.png"]
    places = {"extract": "node: n1", "detect": "spread: true", "combine": "node: n3"}

    def sized(self, text):
        more = f'--detectors, "3", --frames, "{STREET_FRAMES[self.quick]}"'
        return text.replace('--detectors, "2"', more).replace("ranks: 2", "ranks: 3")

    def check(self, out):
        if '"boxes": [[' not in (out / "detections.json").read_text():
            self.suite.fail("no frame has a person, so equal detections prove nothing")


class Heat(Example):
    """The solver is one MPI job with one rank on each host. The checkpoint, the analysis and the plot run on one host
    each."""

    name, files = "heat", ["final.bin"]
    places = {"solve": "spread: true", "checkpoint": "node: n2", "analyse": "node: n3", "plot": "node: n1"}

    def sized(self, text):
        return text.replace('"512", "4000", "20"', ", ".join(f'"{word}"' for word in HEAT_SIZE[self.quick]))

    def text(self, places):
        text = super().text(places)
        if places:
            # crossdock starts the ranks, so the command is the program alone.
            text = re.sub(r"\[/usr/bin/mpirun.openmpi, --oversubscribe, -n, \"4\", ", "[", text)
            text = text.replace("    spread: true\n", "    spread: true\n    ranks: 3\n    mpi: auto\n").replace('--ranks, "4"', '--ranks, "3"')
            text = re.sub(r"^      OMPI_(?!MCA_mpi_yield).*\n|^      HWLOC.*\n", "", text, flags=re.M)
        return text

    def on_one_host(self):
        """Runs the plain program, without crossdock and without a container."""
        out = self.suite.here / "plain"
        out.mkdir()
        out.chmod(0o777)
        words = ["mpirun.openmpi", "--oversubscribe", "-n", "4", self.suite.here / "top/build/heat/program/heat", *HEAT_SIZE[self.quick], out]
        said = self.suite.end(self.suite.on("n1", "alice", *words))
        self.suite.expect(said, 0)
        self.reference = {"final.bin": (out / "final.bin").read_bytes()}

    def check(self, out):
        suite = self.suite
        analysed = re.findall(r"largest deviation of a mode from its exact decay ([0-9.e+-]+)", suite.log("heat", "analyse"))
        drawn = re.search(r"heat.png drawn from (\d+) versions", suite.log("heat", "plot"))
        if not analysed or not drawn or int(drawn[1]) == 0:
            suite.fail(f"analyse: {suite.log('heat', 'analyse')}\nplot: {suite.log('heat', 'plot')}")
        newest = max(path.name for path in (out / "checkpoints").glob("*.h5"))
        saved = suite.said("n1", suite.here / "top/build/env/plot/bin/python3", "-c", SAVED, out / "checkpoints", HEAT_SIZE[self.quick][0])
        if saved != (out / "final.bin").read_bytes().hex():
            suite.fail(f"the last checkpoint, {newest}, has another state than the solver at its end")


# Prints the plate of the last checkpoint of all ranks, in hexadecimal digits.
SAVED = """
import sys, crossdock, numpy as np
saved, n = crossdock.restart(sys.argv[1]), int(sys.argv[2])
plate = np.empty((n, n))
for series in saved.series:
    block, at = saved.read("u", series)[1:-1, 1:-1], saved.constants("u", series)
    plate[at["y"] : at["y"] + block.shape[0], at["x"] : at["x"] + block.shape[1]] = block
print(plate.tobytes().hex(), end="")
"""
