"""Measures Vineyard as its documentation uses it: one process calls `client.put(array)` and sends the id through a
Pipe, and the other process calls `client.get(id)`. With --in-place, the producer writes into a blob of the store and
seals the blob, so that `put` copies nothing."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import common
import numpy
import vineyard

IN_PLACE = "--in-place" in sys.argv
SOCKET = "CROSSDOCK_BENCH_VINEYARD"


class Producer:
    def __init__(self, pipe):
        self.pipe, self.client = pipe, vineyard.connect(os.environ[SOCKET])

    def open(self, size, _rounds):
        self.size, self.array = size, None if IN_PLACE else numpy.empty(size // 8, dtype=numpy.uint64)

    def buffer(self):
        if IN_PLACE:
            self.blob = self.client.create_blob(self.size)
            self.array = numpy.frombuffer(memoryview(self.blob), dtype=numpy.uint64)
        return self.array

    def send(self):
        if IN_PLACE:
            self.object = self.blob.seal(self.client).id
        else:
            self.object = self.client.put(self.array)
            self.object = getattr(self.object, "id", self.object)
        self.pipe.send(int(self.object))

    def done(self):
        if IN_PLACE:
            self.array = self.blob = None
        self.client.delete([self.object], deep=True)

    def close(self):
        self.array = None


class Consumer:
    def __init__(self, pipe):
        self.pipe, self.client = pipe, vineyard.connect(os.environ[SOCKET])

    def open(self, size, rounds):
        pass

    def receive(self):
        object_id = vineyard.ObjectID(self.pipe.recv())
        if IN_PLACE:
            self.blob = self.client.get_blob(object_id)
            return numpy.frombuffer(memoryview(self.blob), dtype=numpy.uint64)
        self.array = self.client.get(object_id)
        return self.array

    def done(self):
        self.blob = self.array = None

    def close(self):
        pass


def server(folder, size):
    """Starts the server that the wheel contains, for one node, with metadata and a socket of its own."""
    socket = f"{folder}/vineyard.sock"
    command = [sys.executable, "-m", "vineyard", "--socket", socket, "--size", str(size), "--meta", "local", "--norpc"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(f"{folder}/log", "w"))
    until = time.monotonic() + 20
    while not os.path.exists(socket):
        if process.poll() is not None or time.monotonic() > until:
            sys.exit("vineyardd did not start: " + open(f"{folder}/log").read()[-400:])
        time.sleep(0.05)
    return process, socket


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="vineyard.")
    process, os.environ[SOCKET] = server(folder, 4 * max(size for size, _ in common.sizes(sys.argv[1:])) + (256 << 20))
    try:
        common.play(Producer, Consumer)
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
