"""Sends frames over TCP, with a connection to each task that gets frames, and a thread for each task that sends frames.

A frame is a line with its key and size, and then its bytes. The bytes go directly from and into the memory that the tasks work
on. The buffer of a frame that was sent is used again for a frame that arrives.
"""

import socket
import threading
import time

from .mailbox import Frame, Mailbox, address_of

START_S = 60


class Transport:
    def __init__(self, task, options):
        self.options, self.mailbox, self.targets = options, Mailbox(), {}
        self.unused, self.ended = [], False
        self.listener = socket.create_server(address_of(task, options), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def create(self, key, size):
        return Frame(key, bytearray(size))

    def access(self, key, timeout):
        return self.mailbox.take(key, timeout)

    def transfer(self, frame, to):
        target = self.targets.get(to) or self._reach(to)
        memory, frame.memory = frame.memory, None
        target.sendall(f"{frame.key} {len(memory)}".encode().ljust(64))
        target.sendall(memory)
        self.unused.append(memory)

    def destroy(self, frame):
        frame.memory = None

    def close(self):
        self.ended = True
        for target in self.targets.values():
            target.close()
        self.listener.close()

    def _reach(self, to):
        """Connects to a task. Tasks start in any order, so this method tries again until the task listens."""
        until = time.monotonic() + START_S
        while True:
            try:
                target = socket.create_connection(address_of(to, self.options), timeout=START_S)
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.targets[to] = target
        return target

    def _accept(self):
        while not self.ended:
            try:
                source, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._receive, args=(source,), daemon=True).start()

    def _receive(self, source):
        line = bytearray(64)
        try:
            while fill(source, line):
                key, size = line.split()
                memory = self._buffer(int(size))
                if not fill(source, memory):
                    raise ConnectionError("the sender left in the middle of a frame")
                self.mailbox.put(key.decode(), memory)
        except (OSError, ConnectionError) as error:
            self.mailbox.fail(str(error))

    def _buffer(self, size):
        while self.unused:
            memory = self.unused.pop()
            if len(memory) == size:
                return memory
        return bytearray(size)


def fill(source, memory):
    """Receives exactly as many bytes as `memory` has. Returns False if the sender left before the first byte."""
    view, got = memoryview(memory), 0
    while got < len(view):
        count = source.recv_into(view[got:])
        if count == 0:
            if got == 0:
                return False
            raise ConnectionError("the sender left in the middle of a frame")
        got += count
    return True
