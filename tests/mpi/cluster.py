"""Makes hosts in namespaces (tests/mpi/hosts) for tests and benchmarks of MPI jobs, and finds what jobs leave behind on them."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build"
ENVIRONMENTS = BUILD / "env"
ROOT = BUILD / "roots" / "mpi"

# For each MPI: the value of --mpi, the test's program, and the largest number of hosts that it runs on.
MPIS = {
    "openmpi4": ("openmpi", "hello.openmpi", 99),
    # Debian's MPICH 4.0 may hang in MPI_Finalize, even without crossdock (pmodels/mpich #6596): usually on three or
    # more hosts, and sometimes on two. A case that hangs is repeated.
    "mpich4": ("mpich", "hello.mpich", 2),
    "openmpi5": ("/opt/mpi-openmpi/bin/mpirun", "hello.openmpi", 99),
    "mpich5": ("/opt/mpi-mpich/bin/mpiexec", "hello.mpich5", 99),
    "intel": ("/opt/mpi-intel/bin/mpiexec.hydra", "hello.mpich5", 99),
}
ENGINES = ["bubblewrap", "process", "charliecloud", "podman", "docker"]
# Without a container, a killed mpiexec of MPICH leaves its hydra_hwloc_xmlfile_… in /tmp, even without crossdock.
LEFTOVERS = re.compile(r"crossdock|orted|prted|prterun|orterun|hydra(?!_hwloc_xmlfile_)|mpiexec|hello\.|bwrap|ch-run|conmon|runc|^srun|salloc")


class Failed(Exception):
    pass


class Cluster:
    """Hosts n1, n2 and so on, and a folder that all of them have."""

    def __init__(self, count, docker=False):
        self.count, self.docker = count, docker
        # The temporary folder of a benchmark is removed with the benchmark. It must be in /tmp, because the hosts need it
        # there.
        own = os.environ.get("TMPDIR", "")
        self.work = Path(tempfile.mkdtemp(prefix="crossdock-hosts-", dir=own if own.startswith("/tmp/") else "/tmp"))
        self.work.chmod(0o777)
        self.here = self.work / "job"
        self.here.mkdir()
        self.here.chmod(0o777)

    def start(self):
        subprocess.run([HERE / "hosts", "start", self.work, str(self.count)], check=True)
        if self.docker:
            subprocess.run([HERE / "hosts", "docker", self.work], check=True)

    def stop(self):
        subprocess.run([HERE / "hosts", "stop", self.work], check=False)
        shutil.rmtree(self.work, ignore_errors=True)

    def on(self, host, user, *words, **settings):
        command = [str(HERE / "hosts"), "on", str(self.work), host, user, *map(str, words)]
        settings.setdefault("cwd", self.here)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)

    def pids(self, host, pattern):
        output, _ = self.on(host, "root", "ps", "-eo", "pid=,args=").communicate()
        found = [line.split(None, 1) for line in output.splitlines()]
        return [pid for pid, args in (f for f in found if len(f) == 2) if re.search(pattern, args)]

    def leftovers(self):
        found = []
        for k in range(1, self.count + 1):
            script = "ps -eo pid=,args=; ls -A /tmp /dev/shm /run/crossdock* 2>/dev/null"
            if self.docker:
                script += "; docker ps --all --format 'crossdock: container {{.Names}}'; docker images --format 'crossdock: image {{.Repository}}'"
            output, _ = self.on(f"n{k}", "root", "sh", "-c", script).communicate()
            for line in output.splitlines():
                # Lines with the name of the shared folder do not count as leftovers, and neither do dead processes that
                # process 1 has not collected yet.
                if LEFTOVERS.search(line) and self.work.name not in line and "<defunct>" not in line and "ps -eo" not in line:
                    found.append(f"n{k}: {line.strip()}")
        return found

    def nothing_left(self, seconds=60):
        deadline = time.monotonic() + seconds
        while (found := self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if found:
            raise Failed("left behind:\n  " + "\n  ".join(found))

    def sweep(self):
        """Cleans up after a failed case, so that its leftovers do not make the next one fail."""
        if (self.work / "slurm").exists():
            self.on("n1", "root", "sh", "-c", "scancel $(squeue --noheader --format %i)").communicate()
        for line in self.leftovers():
            host, _, rest = line.partition(": ")
            pid, _, words = rest.partition(" ")
            if pid.isdigit() and int(pid) > 1:
                self.on(host, "root", "kill", "-9", pid).communicate()
            elif pid == "crossdock:":
                kind, name = words.split()[:2]
                self.on(host, "root", "docker", "rmi" if kind == "image" else "rm", "--force", name).communicate()
            else:
                self.on(host, "root", "sh", "-c", "rm -rf /tmp/crossdock-mpi-* /dev/shm/crossdock-*").communicate()


def bare(mpi, hosts, ranks, command):
    """Gives the words that start these ranks by the MPI's own launcher, without crossdock. `hosts` has the form n1:2,n2:2."""
    choice = MPIS[mpi][0].replace("/opt/", f"{ENVIRONMENTS}/")
    prefix = Path(choice).parent.parent if "/" in choice else None
    words = ["env"]
    if prefix:
        words.append(f"LD_LIBRARY_PATH={prefix}/lib:{prefix}/lib/mpich")
    if mpi.startswith("openmpi"):
        words += [f"{name}={prefix}" for name in ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX") if prefix]
        words += [choice if prefix else "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), "--host", hosts]
        words += ["-x", "LD_LIBRARY_PATH"] if prefix else []
    else:
        words += ["I_MPI_PIN=0", choice if prefix else "mpiexec.hydra", "-n", str(ranks)]
        # MPICH's launcher reads the number of ranks on a host from the list of hosts. Intel MPI's launcher gets this
        # number by the option -ppn.
        words += ["-hosts", hosts] if mpi != "intel" else ["-hosts", ",".join(h.split(":")[0] for h in hosts.split(",")), "-ppn", hosts.split(":")[-1]]
    return [*words, *map(str, command)]


def make_root(mpis):
    """Makes a root folder with the machine's programs and MPIs, by hard links if possible, and with the test's programs."""
    out = BUILD / "mpi"
    out.mkdir(parents=True, exist_ok=True)
    compilers = {"hello.openmpi": "mpicc.openmpi", "hello.mpich": "mpicc.mpich", "hello.mpich5": ENVIRONMENTS / "mpi-mpich/bin/mpicc"}
    for program, compiler in compilers.items():
        wanted = {MPIS[m][1] for m in mpis}
        if program in wanted and not newer(out / program, HERE / "hello.c"):
            subprocess.run([compiler, "-O2", "-o", out / program, HERE / "hello.c"], check=True)
    # The root folder contains all installed MPIs, even if this run uses only some of them, because another run may use
    # the same folder.
    there = " ".join(name for name in ("mpi-openmpi", "mpi-mpich", "mpi-intel") if (ENVIRONMENTS / name).is_dir())
    # Intel MPI needs this library to use Slurm's PMI2.
    there += " libpmi2" * Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libpmi2.so.0").exists()
    stamp = ROOT.parent / ".mpi.stamp"
    if ROOT.is_dir() and stamp.exists() and stamp.read_text() == there:
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    for folder in ("proc", "sys", "dev", "run", "tmp", "home", "mnt", "root", "opt", "usr/share", "etc"):
        (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (ROOT / name).symlink_to(f"usr/{name}")
    machine = f"usr/lib/{os.uname().machine}-linux-gnu"
    for folder in ("usr/bin", machine, "usr/lib64", "usr/lib/openmpi", "usr/share/openmpi", "usr/share/pmix", "etc/openmpi", "etc/alternatives",
                   "etc/pmix", "usr/share/libfabric", "usr/lib/libpsm1"):
        if Path("/", folder).is_dir():
            link_tree(Path("/", folder), ROOT / folder)
    for file in ("ld.so.cache", "ld.so.conf", "nsswitch.conf", "openmpi-mca-params.conf", "pmix-mca-params.conf"):
        if Path("/etc", file).exists():
            shutil.copy(Path("/etc", file), ROOT / "etc" / file)
    for file, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n"), ("hosts", ""), ("resolv.conf", "")):
        (ROOT / "etc" / file).write_text(text)
    for name in ("mpi-openmpi", "mpi-mpich", "mpi-intel"):
        if (ENVIRONMENTS / name).is_dir():
            link_tree(ENVIRONMENTS / name, ROOT / "opt" / name)
    (ROOT / "usr/sbin").mkdir(exist_ok=True)
    stamp.write_text(there)


def newer(file, source):
    return file.exists() and file.stat().st_mtime >= source.stat().st_mtime


def link_tree(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["cp", "-al", source, target], capture_output=True, check=False).returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", source, target], check=True)
