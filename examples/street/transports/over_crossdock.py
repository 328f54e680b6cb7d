"""Hands frames over as crossdock items: only the ownership moves, not the bytes."""

import crossdock


class Transport:
    def __init__(self, _task, _options):
        self.session = crossdock.connect()

    def create(self, key, size):
        return self.session.create_item(key, size=size)

    def access(self, key, timeout):
        return self.session.access_item(key, timeout=timeout)

    def transfer(self, frame, to):
        frame.transfer(to)

    def destroy(self, frame):
        frame.destroy()

    def close(self):
        self.session.close()
