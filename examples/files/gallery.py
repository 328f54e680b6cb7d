#!/usr/bin/env python3
"""Runs unmodified programs as producers and consumers of one managed directory, and compares every checksum.

    examples/files/gallery.py --build FOLDER --crossdock PROGRAM [--engine NAME] [--python PROGRAM] [--packages PROGRAM]
                              [--rustc PROGRAM] [--go PROGRAM] [--door preload|notification] [--quick]

Each program that is installed writes a file of its own, late and in pieces; each program also opens all files that it
can read, before these files exist, and reads them. Prints one line for each program, and ends with `N passed, N failed,
N skipped`.
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
    """A program of the gallery: how it is built, and how it copies standard input to a file and a file to standard output.

    `writes` is the format of its file: text, or one that only some programs can decode (hdf5, parquet, zarr, png,
    dump). `reads` is how the program reads a file: `bytes` (it copies files of all formats), `text` (it copies text
    files) or the name of a format (it decodes files of that format).
    """

    def __init__(self, name, needs, write, read, build=None, writes="text", reads="bytes", door="auto", large=False):
        self.name, self.needs, self.write, self.read, self.build = name, needs, write, read, build
        self.writes, self.reads = writes, reads
        # The door of the task that reads with this program, or `auto`. A static program needs an explicit door, because
        # a shell starts the program, and the launcher examines only the shell.
        self.door = door
        # True if the packages of the program are large. A quick run leaves such programs out.
        self.large = large

    def fits(self, writer):
        """Tells whether this program can read the other program's file. A zarr array is a folder, which a program that
        copies bytes cannot read."""
        if self.reads == "bytes":
            return writer.writes != "zarr"
        return writer.writes == self.reads


def programs(python, packages, rustc, go):
    code = {
        "write": "import sys,{m}; d=sys.stdin.buffer.read(); {s}",
        "read": "import sys,{m}; d={s}; sys.stdout.buffer.write(d)",
    }

    def py(kind, modules, statement, python=python):
        return f"{python} -c '" + code[kind].format(m=modules, s=statement) + "' FILE"

    def table(source, to):
        """Python code that writes the lines of `source` as a table with one column."""
        return f'pandas.read_csv({source},header=None,sep="\\t",dtype=str).to_csv({to}header=False,index=False)'

    array = 'numpy.frombuffer(d,dtype="u1")'
    return [
        Program("C stdio", ["cc"], "/b/stdio write FILE", "/b/stdio read FILE", ["cc", "-O1", "-o", "OUT/stdio", "SRC/stdio.c"]),
        Program("static C", ["cc"], "/b/static write FILE", "/b/static read FILE", ["cc", "-static", "-O1", "-o", "OUT/static", "SRC/stdio.c"], door="notification"),
        Program("Go", [go], "/b/go write FILE", "/b/go read FILE", ["env", "CGO_ENABLED=0", "GO111MODULE=off", go, "build", "-o", "OUT/go", "SRC/files.go"], door="notification"),
        Program("C++ streams", ["c++"], "/b/stream write FILE", "/b/stream read FILE", ["c++", "-O1", "-o", "OUT/stream", "SRC/stream.cpp"]),
        Program("Fortran", ["gfortran"], "/b/lines write FILE", "/b/lines read FILE", ["gfortran", "-O1", "-o", "OUT/lines", "SRC/lines.f90"], reads="text"),
        Program("Rust", [rustc], "/b/rust write FILE", "/b/rust read FILE", [rustc, "-O", "-o", "OUT/rust", "SRC/files.rs"]),
        Program("Java", ["javac", "java"], "java -Xshare:auto -cp /b Files write FILE", "java -cp /b Files read FILE", ["javac", "-d", "OUT", "SRC/Files.java"]),
        Program("Python open", [python], py("write", "os", 'open(sys.argv[1],"wb").write(d)'), py("read", "os", 'open(sys.argv[1],"rb").read()')),
        Program("Python pathlib", [python], py("write", "pathlib", "pathlib.Path(sys.argv[1]).write_bytes(d)"), py("read", "pathlib", "pathlib.Path(sys.argv[1]).read_bytes()")),
        Program("Python os", [python], py("write", "os", "f=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY,0o644); os.write(f,d)"), py("read", "os", "os.read(os.open(sys.argv[1],0),1<<28)")),
        Program("Python shutil", [python], py("write", "shutil", 'open("/tmp/x","wb").write(d); shutil.copy("/tmp/x",sys.argv[1])'), py("read", "shutil", 'open(shutil.copyfile(sys.argv[1],"/tmp/y"),"rb").read()')),
        Program("Python mmap", [python], py("write", "mmap", 'f=open(sys.argv[1],"wb+"); f.truncate(len(d)); m=mmap.mmap(f.fileno(),len(d)); f.close(); m[:]=d; m.close()'), py("read", "mmap", '(f:=open(sys.argv[1],"rb")) and mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)[:]')),
        Program("NumPy", [f"{python}:numpy"], py("write", "numpy", f"{array}.tofile(sys.argv[1])"), py("read", "numpy", 'numpy.fromfile(sys.argv[1],dtype="u1").tobytes()')),
        Program("h5py", [f"{python}:h5py"], py("write", "h5py,numpy", f'f=h5py.File(sys.argv[1],"w"); f["x"]={array}; f.close()'), py("read", "h5py", 'h5py.File(sys.argv[1],"r")["x"][:].tobytes()'), writes="hdf5", reads="hdf5"),
        Program("netCDF4", [f"{python}:netCDF4"], py("write", "netCDF4,numpy", f'f=netCDF4.Dataset(sys.argv[1],"w"); a={array}; f.createDimension("n",len(a)); f.createVariable("x","u1",("n",))[:]=a; f.close()'), py("read", "netCDF4,numpy", 'numpy.asarray(netCDF4.Dataset(sys.argv[1])["x"][:]).tobytes()'), writes="hdf5", reads="hdf5"),
        Program("Node", ["node"], "node -e 'require(\"fs\").writeFileSync(process.argv[1],require(\"fs\").readFileSync(0))' FILE", "node -e 'process.stdout.write(require(\"fs\").readFileSync(process.argv[1]))' FILE"),
        Program("Perl", ["perl"], "perl -e 'open(F,\">\",$ARGV[0]) or die $!; print F $_ while <STDIN>; close F' FILE", "perl -e 'open(F,\"<\",$ARGV[0]) or die $!; print while <F>' FILE"),
        Program("bash", ["bash"], "bash -c 'cat > FILE'", "bash -c 'cat < FILE'"),
        Program("awk", ["awk"], "awk '{print > \"FILE\"}'", "awk '{print}' FILE", reads="text"),
        Program("dd", ["dd"], "dd of=FILE bs=64k status=none iflag=fullblock", "dd if=FILE bs=64k status=none"),
        Program("cp", ["cp"], "sh -c 'cat > /tmp/x && cp /tmp/x FILE'", "cp FILE /dev/stdout"),
        Program("mv", ["mv"], "sh -c 'cat > /data/frames/.moving && mv /data/frames/.moving FILE'", "sh -c 'cp FILE /tmp/y && mv /tmp/y /tmp/z && cat /tmp/z'"),
        Program("tar", ["tar"], "sh -c 'cat > /tmp/x && tar cf - -C /tmp --transform \"s,x,$(basename FILE),\" x | tar xf - -C /data/frames'", "sh -c 'tar cPf - FILE | tar xPOf -'"),
        Program("gzip", ["gzip"], "sh -c 'gzip | gzip -dc > FILE'", "sh -c 'gzip -c FILE | gzip -dc'"),
        Program("rsync", ["rsync"], "sh -c 'cat > /tmp/x && rsync -q /tmp/x FILE'", "sh -c 'rm -f /tmp/y; rsync -q FILE /tmp/y && cat /tmp/y'"),
        Program("git", ["git"], "sh -c 'cat > /tmp/x; cd /tmp && git init -q g && git -C g hash-object -w --stdin < x > h && git -C g cat-file blob $(cat h) > FILE'", "sh -c 'cd /tmp && rm -rf g && git init -q g && git -C g hash-object -w FILE > h && git -C g cat-file blob $(cat h)'"),
        Program("pandas", [f"{packages}:pandas"], py("write", "io,pandas", table("io.BytesIO(d)", "sys.argv[1],"), packages), py("read", "pandas", table("sys.argv[1]", "") + ".encode()", packages), reads="text", large=True),
        Program("pandas Parquet", [f"{packages}:pandas"], py("write", "numpy,pandas", f'pandas.DataFrame({{"x":{array}}}).to_parquet(sys.argv[1])', packages), py("read", "pandas", 'pandas.read_parquet(sys.argv[1])["x"].to_numpy().tobytes()', packages), writes="parquet", reads="parquet", large=True),
        Program("pyarrow", [f"{packages}:pyarrow"], py("write", "numpy,pyarrow.parquet", f'pyarrow.parquet.write_table(pyarrow.table({{"x":{array}}}),sys.argv[1])', packages), py("read", "pyarrow.parquet", 'pyarrow.parquet.read_table(sys.argv[1],memory_map=True)["x"].to_numpy().tobytes()', packages), writes="parquet", reads="parquet", large=True),
        Program("zarr", [f"{packages}:zarr"], py("write", "numpy,zarr", f'zarr.create_array(sys.argv[1],data={array},chunks=500000)', packages), py("read", "zarr", 'zarr.open_array(sys.argv[1],mode="r")[:].tobytes()', packages), writes="zarr", reads="zarr", large=True),
        # ImageMagick creates an empty file, closes it, and opens it again. So this command lets ImageMagick write a
        # hidden file, and renames the hidden file when it is finished.
        Program("ImageMagick", ["/usr/bin/convert"], "sh -c '/usr/bin/convert -size 192x10000 -depth 8 gray:- png:/data/frames/.picture && mv /data/frames/.picture FILE'", "/usr/bin/convert png:FILE -depth 8 gray:-", writes="png", reads="png", large=True),
        Program("LAMMPS", ["lmp"], "sh -c 'cat > /tmp/x && lmp -in /b/write.lmp -var file FILE -log none -screen none'", "sh -c 'lmp -in /b/read.lmp -var file FILE -log none -screen none && cat /tmp/read.dump'", ["cp", "SRC/write.lmp", "SRC/read.lmp", "OUT"], writes="dump", reads="dump", large=True),
    ]


def installed(need):
    program, _, module = need.partition(":")
    if shutil.which(program) is None:
        return False
    if module:
        return subprocess.run([program, "-c", f"import {module}"], capture_output=True).returncode == 0
    return True


def content(name):
    """The text that a program writes. The lines differ from program to program. All lines have the same length, so that
    they can fill a picture."""
    lines = (f"{name} {n} {hashlib.md5(f'{name}{n}'.encode()).hexdigest()}" for n in range(LINES))
    return "".join(line.ljust(63, ".") + "\n" for line in lines).encode()


def workflow(present, files, mounts, door):
    """Makes the workflow file. Each program is a producer, which writes late and in two pieces, and a consumer of all
    files that it can read."""
    tasks, doors = {}, {}
    for number, program in enumerate(present):
        own = files[program.name]
        source, path = f"/b/in-{own}", f"{PATH}/{own}"
        feed = f"sleep 0.{5 + number % 5}; (head -c 500000 {source}; sleep 0.1; tail -c +500001 {source})"
        # The writer prints the checksum of its file, with which the readers' checksums are compared.
        tell = f'test -d {path} || echo "{own} $(sha256sum < {path})"'
        tasks[f"write-{number}"] = f"{feed} | {program.write.replace('FILE', path)} && ({tell})"
        doors[f"read-{number}"] = door or program.door
        # The consumers read the files in different orders, so that each of them waits for a different file first.
        order = [o for o in present[number:] + present[:number] if program.fits(o)]
        tasks[f"read-{number}"] = "; ".join(
            f'echo "{files[o.name]} $({program.read.replace("FILE", f"{PATH}/{files[o.name]}")} | sha256sum)"' for o in order
        )
    sides = {side: [name for name in tasks if name.startswith(side)] for side in ("write", "read")}
    return {
        "workflow": "gallery",
        "files": {"frames": {"path": PATH, "produce": sides["write"], "consume": sides["read"], "wait": 120}},
        "tasks": {
            name: {"command": ["/bin/bash", "-c", "set -o pipefail; " + command], "mounts": mounts, "door": doors.get(name, "auto")}
            for name, command in tasks.items()
        },
    }


def checksums_of(log):
    """Reads the lines `FILE CHECKSUM -` of a log."""
    lines = log.read_text().splitlines() if log.exists() else []
    return dict(line.split()[:2] for line in lines if line.endswith("  -"))


def build(present, out):
    for program in present:
        if program.build:
            words = [w.replace("OUT", str(out)).replace("SRC", str(HERE / "programs")) for w in program.build]
            subprocess.run(words, check=True)


def expected(reader, writer, written, told):
    """Gives the expected checksum of the reader's output for the writer's file."""
    copies = reader.reads in ("bytes", "text") or writer.writes == "dump"
    return told[writer.name] if copies else written[writer.name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--crossdock", required=True)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--packages", default="/usr/bin/python3", help="the Python that has pandas, pyarrow and zarr")
    parser.add_argument("--rustc", default="rustc")
    parser.add_argument("--go", default="go")
    parser.add_argument("--door", help="one door for all programs")
    parser.add_argument("--quick", action="store_true", help="without programs whose packages are large")
    given = parser.parse_args()
    out = given.build.resolve()
    out.mkdir(parents=True, exist_ok=True)
    present, skipped = [], []
    for program in programs(given.python, given.packages, given.rustc, given.go):
        if given.quick and program.large:
            continue
        missing = [need for need in program.needs if not installed(need)]
        if missing:
            skipped.append((program.name, "not installed: " + ", ".join(missing)))
        else:
            present.append(program)
    build(present, out)
    files = {p.name: p.name.replace(" ", "-").replace("+", "p") + ".txt" for p in present}
    for program in present:
        (out / ("in-" + files[program.name])).write_bytes(content(program.name))
    # The tasks would not see a virtual environment at its usual place, so it is mounted for them.
    environment = pathlib.Path(given.packages).parent.parent
    mounts = [{"host": str(out), "task": "/b"}]
    if environment != pathlib.Path("/usr") and environment.is_dir():
        mounts.append({"host": str(environment), "task": str(environment)})
    path, logs = out / "workflow.yaml", out / "logs"
    path.write_text(json.dumps(workflow(present, files, mounts, given.door), indent=1))
    ran = subprocess.run(
        [given.crossdock, "run", str(path), "--engine", given.engine, "--logs", str(logs), "--deadline", "400", "--json"],
        capture_output=True, text=True, cwd=out,
    )
    if ran.returncode != 0:
        print(ran.stdout[-3000:], ran.stderr[-3000:], sep="\n", file=sys.stderr)
    written = {p.name: hashlib.sha256(content(p.name)).hexdigest() for p in present}
    # `told` has the checksum of the file that each program wrote. `read` has, for each reader and each file that it
    # read, the checksum of the reader's output.
    told, read = {}, {}
    for number, program in enumerate(present):
        told[program.name] = checksums_of(logs / f"write-{number}.log").get(files[program.name])
        read[program.name] = checksums_of(logs / f"read-{number}.log")
    passed = failed = 0
    for program in present:
        def is_right(reader, writer):
            wanted = expected(reader, writer, written, told)
            return wanted is not None and read[reader.name].get(files[writer.name]) == wanted

        others = [o for o in present if program.fits(o)]
        readers = [o for o in present if o.fits(program)]
        reads = sum(is_right(program, o) for o in others)
        right = sum(is_right(o, program) for o in readers)
        wrote = program.writes != "text" or told[program.name] == written[program.name]
        good = wrote and reads == len(others) and right == len(readers)
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok    ' if good else 'FAILED'} {program.name:16} read {reads} of {len(others)} files; "
              f"{right} of {len(readers)} programs read its file")
    for name, why in skipped:
        print(f"skip   {name}: {why}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return 0 if failed == 0 and ran.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
