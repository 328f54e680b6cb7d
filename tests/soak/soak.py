#!/usr/bin/env python3
"""Kills, stops and starves workers and the daemon under load, and checks that no byte is wrong, no call hangs and nothing is
left. tests/soak/run builds what this needs.

    soak.py --seconds N --out FOLDER --folder FOLDER_OF_PROGRAMS --pair PRODUCER CONSUMER [--pair …]
            [--run WORKFLOW_FILE …] [--keeper-every SECONDS] [--seed N]

Workers come in pairs of a producer and a consumer. Each is a command that takes a number and seconds. Beside them each
workflow file is run by `crossdock run` again and again, with a daemon of its own; some of these runners are killed. Only processes
that this program started are killed, by their numbers. At the end it prints what happened, and writes report.json and soak.svg.
"""
import argparse
import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HANG = 60.0  # a worker hangs if it prints nothing for so long while it is not stopped
LONGEST_RUN = 300.0
PAUSE = 1.0  # between two runs of a workflow
# How many blocks without a name a worker holds at most; BLOCKS in worker.c. Each of the other workers holds fewer than SPARE.
NAMELESS = {"worker-c": 100}
# How many blocks a worker leaves at most when it is killed: in C++, a vector without a name and its elements.
LOST = {"worker-cpp": 2}
# How many blocks a worker may have beyond these, for the moment that a call takes.
SPARE = 4
SHARED = pathlib.Path("/dev/shm")
# The size of a named semaphore's file, in bytes.
SEMAPHORE = 32
PLAN = pathlib.Path(__file__).resolve().parents[2] / "crates/os/src/faults.rs"

class Faults:
    """The plan in shared memory (crates/os/src/faults.rs) that makes system calls of the running programs fail."""

    # The names of the words of the shared plan, in the order in which the struct FaultPlan declares them.
    WORDS = re.findall(r"^    (\w+): AtomicU64,$", PLAN.read_text().partition("pub struct FaultPlan {")[2].partition("\n}")[0], re.M)

    def __init__(self, path):
        path.write_bytes(bytes(4096))
        self.file = open(path, "r+b")
        self.page = mmap.mmap(self.file.fileno(), 4096)

    def __getitem__(self, name):
        at = 8 * self.WORDS.index(name)
        return int.from_bytes(self.page[at : at + 8], "little")

    def __setitem__(self, name, value):
        at = 8 * self.WORDS.index(name)
        self.page[at : at + 8] = value.to_bytes(8, "little")

class Worker:
    def __init__(self, soak, number, command):
        self.soak, self.number, self.command = soak, number, command
        self.process, self.stopped_until, self.rounds, self.before = None, 0.0, 0, 0
        self.longest, self.kills = 0.0, 0

    def kind(self):
        return pathlib.Path(self.command[-1]).name

    def start(self):
        left = self.soak.until - time.monotonic()
        words = [*self.command, str(self.number), f"{max(left, 0.1):.3f}"]
        log = open(self.soak.out / f"worker-{self.number}.log", "ab")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=self.soak.environment, start_new_session=True)
        log.close()
        os.set_blocking(self.process.stdout.fileno(), False)
        self.heard, self.rest = time.monotonic(), b""

    def read(self):
        """Reads the lines that the worker has printed since the last call. Returns its exit status if it has ended."""
        ended = self.process.poll()
        try:
            said = self.process.stdout.read() or b""
        except BlockingIOError:
            said = b""
        *lines, self.rest = (self.rest + said).split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if not words:
                continue
            self.heard = time.monotonic()
            if words[0] in ("WRONG", "UNEXPLAINED"):
                self.soak.fault(f"worker {self.number} ({self.command[-1]}): {line.decode(errors='replace')}")
            elif words[0] == "SLOW":
                print(f"soak: {self.soak.second():.0f} s: worker {self.number}: {line.decode(errors='replace')}", flush=True)
            elif words[0] == "DONE":
                self.rounds = int(words[1])
            else:
                self.rounds, self.longest = int(words[0]), max(self.longest, float(words[1]))
        return ended

    def position(self):
        """Gives the system call that each thread of the worker is in. A worker in Python also writes its stack to its log."""
        if self.command[-1].endswith(".py"):
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.2)
        calls = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                calls.append(f"{(task / 'comm').read_text().strip()}: {(task / 'syscall').read_text().strip()}")
            except OSError:
                pass
        return "; ".join(calls)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.read()
        self.process.stdout.close()
        self.before, self.rounds, self.kills = self.before + self.rounds, 0, self.kills + 1

class Heap:
    """Counts the blocks in the region of the workers, again and again, by `crossdock inspect`. The workers that are killed must
    not leave more and more blocks."""

    def __init__(self, soak):
        self.soak, self.asking, self.asked, self.told = soak, None, 0.0, None

    def look(self, now):
        """Reads the answer if there is one, and asks again. Gives the number of blocks of the last answer."""
        if self.asking and self.asking.poll() is None:
            if now - self.asked > HANG:
                self.soak.fault(f"`crossdock inspect heap` has not ended after {HANG:.0f} s")
                self.end()
        else:
            if self.asking:
                # A call that meets no daemon, because the keeper was just killed, gives no number.
                text = self.asking.communicate()[0]
                if self.asking.returncode == 0:
                    (self.told,) = json.loads(text)["segments"]
            program = pathlib.Path(self.soak.options.folder) / "crossdock"
            environment = {**self.soak.environment}
            del environment["CROSSDOCK_FAULTS"]
            self.asking = subprocess.Popen([program, "inspect", "heap", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
            self.asked = now
        return self.told["blocks"] if self.told else 0

    def check(self):
        if not self.told:
            self.soak.fault("`crossdock inspect heap` could not count the blocks of the region once")
            return
        workers = self.soak.workers
        allowed = 2 * len(self.told["objects"]) + SPARE * len(workers)
        allowed += sum(NAMELESS.get(worker.kind(), 0) + LOST.get(worker.kind(), 0) * worker.kills for worker in workers)
        if self.told["blocks"] > allowed:
            self.soak.fault(f"the region has {self.told['blocks']} blocks in use, although the workers need at most {allowed}")

    def end(self):
        if self.asking:
            self.asking.kill()
            self.asking.communicate()
            self.asking = None

class Runner:
    """Runs `crossdock run` with one workflow file again and again. Each run ends well or is killed, and leaves nothing behind."""

    def __init__(self, soak, file):
        self.soak, self.file, self.name = soak, file, pathlib.Path(file).stem
        self.process, self.number, self.finished, self.gone_by = None, 0, 0, 0.0

    def mark(self):
        return f"CROSSDOCK_SOAK_RUN={os.getpid()}-{self.name}-{self.number}"

    def start(self):
        self.number += 1
        # The results that the previous run wrote beside its workflow file are removed. Otherwise a solver would
        # continue from them.
        results = pathlib.Path(self.file).with_suffix("")
        if results.is_dir():
            shutil.rmtree(results)
            results.mkdir()
        name, value = self.mark().split("=")
        environment = {**self.soak.environment, name: value, "CROSSDOCK_RUNS": str(self.soak.runs)}
        del environment["CROSSDOCK_SOCKET"], environment["CROSSDOCK_FAULTS"]
        command = [pathlib.Path(self.soak.options.folder) / "crossdock", "run", self.file, "--engine", "process"]
        log = open(self.soak.out / f"run-{self.name}.log", "ab")
        self.process = subprocess.Popen([*command, "--logs", self.soak.out / f"logs-{self.name}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        log.close()
        self.started = time.monotonic()

    def left(self):
        """Gives the processes of this run that still exist."""
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and self.mark().encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.ends()

    def ends(self):
        self.process, self.gone_by = None, time.monotonic() + HANG

    def look(self, now, again):
        if self.process is None:
            if left := self.left():
                if now > self.gone_by:
                    self.soak.fault(f"run {self.name}: processes {left} are left")
                    for pid in left:
                        os.kill(pid, signal.SIGKILL)
                return True
            if again and now > self.gone_by - HANG + PAUSE:
                self.start()
            return again
        status = self.process.poll()
        if status is not None:
            self.finished += status == 0
            if status:
                self.soak.fault(f"run {self.name} ended with {status}; see run-{self.name}.log")
            self.ends()
        elif now - self.started > LONGEST_RUN:
            self.soak.fault(f"run {self.name} has not ended after {LONGEST_RUN:.0f} s")
            self.kill()
        return True

def is_unfinished_semaphore(path):
    """Tells whether this may be a semaphore that a killed program was making. Until the semaphore is complete, the C
    library gives it a random name. crossdock cannot tell such a file from another program's semaphore, so it stays."""
    return re.fullmatch("sem[.][A-Za-z0-9]{6}", path.name) is not None and path.stat().st_size == SEMAPHORE

def shared_files():
    """Gives the names of the files in /dev/shm."""
    return {entry.name for entry in os.scandir(SHARED) if entry.is_file(follow_symlinks=False)}

def is_in_use(path):
    """Tells whether a process has the file open or mapped. The kernel grants a lease only if no process has."""
    signal.signal(signal.SIGIO, lambda *_: None)  # the kernel sends it if a process opens the file meanwhile
    try:
        with open(path, "r+b") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            return False
    except (BlockingIOError, FileNotFoundError):  # a process has the file, or has removed it meanwhile
        return True

class Soak:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.out = pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        for old in self.out.glob("worker-*.log"):
            old.unlink()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="crossdock-soak."))
        self.socket = self.folder / "endpoint.sock"
        self.faults = Faults(self.folder / "faults")
        self.environment = {
            **os.environ,
            "CROSSDOCK_SOCKET": str(self.socket),
            "CROSSDOCK_FAULTS": str(self.folder / "faults"),
            "LD_LIBRARY_PATH": options.folder,
        }
        self.until = time.monotonic() + options.seconds
        self.counts = dict.fromkeys(("workers killed", "workers stopped", "brokers killed", "keepers killed", "runners killed", "starts that failed"), 0)
        self.faulty, self.samples, self.keeper, self.has_asked_for_failures = [], [], None, False
        self.regions, self.split = set(), set()
        self.workers = [Worker(self, 2 * pair + half, words[half].split()) for pair, words in enumerate(options.pair) for half in (0, 1)]
        self.heap = Heap(self)
        self.runs = self.folder / "runs"
        self.runs.mkdir(mode=0o700)
        self.runners = [Runner(self, file) for file in options.run]
        self.shared_before = shared_files()

    def second(self):
        return time.monotonic() - self.began

    def fault(self, text):
        print(f"soak: {text}", flush=True)
        self.faulty.append(text)

    def start_keeper(self):
        program = pathlib.Path(self.options.folder) / "crossdock-node"
        log = open(self.out / "daemon.log", "ab")
        self.keeper = subprocess.Popen([program, "--socket", self.socket], stdout=log, stderr=log, env=self.environment)
        log.close()
        self.served, self.next_probe = False, time.monotonic() + 0.5

    def broker(self):
        try:
            return int(pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            return None

    def serves(self):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                probe.connect(str(self.socket))
                listener = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            # If the keeper was killed, its broker may listen for a moment longer. So the listening process must be
            # this keeper or a child of it.
            stat = pathlib.Path(f"/proc/{listener}/stat").read_text()
            return self.keeper.pid in (listener, int(stat.rpartition(")")[2].split()[1]))
        except OSError:
            return False

    def could_not_start(self):
        last = (self.out / "daemon.log").read_text(errors="replace").splitlines()[-1:]
        return any("could not start" in line or "cannot be opened" in line for line in last)

    def kill_keeper(self):
        self.keeper.kill()
        self.keeper.wait()
        self.counts["keepers killed"] += 1
        self.start_keeper()

    def disturb(self, now):
        """Looks once at all processes, and does the kills, stops and restarts whose time has come."""
        for worker in self.workers:
            if worker.stopped_until and now >= worker.stopped_until:
                os.kill(worker.process.pid, signal.SIGCONT)
                worker.stopped_until, worker.heard = 0.0, now
        if self.options.keeper_every and now >= self.keeper_due:
            self.keeper_due = now + self.options.keeper_every
            self.kill_keeper()
        if self.keeper.poll() is not None:
            # A daemon that never served may have ended because the plan of faults gave it no descriptor, memory or
            # space. A daemon that has served must not end. `served` can be true for a daemon that could not start, because
            # the kernel accepts the connection of the probe before the daemon does.
            if self.served and not self.could_not_start():
                self.fault(f"the daemon ended by itself, status {self.keeper.returncode}")
            self.counts["starts that failed"] += 1
            self.start_keeper()
        if not self.served and now >= self.next_probe:
            self.served, self.next_probe = self.serves(), now + 0.1
        if now < self.next_event:
            return
        self.next_event = now + self.random.uniform(0.2, 1.5)
        worker = self.random.choice(self.workers)
        what = self.random.choice(("kill", "kill", "stop", "broker", "runner", *(() if self.options.no_faults else ("faults",)), "nothing"))
        if what == "kill" and not worker.stopped_until:
            worker.kill()
            worker.start()
            self.counts["workers killed"] += 1
        elif what == "stop" and not worker.stopped_until and worker.process.poll() is None:
            os.kill(worker.process.pid, signal.SIGSTOP)
            worker.stopped_until = now + self.random.uniform(0.1, 2.0)
            self.counts["workers stopped"] += 1
        elif what == "broker" and (broker := self.broker()):
            os.kill(broker, signal.SIGKILL)
            self.counts["brokers killed"] += 1
        elif what == "runner" and self.runners and (runner := self.random.choice(self.runners)).process:
            runner.kill()
            self.counts["runners killed"] += 1
        elif what == "faults":
            self.faults["one_in"] = 0 if self.faults["one_in"] else self.random.choice((50, 200, 1000))
            self.has_asked_for_failures = True

    def look(self, now):
        for worker in self.workers:
            ended = worker.read()
            if ended is not None and now < self.until:
                if ended != 0:
                    self.fault(f"worker {worker.number} ({worker.command[-1]}) ended with {ended}")
                worker.process.stdout.close()
                worker.before, worker.rounds = worker.before + worker.rounds, 0
                worker.start()
            if not worker.stopped_until and ended is None and now - worker.heard > HANG:
                self.fault(f"worker {worker.number} ({worker.command[-1]}) has said nothing for {HANG:.0f} s; it is in {worker.position()}")
                worker.kill()
                worker.start()

        for runner in self.runners:
            runner.look(now, again=True)

    def check_names(self):
        """Checks that all workers have the same memory under the name of the region: no name may be given out anew while a
        living process has the old object. What one worker has is read before and after what the others have, so
        only memory that was seen twice in a row counts."""
        seen = set()
        for worker in self.workers:
            try:
                maps = pathlib.Path(f"/proc/{worker.process.pid}/maps").read_text().splitlines()
            except OSError:
                continue
            seen |= {(worker.number, worker.process.pid, line.split()[4]) for line in maps if ":region:heap" in line}
        lasting, self.regions = seen & self.regions, seen
        files = {file for _, _, file in lasting}
        if len(files) > 1 and files != self.split:
            self.split = files
            holders = [sorted(number for number, _, of in lasting if of == file) for file in sorted(files)]
            self.fault(f"the name of one region belongs to {len(files)} regions at once; workers that have them: {holders}")

    def sample(self, now):
        def kilobytes(pid, what):
            try:
                text = pathlib.Path(f"/proc/{pid}/status").read_text()
                return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(what))
            except (OSError, StopIteration):
                return 0

        def descriptors(pid):
            try:
                return len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                return 0

        programs = [worker.process.pid for worker in self.workers]
        daemon = [pid for pid in (self.keeper.pid, self.broker()) if pid]
        self.samples.append(
            {
                "second": round(now - self.began, 1),
                "memory": (sum(kilobytes(pid, "RssAnon") for pid in programs + daemon) + max(kilobytes(pid, "RssShmem") for pid in programs)) / 1024,
                "descriptors": sum(map(descriptors, programs + daemon)),
                "blocks": self.heap.look(now),
                "latency": max(worker.longest for worker in self.workers),
                "rounds": sum(worker.before + worker.rounds for worker in self.workers),
            }
        )
        for worker in self.workers:
            worker.longest = 0.0

    def run(self):
        self.began = time.monotonic()
        self.until = self.began + self.options.seconds
        self.start_keeper()
        self.next_event = self.began + 1
        self.keeper_due = self.began + (self.options.keeper_every or 0)
        for worker in self.workers:
            worker.start()
        self.faults["seed"] = self.options.seed
        due = check_due = self.began + 1
        try:
            while (now := time.monotonic()) < self.until:
                self.disturb(now)
                self.look(now)
                if now >= check_due:
                    self.check_names()
                    check_due = now + 1
                if now >= due:
                    self.sample(now)
                    due = now + max(1.0, self.options.seconds / 600)
                time.sleep(0.02)
            self.end()
        except KeyboardInterrupt:
            self.options.seconds = time.monotonic() - self.began
            self.fault("Ctrl-C ended the test early, and the end was not checked")
        finally:
            self.clean_up()
        return self.report()

    def end(self):
        """Ends the test: from now on no call is made to fail, and no process is killed. Each worker must end by itself,
        and the daemon when it is asked to."""
        self.heap.check()
        self.faults["one_in"] = 0
        patience = time.monotonic() + HANG
        for worker in self.workers:
            if worker.stopped_until:
                os.kill(worker.process.pid, signal.SIGCONT)
        for worker in self.workers:
            while (ended := worker.read()) is None and time.monotonic() < patience:
                time.sleep(0.02)
            if ended != 0:
                self.fault(f"worker {worker.number} ({worker.command[-1]}) ended with {ended} at the end")
        patience = time.monotonic() + LONGEST_RUN
        while any([runner.look(time.monotonic(), again=False) for runner in self.runners]) and time.monotonic() < patience:
            time.sleep(0.1)
        patience = time.monotonic() + HANG
        while not self.serves() and time.monotonic() < patience:
            time.sleep(0.02)
        broker = self.broker()
        self.keeper.terminate()
        try:
            if self.keeper.wait(HANG) != 0:
                self.fault(f"the daemon ended with {self.keeper.returncode} when it was told to end")
        except subprocess.TimeoutExpired:
            self.fault("the daemon did not end when it was told to")
        if broker and os.path.exists(f"/proc/{broker}"):
            self.fault(f"the broker {broker} outlived its keeper")
        left = sorted(path.name for path in self.folder.iterdir() if path.name not in ("faults", "runs"))
        if self.runners:
            # If two processes of a run were killed at the same time, the next run removes what they left.
            self.runners[0].start()
            self.runners[0].process.wait(LONGEST_RUN)
        left += sorted(str(path) for path in self.runs.rglob("*") if path.parent != self.runs)
        # MPI programs make files in the machine's /dev/shm. Files that other programs use are not left.
        shared = [SHARED / name for name in shared_files() - self.shared_before]
        left += sorted(str(path) for path in shared if not is_in_use(path) and not is_unfinished_semaphore(path))
        if left:
            self.fault(f"files are left: {left}")

    def clean_up(self):
        self.heap.end()
        # A runner that is told to end stops its tasks and removes the folder of its run.
        ending = [runner.process for runner in self.runners if runner.process and runner.process.poll() is None]
        for process in ending:
            process.terminate()
        for process in ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HANG)
        for process in [worker.process for worker in self.workers] + [runner.process for runner in self.runners] + [self.keeper]:
            if process and process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def report(self):
        counts = {**self.counts, "calls failed": self.faults["failed"], "calls": self.faults["calls"]}
        rounds = {}
        for worker in self.workers:
            rounds[worker.kind()] = rounds.get(worker.kind(), 0) + worker.before + worker.rounds
        rounds |= {f"run {runner.name}": runner.finished for runner in self.runners}
        idle = [f"worker {w.number} ({w.command[-1]}) did not finish one round" for w in self.workers if w.before + w.rounds == 0]
        for text in idle:
            self.fault(text)
        if self.has_asked_for_failures and not self.faults["failed"]:
            self.fault("no system call failed, although system calls were to fail")
        told = {"seconds": self.options.seconds, "seed": self.options.seed, "counts": counts, "rounds": rounds, "wrong": self.faulty, "samples": self.samples}
        (self.out / "report.json").write_text(json.dumps(told, indent=1))
        (self.out / "soak.svg").write_text(plot(self.samples))
        print(f"soak: {self.options.seconds:.0f} s, seed {self.options.seed}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        print("soak: rounds by " + ", ".join(f"{kind}: {n}" for kind, n in rounds.items()))
        if self.samples:
            third = max(1, len(self.samples) // 3)
            for what, unit in (("memory", "MB"), ("descriptors", ""), ("blocks", ""), ("latency", "ms")):
                parts = [sorted(s[what] for s in part)[len(part) // 2] for part in (self.samples[:third], self.samples[-third:])]
                most = max(s[what] for s in self.samples)
                print(f"soak: {what}: median of the first third {parts[0]:.0f} {unit}, of the last {parts[1]:.0f}, most {most:.0f}")
        checks = 6
        print(f"{max(0, checks - len(self.faulty))} passed, {len(self.faulty)} failed, 0 skipped")
        return 1 if self.faulty else 0

def plot(samples):
    """Draws memory, descriptors, blocks of the region and latency over time, as SVG."""
    width, height, gap = 900, 160, 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 100}" height="{4 * (height + gap)}" font-family="sans-serif" font-size="12">']
    for row, (what, unit) in enumerate((("memory", "MB"), ("descriptors", ""), ("blocks", "of the workers' region"), ("latency", "ms, longest round"))):
        top, most = row * (height + gap) + 20, max([s[what] for s in samples] or [1]) or 1
        last = max(samples[-1]["second"], 1) if samples else 1
        points = " ".join(f"{60 + width * s['second'] / last:.1f},{top + height - height * s[what] / most:.1f}" for s in samples)
        parts += [
            f'<text x="60" y="{top - 6}">{what} {unit}, at most {most:.0f}; {last:.0f} s</text>',
            f'<rect x="60" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>',
            f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="1.2"/>',
        ]
    return "\n".join([*parts, "</svg>", ""])

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--pair", action="append", nargs=2, required=True)
    parser.add_argument("--run", action="append", default=[])
    parser.add_argument("--keeper-every", type=float, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--no-faults", action="store_true", help="no system call is made to fail")
    return Soak(parser.parse_args()).run()

if __name__ == "__main__":
    sys.exit(main())
