"""Opening and closing a thousand times leaves no memory, mapping or descriptor behind."""

import gc
import os

import crossdock


def measure():
    gc.collect()
    with open("/proc/self/maps") as maps:
        mappings = sum(1 for _ in maps)
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return mappings, len(os.listdir("/proc/self/fd")), pages


def grows(step, warm, rounds):
    for n in range(warm):
        step(n)
    before = measure()
    for n in range(rounds):
        step(n)
    after = measure()
    return tuple(b - a for a, b in zip(before, after))


def test_regions_views_and_ports(session, name):
    def step(_):
        region = session.region(name, size="1 MiB")
        vector = region.vector("v", "f8", 100)
        part = vector.array[3:]
        with session.port(name, "producer") as producer, session.port(name, "consumer") as consumer:
            producer.send(vector)
            with consumer.receive() as message:
                assert message.load().array.shape == (100,)
        del part
        region.close()

    mappings, descriptors, pages = grows(step, 20, 1000)
    session.remove_region(name)
    session.remove_port(name)
    assert mappings <= 2 and descriptors == 0 and pages * os.sysconf("SC_PAGESIZE") < 2 << 20


def test_sessions(daemon):
    def step(_):
        with crossdock.connect(task="test", private_daemon=False) as session:
            assert session.member

    mappings, descriptors, pages = grows(step, 20, 200)
    assert mappings <= 2 and descriptors == 0 and pages * os.sysconf("SC_PAGESIZE") < 2 << 20


def test_failed_calls(session, region):
    def step(_):
        for call in (lambda: region.vector("nothing"), lambda: region.load(crossdock.Handle(1, 2)),
                     lambda: session.region("nothing", "open_only"), lambda: region.vector("v", "O")):
            try:
                call()
            except crossdock.Error:
                pass

    mappings, descriptors, pages = grows(step, 20, 1000)
    assert mappings <= 2 and descriptors == 0 and pages * os.sysconf("SC_PAGESIZE") < 2 << 20
