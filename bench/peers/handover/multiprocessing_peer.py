"""Measures multiprocessing.shared_memory as its documentation uses it: an array lies in a named block of shared memory,
and a Pipe tells the other process that the data is there. Blocks are made and attached once and used again, as with
crossdock."""
from multiprocessing import shared_memory

import common
import numpy


class Producer:
    def __init__(self, pipe):
        self.pipe = pipe

    def open(self, size, _rounds):
        self.block = shared_memory.SharedMemory(create=True, size=size)
        self.array = numpy.ndarray(size // 8, dtype=numpy.uint64, buffer=self.block.buf)
        self.pipe.send(self.block.name)

    def buffer(self):
        return self.array

    def send(self):
        self.pipe.send_bytes(b"!")

    def done(self):
        pass

    def close(self):
        del self.array
        self.block.close()
        self.block.unlink()


class Consumer:
    def __init__(self, pipe):
        self.pipe = pipe

    def open(self, size, _rounds):
        self.block = shared_memory.SharedMemory(name=self.pipe.recv())
        self.array = numpy.ndarray(size // 8, dtype=numpy.uint64, buffer=self.block.buf)

    def receive(self):
        self.pipe.recv_bytes()
        return self.array

    def done(self):
        pass

    def close(self):
        del self.array
        self.block.close()


if __name__ == "__main__":
    common.play(Producer, Consumer)
