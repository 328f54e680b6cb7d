"""The places where the tasks of a run are: all on this machine, or on hosts that are network namespaces of it.

With two hosts, `extract` and `combine` are on the first host and the detectors on the second. With three hosts, the
combiner has the third host for itself. So both measured hand-overs of a frame go from host to host.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build" / "street"
HOSTS = TOP / "tests/mpi/hosts"
PLACES = {2: {"extract": 1, "detect": 2, "combine": 1}, 3: {"extract": 1, "detect": 2, "combine": 3}}


def place(nodes, crossdock):
    """Gives the place where the tasks run, with `nodes` hosts, as a context manager. The hosts are removed when the
    context ends."""
    return Hosts(nodes, crossdock) if nodes > 1 else Here(crossdock)


class Here:
    """The place of runs on one host: this machine, without namespaces."""

    nodes, folder, addresses, roots = 1, BUILD, ["127.0.0.1"] * 3, ()

    def __init__(self, crossdock):
        self.crossdock = crossdock

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def text(self, text):
        """Gives the text of the workflow file with the changes that runs at this place need."""
        return text

    def start(self, *words):
        return subprocess.Popen([self.crossdock, *map(str, words)], stdout=subprocess.DEVNULL)


class Hosts:
    """Hosts n1, n2 …, each with a network, a /tmp and a /run of its own; veth pairs and a bridge connect them."""

    def __init__(self, nodes, crossdock):
        if os.geteuid() != 0:
            sys.exit("street: the hosts of --nodes are network namespaces, which need root")
        self.nodes, self.shared = nodes, Path(tempfile.mkdtemp(prefix="street-", dir="/tmp"))
        self.folder = self.shared / "job"
        self.folder.mkdir()
        self.crossdock = self.folder / "crossdock"
        shutil.copy(crossdock, self.crossdock)
        self.addresses = [f"10.77.0.{host}" for host in PLACES[nodes].values()]

    def __enter__(self):
        # The hosts are also removed if a time limit ends this program.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            subprocess.run([HOSTS, "start", self.shared, str(self.nodes)], check=True)
            for host in range(1, self.nodes + 1):
                for command in (["mkdir", "-p", self.folder / "top"], ["mount", "--bind", "-o", "ro", TOP, self.folder / "top"]):
                    subprocess.run([*self.on(f"n{host}"), *command], check=True, cwd=self.folder)
        except BaseException:
            self.__exit__()
            raise
        self.roots = [int((self.shared / f"pid/n{host}").read_text()) for host in range(1, self.nodes + 1)]
        return self

    def __exit__(self, *_):
        subprocess.run([HOSTS, "stop", self.shared], check=False)
        shutil.rmtree(self.shared, ignore_errors=True)

    def on(self, host):
        return [HOSTS, "on", self.shared, host, "root"]

    def text(self, text):
        text = text.replace("../../build/street/out", "out").replace("../../", "top/")
        for task, host in PLACES[self.nodes].items():
            text = text.replace(f"\n  {task}:\n", f"\n  {task}:\n    node: n{host}\n")
        return text

    def start(self, *words):
        hosts = ",".join(f"n{host}" for host in range(1, self.nodes + 1))
        words = [*self.on("n1"), self.crossdock, *words, "--hosts", hosts]
        return subprocess.Popen([*map(str, words)], stdout=subprocess.DEVNULL, cwd=self.folder)
