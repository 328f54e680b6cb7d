"""The common part of the peers' programs for P3: the steps, which are the same for each peer.

There are two processes. In each round the consumer first begins to wait. The producer fills its buffer, does other work, lets
20 ms pass, notes the time and hands the buffer over. The consumer notes the time when it has the buffer, reads all of it, and
does other work. The other work writes 64 MiB. So the caches are cold and the consumer has slept for long, whatever the size of
the buffer, and a difference between two sizes comes from the hand-over itself. Both processes read the kernel's monotonic
clock. A program prints one line for each size: `HANDOVER {"size", "ns": [...], "right"}`.
"""
import json
import multiprocessing
import sys
import time

import numpy

STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
WARM_UP = 2
OTHER_WORK = 64 << 20
PAUSE_NS = 20_000_000
_base = {}
_other = []


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def fill(array, seed):
    """Writes every element."""
    if array.size not in _base:
        _base.clear()
        _base[array.size] = numpy.arange(array.size, dtype=numpy.uint64) * numpy.uint64(STEP)
    numpy.add(_base[array.size], numpy.uint64(seed), out=array)


def right(array, seed):
    """Reads every element, and then does other work. Tells whether the elements are those that `fill` wrote."""
    n = array.size
    expected = (n * seed + STEP * (n * (n - 1) // 2)) & MASK
    with numpy.errstate(over="ignore"):
        so = int(array.sum(dtype=numpy.uint64)) == expected and int(array[-1]) == ((n - 1) * STEP + seed) & MASK
    other_work()
    return so


def other_work():
    """Simulates the other work of a task between two hand-overs: writes so much that no other data is left in the caches."""
    if not _other:
        _other.append(numpy.zeros(OTHER_WORK // 8, dtype=numpy.uint64))
    _other[0] += numpy.uint64(1)


def pause():
    """Does other work, and then spins for 20 ms, so that the consumer falls asleep but this process keeps its CPU."""
    other_work()
    until = now() + PAUSE_NS
    while now() < until:
        pass


def sizes(arguments):
    """Reads the sizes and rounds from the command line. `65536:40` stands for 40 rounds with 64 KiB."""
    return [tuple(int(word) for word in argument.split(":")) for argument in arguments if not argument.startswith("-")]


def tell(size, times, all_right):
    print("HANDOVER " + json.dumps({"size": size, "ns": times[WARM_UP:], "right": all_right}), flush=True)


def consume(make, control, data):
    """Runs the consumer's process."""
    consumer = make(data)
    while (order := control.recv()) is not None:
        size, rounds = order
        consumer.open(size, rounds + WARM_UP)
        control.send("open")
        for seed in range(rounds + WARM_UP):
            control.send("waiting")
            array = consumer.receive()
            at = now()
            control.send((at, right(array, seed)))
            del array
            consumer.done()
        consumer.close()
    control.send("ended")


def play(make_producer, make_consumer):
    """Runs the producer's process for all sizes of the command line. `make_producer` and `make_consumer` get one end of a pipe, by
    which the two sides can tell each other a name or an id. A producer has the methods open, buffer, send, done and close; a
    consumer has open, receive, done and close."""
    context = multiprocessing.get_context("spawn")
    control, its_control = context.Pipe()
    data, its_data = context.Pipe()
    child = context.Process(target=consume, args=(make_consumer, its_control, its_data), daemon=True)
    child.start()
    producer = make_producer(data)
    for size, rounds in sizes(sys.argv[1:]):
        control.send((size, rounds))
        producer.open(size, rounds + WARM_UP)
        _heard(control, child)
        times, all_right = [], True
        for seed in range(rounds + WARM_UP):
            _heard(control, child)
            fill(producer.buffer(), seed)
            pause()
            begun = now()
            producer.send()
            at, ok = _heard(control, child)
            times.append(at - begun)
            all_right &= ok
            producer.done()
        producer.close()
        tell(size, times, all_right)
    control.send(None)
    _heard(control, child)
    child.join(5)


def _heard(control, child):
    """Waits for the consumer's next message. If the consumer dies, this program ends with an error."""
    while not control.poll(1):
        if not child.is_alive():
            sys.exit("the consumer's process died")
    return control.recv()
