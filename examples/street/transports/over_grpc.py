"""Sends frames over gRPC: each task serves one call, `Put`, which takes a frame as bytes, with its key as metadata.

The message is the bytes themselves, without protobuf, which avoids a copy that a generated stub would make. The other copies
are gRPC's own: the sender copies the frame into a bytes object, and the receiver gets a bytes object that cannot be written.
"""

from concurrent import futures

import grpc

from .mailbox import Frame, Mailbox, address_of

START_S = 60
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Transport:
    def __init__(self, task, options):
        self.options, self.mailbox, self.targets = options, Mailbox(), {}
        self.server = grpc.server(futures.ThreadPoolExecutor(4), options=OPTIONS)
        put = grpc.unary_unary_rpc_method_handler(self._put)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("street.Frames", {"Put": put})])
        address = text_of(address_of(task, options))
        if self.server.add_insecure_port(address) == 0:
            raise OSError(f"gRPC cannot listen at {address}")
        self.server.start()

    def create(self, key, size):
        return Frame(key, bytearray(size))

    def access(self, key, timeout):
        return self.mailbox.take(key, timeout)

    def transfer(self, frame, to):
        put = self.targets.get(to) or self._reach(to)
        memory, frame.memory = frame.memory, None
        put(bytes(memory), metadata=(("key", frame.key),), timeout=START_S, wait_for_ready=True)

    def destroy(self, frame):
        frame.memory = None

    def close(self):
        for channel in [put.channel for put in self.targets.values()]:
            channel.close()
        self.server.stop(grace=5).wait()

    def _reach(self, to):
        channel = grpc.insecure_channel(text_of(address_of(to, self.options)), options=OPTIONS)
        self.targets[to] = Put(channel)
        return self.targets[to]

    def _put(self, message, context):
        key = dict(context.invocation_metadata())["key"]
        self.mailbox.put(key, bytearray(message))
        return b""


def text_of(address):
    return "{}:{}".format(*address)


class Put:
    """The call `Put`, and the channel over which it goes."""

    def __init__(self, channel):
        self.channel, self.call = channel, channel.unary_unary("/street.Frames/Put")

    def __call__(self, message, **options):
        return self.call(message, **options)
