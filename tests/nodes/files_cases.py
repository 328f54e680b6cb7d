"""Managed directories with producers and consumers on different hosts: cases of tests/nodes/workflows."""

import json
import shutil

# The producers begin only when all consumers wait. One file has several pieces, one is small, and one lies in a folder.
PASS = """
workflow: frames
files:
  frames: {path: /frames, produce: simulate, consume: [CONSUMERS], wait: 100}
tasks:
  simulate:
    command: 'until [ $(ls /job/waits | wc -l) = COUNT ]; do sleep 0.05; done; mkdir /frames/sub;
      head -c SIZE /dev/urandom > /frames/large; echo small > /frames/small; head -c 70000 /dev/urandom > /frames/sub/x;
      cd /frames && sha256sum large small sub/x'
    node: FROM
    mounts: [{host: ., task: /job}]
"""
CONSUMER = """
  NAME:
    command: 'touch /job/waits/NAME; cd /frames && sha256sum large small sub/x'
    door: DOOR
    node: TO
    mounts: [{host: ., task: /job, write: true}]
"""
LIBRARY = """
  library:
    command: 'touch /job/waits/library; /job/bin/crossdock-test-task await /frames/large; cd /frames; sha256sum large small sub/x'
    door: none
    node: TO
    mounts: [{host: ., task: /job, write: true}]
"""


def add(suite):
    suite.case("files: n1 to n2, once for four doors (root)", passes, suite, "root", "n1", "n2", 80_000_000)
    suite.case("files: n2 to n1 (alice)", passes, suite, "alice", "n2", "n1", 3_000_000)
    suite.case("files: n2 to n3, neither is the runner's (alice)", passes, suite, "alice", "n2", "n3", 3_000_000)
    suite.case("files: producers and consumers on all hosts", all_hosts, suite)
    suite.case("files: a killed writer on another host", writer_killed, suite)
    suite.case("files: the deadline names the producer and its host", deadline, suite)
    suite.case("files: the consumers' host has no room until they have read", room, suite)
    suite.case("files: a file for which no room comes is given up", no_room, suite)
    for victim in ("part", "part's supervisor", "supervisor"):
        suite.case(f"files: kill -9 of {victim}", killed, suite, victim)
    suite.case("files: a producer that fails ends the run and all waits", producer_fails, suite)
    suite.case("files: a host with producers and a consumer is cut off", cut, suite, "n2")
    suite.case("files: ls --files shows the files of all hosts", listed, suite)
    suite.case("files: ls --files says what a host that does not answer has announced", silent, suite)
    suite.case("files: the ranks of an MPI job on all hosts produce and consume (bubblewrap)", job, suite)


def fresh(suite):
    """Makes the folder in which consumers make a file to say that they wait."""
    shutil.rmtree(suite.here / "waits", ignore_errors=True)
    folder = suite.here / "waits"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def line(ended):
    """Gives the line for the workflow's only directory in the summary of a run."""
    return json.loads(ended[1])["files"][0]


def equal(suite, what, got, wanted):
    if got != wanted:
        suite.fail(f"{what}: {got!r}, expected {wanted!r}")


def says(suite, log, *wanted):
    for words in wanted:
        if words not in log:
            suite.fail(f"no {words!r} in {log!r}")


def passes(suite, user, here, there, size):
    fresh(suite)
    doors = {"preload": "preload", "notified": "notification"}
    if user == "root":
        doors["seen"] = "view"
    names = [*doors, "library"]
    text = PASS.replace("CONSUMERS", ", ".join(names)).replace("COUNT", str(len(names))).replace("SIZE", str(size))
    text += "".join(CONSUMER.replace("NAME", name).replace("DOOR", door) for name, door in doors.items()) + LIBRARY
    text = text.replace("FROM", here).replace("TO", there)
    ended = suite.run_it(text, "--json", user=user, engine="bubblewrap")
    suite.expect(ended, 0)
    sums = suite.log("frames", "simulate")
    equal(suite, "files of the producer", len(sums.splitlines()), 3)
    for name in names:
        log = suite.log("frames", name)
        if name == "library":
            equal(suite, "what the library's door says", log.splitlines()[:1], [f"/frames/large has {size} bytes"])
            log = log.split("\n", 1)[1]
        equal(suite, f"sums of {name}", log, sums)
    told = line(ended)
    equal(suite, "published, fetched", (told["published"], told["fetched"]), (3, 3))
    equal(suite, "bytes fetched", told["bytes_fetched"], size + 6 + 70000)
    equal(suite, "troubles", told["troubles"], [])


def all_hosts(suite):
    """There is a producer and a consumer on each host, so two hosts fetch each file, each of them once."""
    text = """
workflow: ring
files:
  f: {path: /f, produce: write, consume: read, wait: 100, keep: consumed}
tasks:
  write: {command: 'for n in 1 2 3; do echo $CROSSDOCK_RANK > /f/$CROSSDOCK_RANK.$n; done', ranks: 3, spread: true}
  read: {command: 'for r in 0 1 2; do cat /f/$r.1 /f/$r.2 /f/$r.3; done', ranks: 3, spread: true}
"""
    ended = suite.run_it(text, "--json", engine="bubblewrap")
    suite.expect(ended, 0)
    for rank in range(3):
        equal(suite, f"rank {rank}", suite.log("ring", f"read.{rank}"), "0\n0\n0\n1\n1\n1\n2\n2\n2\n")
    told = line(ended)
    equal(suite, "published, fetched", (told["published"], told["fetched"]), (9, 18))


def writer_killed(suite):
    text = """
workflow: torn
files:
  f: {path: /f, produce: write, consume: read, wait: 100}
tasks:
  write: {command: "echo whole > /f/1; (echo half >&3; kill -9 $(sh -c 'echo $PPID')) 3> /f/2 || echo killed", node: n2}
  read: {command: 'cat /f/1; cat /f/2 || echo no; ls /f', node: n3}
"""
    ended = suite.run_it(text, "--json", user="root", engine="bubblewrap")
    suite.expect(ended, 0)
    says(suite, suite.log("torn", "read"), "whole\n", "/f/2 will not come: write on n2 ended", "killed", "\nno\n1\n")
    told = line(ended)
    equal(suite, "published, torn, fetched", (told["published"], told["torn"], told["fetched"]), (1, 1, 1))


def producer_fails(suite):
    text = """
workflow: failing
files:
  f: {path: /f, produce: write, consume: read, wait: 100}
tasks:
  write: {command: 'echo x > /f/1; until [ -e /job/waits/read ]; do sleep 0.05; done; exit 3', node: n2, mounts: [{host: ., task: /job}]}
  read: {command: 'trap "" TERM; cat /f/1; touch /job/waits/read; cat /f/2; echo over', node: n3, mounts: [{host: ., task: /job, write: true}]}
"""
    fresh(suite)
    suite.expect(suite.run_it(text, engine="bubblewrap"), 3, "task `write` on n2 ended with exit code 3")


def deadline(suite):
    text = """
workflow: late
files:
  f: {path: /f, produce: write, consume: read, wait: 2}
tasks:
  write: {command: 'until [ -e /job/waits/over ]; do sleep 0.05; done', node: n2, mounts: [{host: ., task: /job}]}
  read: {command: 'cat /f/never || echo $?; touch /job/waits/over', node: n3, mounts: [{host: ., task: /job, write: true}]}
"""
    fresh(suite)
    suite.expect(suite.run_it(text, engine="bubblewrap"), 0)
    words = ("/f/never was not published within 2.0 s: write on n2 still runs", "Connection timed out")
    says(suite, suite.log("late", "read"), *words)


def room(suite):
    """Both hosts have room for two of six files. Each host removes the files that its consumers have read."""
    text = """
workflow: room
files:
  f: {path: /f, produce: write, consume: [read, once], quota: 5 MiB, keep: consumed, wait: 100}
tasks:
  write: {command: 'for n in 1 2 3 4 5 6; do until [ $(df --output=avail -k /f | tail -1) -gt 2500 ]; do sleep 0.05; done;
    head -c 2000000 /dev/urandom > /f/.$n; mv /f/.$n /f/$n; done; until [ -e /job/waits/over ]; do sleep 0.05; done',
    node: n2, mounts: [{host: ., task: /job}]}
  read: {command: 'for n in 1 2 3 4 5 6; do until [ -e /job/waits/$n ]; do sleep 0.05; done; cat /f/$n | wc -c; done; touch /job/waits/over',
    node: n3, mounts: [{host: ., task: /job, write: true}]}
  once: {command: 'for n in 1 2 3 4 5 6; do cat /f/$n | wc -c; touch /job/waits/$n; done',
    node: n3, mounts: [{host: ., task: /job, write: true}]}
"""
    fresh(suite)
    ended = suite.run_it(text, "--json", user="root", engine="bubblewrap")
    suite.expect(ended, 0)
    for name in ("read", "once"):
        equal(suite, f"sizes of {name}", suite.log("room", name), "2000000\n" * 6)
    told = line(ended)
    equal(suite, "published, fetched, troubles", (told["published"], told["fetched"], told["troubles"]), (6, 6, []))


def no_room(suite):
    """Two hosts publish more than the third one may hold."""
    text = """
workflow: full
files:
  f: {path: /f, produce: write, consume: read, quota: 4 MiB, wait: 5}
tasks:
  write: {command: 'head -c 3000000 /dev/zero > /f/$CROSSDOCK_RANK; until [ -e /job/waits/over ]; do sleep 0.05; done',
    ranks: 2, spread: true, mounts: [{host: ., task: /job}]}
  read: {command: 'cat /f/0 | wc -c; cat /f/1 | wc -c; ls /f | wc -l; until [ -e /job/waits/over ]; do sleep 0.05; done',
    node: n3, mounts: [{host: ., task: /job}]}
"""
    waits = fresh(suite)
    child = suite.start(text, "--json", user="root", engine="bubblewrap")

    def states():
        told = json.loads(suite.said("n1", suite.crossdock, "ls", "--files", "--json"))
        return {(file["state"], file["size"], file["reason"] is not None) for d in told["directories"] for file in d["files"]}

    over = lambda: child.poll() is not None
    suite.until("the list shows the file that waits", lambda: over() or ("waits for room", 3000000, True) in states())
    suite.until("the consumers' log says why", lambda: over() or "no room within 5 s" in suite.log("full", "read"))
    suite.until("the list shows the file that was given up", lambda: over() or ("not fetched", None, True) in states())
    if over():
        suite.fail("the run ended before the list showed the file")
    (waits / "over").touch()
    ended = suite.end(child)
    suite.expect(ended, 0)
    log = suite.log("full", "read")
    sizes = sorted(row for row in log.splitlines() if row.isdigit())
    equal(suite, "one file is there, the other is not", sizes, ["0", "1", "3000000"])
    told = line(ended)
    equal(suite, "published, fetched", (told["published"], told["fetched"]), (2, 1))
    if not any("was not fetched from host" in row and "no room within 5 s" in row for row in told["troubles"]):
        suite.fail(f"troubles: {told['troubles']}; log: {log}")


WAITS = """
workflow: sleep
grace: 2
files:
  f: {path: /f, produce: write, consume: [read, seen, beside]}
tasks:
  write: {command: 'echo x > /f/first; echo begins; sleep 600 & sleep 600', node: n2}
  read: {command: 'cat /f/first && echo begins; cat /f/never', node: n3}
  seen: {command: 'cat /f/first && echo begins; cat /f/never', node: n3, door: view}
  beside: {command: 'cat /f/first && echo begins; cat /f/never', node: n2, door: view}
"""


def waiting(suite):
    """Starts a run with consumers on several hosts. Returns when all consumers have read the first file and wait for a
    second file, which is never written."""
    child = suite.start(WAITS, user="root", engine="bubblewrap")
    tasks = ("write", "read", "seen", "beside")
    suite.until("all tasks run", lambda: child.poll() is not None or all("begins" in suite.log("sleep", t) for t in tasks))
    if child.poll() is not None:
        suite.fail(f"the run has ended: {suite.end(child)}")
    return child


def killed(suite, victim):
    child = waiting(suite)
    host, pattern = {
        "part": ("n3", r"crossdock run-part"),
        "part's supervisor": ("n3", r"crossdock supervise-part"),
        "supervisor": ("n1", r"crossdock supervise-run"),
    }[victim]
    suite.kill(host, pattern)
    if suite.end(child)[0] == 0:
        suite.fail("the run ended well")


def cut(suite, host):
    child = waiting(suite)
    with suite.cut_off(host):
        ended = suite.end(child)
        suite.expect(ended, 69, f"host {host}: ", f"was lost with its host {host}")
        # The host's lease ends before the run counts the host as lost, so the consumers' log says that the lease has
        # ended.
        says(suite, suite.log("sleep", "read"), f"host {host} is lost: its lease in the catalog has ended")
        suite.until(f"the tasks of {host} have ended", lambda: not suite.pids(host, "sleep 600|cat /f/never"))


def listed(suite):
    """On the runner's host, `crossdock ls` lists the directories of the other hosts, and the tasks that wait there."""
    child = waiting(suite)
    wanted = {("n2", "first", "published", ""), ("n3", "first", "published", ""), ("n3", "never", "awaited", "read")}

    def seen():
        told = json.loads(suite.said("n1", suite.crossdock, "ls", "--files", "--json"))
        waits = lambda file: ",".join(user["task"] for user in file["awaited_by"])
        return {(d["host"], file["name"], file["state"], waits(file)) for d in told["directories"] for file in d["files"]}

    suite.until("the list has the files of n2 and n3", lambda: wanted <= seen())
    # While a waiting consumer looks at the directory again, `crossdock ls` does not list it as waiting. So the text of
    # `crossdock ls` is read again until it names the consumer.
    words = (" on n2: f at /f (publish close", " on n3: f at /f", "read (")
    suite.until("the text has them, too", lambda: all(word in suite.said("n1", suite.crossdock, "ls", "--files") for word in words))
    equal(suite, "stop", suite.end(suite.on("n1", "root", suite.crossdock, "stop", "sleep"))[0], 0)
    suite.expect(suite.end(child), 143, "stopped by SIGTERM")


def silent(suite):
    """The ssh of the connection to n3 is stopped, so n3 does not answer. The entry of n3 in the catalog is still
    there."""
    child = waiting(suite)
    way = suite.pids("n1", r"^ssh .*n3.*run-part")
    suite.said("n1", "kill", "-STOP", *way)
    try:
        shown, complaints = suite.on("n1", "root", suite.crossdock, "ls", "--files").communicate(timeout=60)
    finally:
        suite.said("n1", "kill", "-CONT", *way)
    announced = "in the catalog it has announced: `f` (0 files published with 0 bytes, 1 files fetched)"
    says(suite, shown + complaints, " on n2: f at /f", f"host n3: no answer within 5s; {announced}")
    equal(suite, "stop", suite.end(suite.on("n1", "root", suite.crossdock, "stop", "sleep"))[0], 0)
    suite.expect(suite.end(child), 143, "stopped by SIGTERM")


# The ranks are ordinary programs, which the job's mpirun starts on all hosts.
JOB = """
workflow: job
files:
  made: {path: /made, produce: solve, consume: sum, wait: 100}
  back: {path: /back, produce: sum, consume: solve, wait: 100}
tasks:
  solve:
    command: [/bin/sh, -c, 'echo $OMPI_COMM_WORLD_RANK > /made/$OMPI_COMM_WORLD_RANK; cat /back/sum; exec cat /back/on-$(hostname)']
    mpi: openmpi
    ranks: 4
    spread: true
  sum:
    command: 'for h in n1 n2 n3; do echo $h > /back/on-$h; done; cat /made/0 /made/1 /made/2 /made/3 | paste -sd+ > /back/sum; cat /made/4 || true'
    node: n2
"""


def job(suite):
    """A host's ranks write into the host's own store. The job's end ends the waits for its files on all hosts."""
    ended = suite.run_it(JOB, "--json", engine="bubblewrap")
    suite.expect(ended, 0)
    lines = sorted(suite.log("job", "solve").split())
    equal(suite, "what the ranks have read", lines, ["0+1+2+3"] * 4 + ["n1", "n1", "n2", "n3"])
    says(suite, suite.log("job", "sum"), "/made/4 will not come: solve on n1 and n2 and n3 ended in order")
    told = {line["directory"]: (line["published"], line["fetched"]) for line in json.loads(ended[1])["files"]}
    equal(suite, "published, fetched", told, {"made": (4, 3), "back": (4, 8)})
