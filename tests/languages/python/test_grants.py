"""Python tasks under `crossdock run`: each gets what its grants say, and an array of a read-only region is read-only."""

import subprocess
import sys
import textwrap

from crossdock._command import path as program

WRITER = """
    import crossdock
    with crossdock.connect() as session:
        assert (session.task, session.workflow) == ("writer", "grants"), session
        region = session.region("frames", size="1 MiB")
        vector = region.vector("v", "f8", 4)
        vector.array[:] = 1, 2, 3, 4
        with session.port("frames", "producer") as port:
            port.send(vector)
            try:
                session.region("other")
            except PermissionError as error:
                print("denied:", error)
"""

READER = """
    import crossdock
    with crossdock.connect() as session, session.port("frames", "consumer") as port:
        with port.receive(timeout=20) as message:
            vector = message.load()
            array = vector.array
            assert array.tolist() == [1, 2, 3, 4] and not array.flags["WRITEABLE"]
            for change in (lambda: array.__setitem__(0, 9), lambda: array.setflags(write=True)):
                try:
                    change()
                except ValueError:
                    continue
                raise AssertionError("a read-only array was written to")
            del array
            region = session.region("frames", "open_only")
            assert not region.writable
            for change in (lambda: vector.resize(100), lambda: region.simple("n", "i4"), lambda: region.remove("v"),
                           lambda: region.string("s", "x"), lambda: session.remove_region("frames"),
                           lambda: session.port("frames", "producer")):
                try:
                    change()
                except crossdock.DeniedError:
                    continue
                raise AssertionError("a reader changed something")
    print("read only")
"""


def test_a_reader_reads_and_nothing_else(tmp_path):
    (tmp_path / "writer.py").write_text(textwrap.dedent(WRITER))
    (tmp_path / "reader.py").write_text(textwrap.dedent(READER))
    (tmp_path / "workflow.yaml").write_text(textwrap.dedent(f"""
        workflow: grants
        memory: 16 MiB
        tasks:
          writer:
            command: [{sys.executable}, {tmp_path}/writer.py]
            regions: {{frames: create}}
            ports: {{frames: produce}}
          reader:
            command: [{sys.executable}, {tmp_path}/reader.py]
            regions: {{frames: read}}
            ports: {{frames: consume}}
    """))
    command = [program(), "run", "--engine", "process", "--daemon", "own", "--show", "lines", "workflow.yaml"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=40)
    said = run.stdout + run.stderr
    assert run.returncode == 0 and "denied:" in said and "read only" in said, said
