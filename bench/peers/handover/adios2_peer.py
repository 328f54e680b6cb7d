"""Measures ADIOS2's SST engine as its documentation uses it: one writer, one reader, and one step for each hand-over. The queue
holds one step, so that the writer does not run ahead. Both are on one node, where SST chooses its data transport by itself."""
import os
import tempfile

import adios2.bindings as adios2
import common
import numpy

NAME = "CROSSDOCK_BENCH_SST"


class End:
    def __init__(self, pipe):
        self.pipe = pipe
        self.adios = adios2.ADIOS()
        self.count = 0

    def open_as(self, mode, size):
        self.count += 1
        self.io = self.adios.DeclareIO(f"io{self.count}")
        self.io.SetEngine("SST")
        self.io.SetParameters({"RendezvousReaderCount": "1", "QueueLimit": "1", "QueueFullPolicy": "Block", "OpenTimeoutSecs": "20"})
        self.elements = size // 8
        self.engine = self.io.Open(f"{os.environ[NAME]}-{self.count}", mode)

    def done(self):
        pass


class Producer(End):
    def open(self, size, _rounds):
        self.array = numpy.empty(size // 8, dtype=numpy.uint64)
        self.open_as(adios2.Mode.Write, size)
        self.variable = self.io.DefineVariable("u", self.array, [self.elements], [0], [self.elements], True)

    def buffer(self):
        return self.array

    def send(self):
        self.engine.BeginStep()
        self.engine.Put(self.variable, self.array)
        self.engine.EndStep()

    def close(self):
        self.engine.Close()


class Consumer(End):
    def open(self, size, _rounds):
        self.array = numpy.empty(size // 8, dtype=numpy.uint64)
        self.open_as(adios2.Mode.Read, size)

    def receive(self):
        if self.engine.BeginStep() != adios2.StepStatus.OK:
            raise SystemExit("SST gave no step")
        self.engine.Get(self.io.InquireVariable("u"), self.array)
        self.engine.EndStep()
        return self.array

    def close(self):
        self.engine.BeginStep()
        self.engine.Close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sst.") as folder:
        os.environ[NAME] = f"{folder}/step"
        common.play(Producer, Consumer)
