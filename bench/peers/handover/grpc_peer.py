"""Measures gRPC: a unary call sends the array's bytes over a Unix socket, with no limit on the length of a message. The bytes are
not wrapped in protobuf, which would copy them once more. The server is a process of its own, and answers when it has read all
of the array."""
import multiprocessing
import os
import struct
import sys
import tempfile
from concurrent import futures

import common
import grpc
import numpy

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
METHOD = "/crossdock.Bench/Take"


def take(request, _context):
    at = common.now()
    array = numpy.frombuffer(request, dtype=numpy.uint64)
    # The first element is the seed from which `fill` computed all elements.
    return struct.pack("<q?", at, common.right(array, int(array[0])))


def serve(address, ready):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=OPTIONS)
    handler = grpc.method_handlers_generic_handler("crossdock.Bench", {"Take": grpc.unary_unary_rpc_method_handler(take)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    server.start()
    ready.set()
    server.wait_for_termination()


def main(address):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=serve, args=(address, ready), daemon=True)
    child.start()
    if not ready.wait(20):
        sys.exit("the server did not start")
    call = grpc.insecure_channel(address, options=OPTIONS).unary_unary(METHOD)
    for size, rounds in common.sizes(sys.argv[1:]):
        array = numpy.empty(size // 8, dtype=numpy.uint64)
        times, all_right = [], True
        for seed in range(rounds + common.WARM_UP):
            common.fill(array, seed)
            common.pause()
            begun = common.now()
            at, ok = struct.unpack("<q?", call(array.tobytes(), timeout=30))
            times.append(at - begun)
            all_right &= ok
        common.tell(size, times, all_right)
    child.terminate()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="grpc.") as folder:
        main(f"unix:{os.path.join(folder, 'socket')}")
