#!/usr/bin/env python3
"""Runs unmodified programs as producers and consumers of one managed directory, and compares every checksum.

    examples/files/gallery.py --build FOLDER --crossdock PROGRAM [--engine NAME] [--python PROGRAM] [--rustc PROGRAM]
                              [--go PROGRAM] [--door preload|notification]

Each program that is installed writes a file of its own, late and in pieces; each one reads all files, which it opens before
they are there. Prints one line a program and ends with `N passed, N failed, N skipped`.
"""
import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LINES = 30000
PATH = "/data/frames"


class Program:
    """A program: how it is built, how it writes standard input to a file, how it writes a file to standard output."""

    def __init__(self, name, needs, write, read, build=None, own_format=False, door="auto"):
        self.name, self.needs, self.write, self.read, self.build = name, needs, write, read, build
        # A shell starts it: the launcher sees the shell's kind, not the program's.
        self.door = door
        # Only the program itself can read what it writes.
        self.own_format = own_format


def programs(python, rustc, go):
    code = {
        "write": "import sys,{m}; d=sys.stdin.buffer.read(); {s}",
        "read": "import sys,{m}; d={s}; sys.stdout.buffer.write(d)",
    }

    def py(kind, modules, statement):
        return f"{python} -c '" + code[kind].format(m=modules, s=statement) + "' FILE"

    array = 'numpy.frombuffer(d,dtype="u1")'
    return [
        Program("C stdio", ["cc"], "/b/stdio write FILE", "/b/stdio read FILE", ["cc", "-O1", "-o", "OUT/stdio", "SRC/stdio.c"]),
        Program("static C", ["cc"], "/b/static write FILE", "/b/static read FILE", ["cc", "-static", "-O1", "-o", "OUT/static", "SRC/stdio.c"], door="notification"),
        Program("Go", [go], "/b/go write FILE", "/b/go read FILE", ["env", "CGO_ENABLED=0", "GO111MODULE=off", go, "build", "-o", "OUT/go", "SRC/files.go"], door="notification"),
        Program("C++ streams", ["c++"], "/b/stream write FILE", "/b/stream read FILE", ["c++", "-O1", "-o", "OUT/stream", "SRC/stream.cpp"]),
        Program("Fortran", ["gfortran"], "/b/lines write FILE", "/b/lines read FILE", ["gfortran", "-O1", "-o", "OUT/lines", "SRC/lines.f90"]),
        Program("Rust", [rustc], "/b/rust write FILE", "/b/rust read FILE", [rustc, "-O", "-o", "OUT/rust", "SRC/files.rs"]),
        Program("Java", ["javac", "java"], "java -Xshare:auto -cp /b Files write FILE", "java -cp /b Files read FILE", ["javac", "-d", "OUT", "SRC/Files.java"]),
        Program("Python open", [python], py("write", "os", 'open(sys.argv[1],"wb").write(d)'), py("read", "os", 'open(sys.argv[1],"rb").read()')),
        Program("Python pathlib", [python], py("write", "pathlib", "pathlib.Path(sys.argv[1]).write_bytes(d)"), py("read", "pathlib", "pathlib.Path(sys.argv[1]).read_bytes()")),
        Program("Python os", [python], py("write", "os", "f=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY,0o644); os.write(f,d)"), py("read", "os", "os.read(os.open(sys.argv[1],0),1<<28)")),
        Program("Python mmap", [python], py("write", "mmap", 'f=open(sys.argv[1],"wb+"); f.truncate(len(d)); m=mmap.mmap(f.fileno(),len(d)); f.close(); m[:]=d; m.close()'), py("read", "mmap", '(f:=open(sys.argv[1],"rb")) and mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)[:]')),
        Program("NumPy", [f"{python}:numpy"], py("write", "numpy", f"{array}.tofile(sys.argv[1])"), py("read", "numpy", 'numpy.fromfile(sys.argv[1],dtype="u1").tobytes()')),
        Program("h5py", [f"{python}:h5py"], py("write", "h5py,numpy", f'f=h5py.File(sys.argv[1],"w"); f["x"]={array}; f.close()'), py("read", "h5py", 'h5py.File(sys.argv[1],"r")["x"][:].tobytes()'), own_format=True),
        Program("netCDF4", [f"{python}:netCDF4"], py("write", "netCDF4,numpy", f'f=netCDF4.Dataset(sys.argv[1],"w"); a={array}; f.createDimension("n",len(a)); f.createVariable("x","u1",("n",))[:]=a; f.close()'), py("read", "netCDF4,numpy", 'numpy.asarray(netCDF4.Dataset(sys.argv[1])["x"][:]).tobytes()'), own_format=True),
        Program("Node", ["node"], "node -e 'require(\"fs\").writeFileSync(process.argv[1],require(\"fs\").readFileSync(0))' FILE", "node -e 'process.stdout.write(require(\"fs\").readFileSync(process.argv[1]))' FILE"),
        Program("Perl", ["perl"], "perl -e 'open(F,\">\",$ARGV[0]) or die $!; print F $_ while <STDIN>; close F' FILE", "perl -e 'open(F,\"<\",$ARGV[0]) or die $!; print while <F>' FILE"),
        Program("bash", ["bash"], "bash -c 'cat > FILE'", "bash -c 'cat < FILE'"),
        Program("awk", ["awk"], "awk '{print > \"FILE\"}'", "awk '{print}' FILE"),
        Program("dd", ["dd"], "dd of=FILE bs=64k status=none iflag=fullblock", "dd if=FILE bs=64k status=none"),
        Program("cp", ["cp"], "sh -c 'cat > /tmp/x && cp /tmp/x FILE'", "cp FILE /dev/stdout"),
        Program("mv", ["mv"], "sh -c 'cat > /data/frames/.moving && mv /data/frames/.moving FILE'", "sh -c 'cp FILE /tmp/y && mv /tmp/y /tmp/z && cat /tmp/z'"),
        Program("tar", ["tar"], "sh -c 'cat > /tmp/x && tar cf - -C /tmp --transform \"s,x,$(basename FILE),\" x | tar xf - -C /data/frames'", "sh -c 'tar cPf - FILE | tar xPOf -'"),
        Program("gzip", ["gzip"], "sh -c 'gzip | gzip -dc > FILE'", "sh -c 'gzip -c FILE | gzip -dc'"),
        Program("rsync", ["rsync"], "sh -c 'cat > /tmp/x && rsync -q /tmp/x FILE'", "sh -c 'rm -f /tmp/y; rsync -q FILE /tmp/y && cat /tmp/y'"),
        Program("git", ["git"], "sh -c 'cat > /tmp/x; cd /tmp && git init -q g && git -C g hash-object -w --stdin < x > h && git -C g cat-file blob $(cat h) > FILE'", "sh -c 'cd /tmp && rm -rf g && git init -q g && git -C g hash-object -w FILE > h && git -C g cat-file blob $(cat h)'"),
    ]


def installed(need):
    program, _, module = need.partition(":")
    if shutil.which(program) is None:
        return False
    if module:
        return subprocess.run([program, "-c", f"import {module}"], capture_output=True).returncode == 0
    return True


def content(name):
    """What a program writes: text lines that only it has."""
    return "".join(f"{name} {n} {hashlib.md5(f'{name}{n}'.encode()).hexdigest()}\n" for n in range(LINES)).encode()


def fits(reader, writer):
    """Can the reader make sense of the writer's file?"""
    return reader is writer or not (reader.own_format or writer.own_format)


def workflow(present, files, out, door):
    """The workflow file: each program as a producer, late and in two pieces, and as a consumer of all files that fit."""
    tasks, doors = {}, {}
    for number, program in enumerate(present):
        source = f"/b/in-{files[program.name]}"
        feed = f"sleep 0.{5 + number % 5}; (head -c 500000 {source}; sleep 0.1; tail -c +500001 {source})"
        tasks[f"write-{number}"] = f"{feed} | {program.write.replace('FILE', f'{PATH}/{files[program.name]}')}"
        doors[f"read-{number}"] = door or program.door
        # Another order for each, so that every consumer waits for another file first.
        order = [o for o in present[number:] + present[:number] if fits(program, o)]
        tasks[f"read-{number}"] = "; ".join(
            f"printf '%s ' {files[o.name]}; {program.read.replace('FILE', f'{PATH}/{files[o.name]}')} | sha256sum" for o in order
        )
    sides = {side: [name for name in tasks if name.startswith(side)] for side in ("write", "read")}
    mounts = [{"host": str(out), "task": "/b"}]
    return {
        "workflow": "gallery",
        "files": {"frames": {"path": PATH, "produce": sides["write"], "consume": sides["read"], "wait": 120}},
        "tasks": {
            name: {"command": ["/bin/bash", "-c", "set -o pipefail; " + command], "mounts": mounts, "door": doors.get(name, "auto")}
            for name, command in tasks.items()
        },
    }


def checksums_of(log):
    """The lines `FILE CHECKSUM -` of a consumer's log."""
    lines = log.read_text().splitlines() if log.exists() else []
    return dict(line.split()[:2] for line in lines if line.endswith("  -"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--crossdock", required=True)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--rustc", default="rustc")
    parser.add_argument("--go", default="go")
    parser.add_argument("--door", help="one door for all programs")
    given = parser.parse_args()
    out = given.build.resolve()
    out.mkdir(parents=True, exist_ok=True)
    present, skipped = [], []
    for program in programs(given.python, given.rustc, given.go):
        missing = [need for need in program.needs if not installed(need)]
        if missing:
            skipped.append((program.name, "not installed: " + ", ".join(missing)))
            continue
        if program.build:
            words = [w.replace("OUT", str(out)).replace("SRC", str(HERE / "programs")) for w in program.build]
            subprocess.run(words, check=True)
        present.append(program)
    files = {p.name: p.name.replace(" ", "-").replace("+", "p") + ".txt" for p in present}
    for program in present:
        (out / ("in-" + files[program.name])).write_bytes(content(program.name))
    path, logs = out / "workflow.yaml", out / "logs"
    path.write_text(json.dumps(workflow(present, files, out, given.door), indent=1))
    ran = subprocess.run(
        [given.crossdock, "run", str(path), "--engine", given.engine, "--logs", str(logs), "--deadline", "400", "--json"],
        capture_output=True, text=True, cwd=out,
    )
    if ran.returncode != 0:
        print(ran.stdout[-3000:], ran.stderr[-3000:], sep="\n", file=sys.stderr)
    passed = failed = 0
    checksums = {p.name: hashlib.sha256(content(p.name)).hexdigest() for p in present}
    # What each program read: reader → name of the file → checksum.
    read = {reader.name: checksums_of(logs / f"read-{number}.log") for number, reader in enumerate(present)}
    for program in present:
        others = [o for o in present if fits(program, o)]
        reads = sum(read[program.name].get(files[o.name]) == checksums[o.name] for o in others)
        readers = [o for o in present if fits(o, program)]
        right = sum(read[o.name].get(files[program.name]) == checksums[program.name] for o in readers)
        good = reads == len(others) and right == len(readers)
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok    ' if good else 'FAILED'} {program.name:16} read {reads} of {len(others)} files; "
              f"{right} of {len(readers)} programs read its file")
    for name, why in skipped:
        print(f"skip   {name}: {why}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 0 if failed == 0 and ran.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
