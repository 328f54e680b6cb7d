"""Tests rows P1 to P17 of the table in ../conformance.md: ports."""

import os
import select
import signal
import threading
import time

import numpy as np

from bench import DEADLINE_S, check, heed, refused, say
from crossdock import BusyError, ClosedError, InvalidError, NotYetError, PeerDiedError, TimedOutError
from rows import role, row


def drain(port, count):
    """Receives and releases `count` messages. Returns their tags."""
    tags = []
    for _ in range(count):
        with port.receive(timeout=DEADLINE_S) as message:
            tags.append(message.tag)
    return tags


def kill_myself():
    os.kill(os.getpid(), signal.SIGKILL)


@row("one to one, order")
def P1(t):
    port = t.port("producer", capacity=4)
    b = t.peer("B")
    for tag in range(1000):
        port.send(tag=tag, timeout=DEADLINE_S)
    port.close()
    b.ok()


@role
def P1_B(t):
    port = t.port("consumer", capacity=4)
    check("tags", drain(port, 1000), list(range(1000)))
    with refused(ClosedError):
        port.receive(timeout=DEADLINE_S)


@row("tag and inline bytes")
def P2(t):
    port = t.port("producer")
    port.send(tag=2**63 + 1, inline=bytes(range(24)), timeout=DEADLINE_S)
    port.send(timeout=DEADLINE_S)
    t.peer("B").ok()
    with refused(InvalidError):
        port.send(inline=bytes(25))


@role
def P2_B(t):
    port = t.port("consumer")
    first, second = port.receive(timeout=DEADLINE_S), port.receive(timeout=DEADLINE_S)
    check("first", (first.tag, first.inline, first.handle), (2**63 + 1, bytes(range(24)), None))
    check("second", (second.tag, second.inline), (0, b""))


@row("handle")
def P3(t):
    v = t.region().vector("v", "f8", 1000)
    v.array[:] = np.arange(1, 1001)
    port = t.port("producer", capacity=1)
    b = t.peer("B")
    port.send(v, timeout=DEADLINE_S)
    check("reclaimed", port.reclaim(timeout=DEADLINE_S), v.handle)
    b.tell("end")
    b.ok()
    s = port.statistics
    check("statistics", (s["messages"], s["bytes_handed_over"], s["bytes_copied"]), (1, 8000, 0))
    check("v[0]", v[0], -1)


@role
def P3_B(t):
    port = t.port("consumer", capacity=1)
    with port.receive(timeout=DEADLINE_S) as message:
        v = message.load()
        check("sum", float(v.array.sum()), 500500.0)
        v[0] = -1
    heed("end")


@row("credits")
def P4(t):
    region = t.region()
    first, second = region.vector("first", "f8", 8), region.vector("second", "f8", 8)
    port = t.port("producer", capacity=2)
    port.send(first, timeout=0)
    port.send(second, timeout=0)
    with refused(NotYetError):
        port.send(first, timeout=0)
    b = t.peer("B")
    b.expect("received")
    with refused(NotYetError):
        port.send(first, timeout=0)
    b.tell("release")
    b.expect("released")
    check("reclaimed", port.reclaim(timeout=DEADLINE_S), first.handle)
    port.send(first, timeout=0)
    b.tell("end")
    b.ok()


@role
def P4_B(t):
    message = t.port("consumer", capacity=2).receive(timeout=DEADLINE_S)
    say("received")
    heed("release")
    message.release()
    say("released")
    heed("end")


@row("deadline names the peer")
def P5(t):
    consumer = t.port("consumer")
    b = t.peer("B")
    b.expect("there")
    with refused(TimedOutError, t.name(), "peer", within=(0.2, 2)):
        consumer.receive(timeout=0.2)
    full = t.port("producer", "full", capacity=1)
    full.send(timeout=DEADLINE_S)
    with refused(TimedOutError, t.name("full"), "peer", within=(0.2, 2)):
        full.send(timeout=0.2)
    b.tell("end")
    b.ok()


@role
def P5_B(t):
    ports = t.port("producer"), t.port("consumer", "full", capacity=1)
    say("there")
    heed("end")
    del ports


@row("fan-out")
def P6(t):
    port = t.port("producer", pattern="fan-out")
    peers = [t.peer("B") for _ in range(3)]
    for peer in peers:
        peer.expect("there")
    for tag in range(100):
        port.send(tag=tag, timeout=DEADLINE_S)
    for peer in peers:
        peer.ok()


@role
def P6_B(t):
    port = t.port("consumer", pattern="fan-out")
    say("there")
    check("tags", drain(port, 100), list(range(100)))


@row("fan-in")
def P7(t):
    port = t.port("consumer", pattern="fan-in")
    peers = [t.peer("B", n) for n in range(3)]
    for peer in peers:
        peer.expect("there")
    for peer in peers:
        peer.tell("go")
    tags = drain(port, 300)
    for n in range(3):
        check(f"tags of producer {n}", [x for x in tags if x // 1000 == n], [n * 1000 + k for k in range(100)])
    for peer in peers:
        peer.ok()


@role
def P7_B(t, number):
    with t.port("producer", pattern="fan-in") as port:
        say("there")
        heed("go")
        for n in range(100):
            port.send(tag=int(number) * 1000 + n, timeout=DEADLINE_S)


@row("work queue")
def P8(t):
    consumers = [t.peer("B") for _ in range(3)]
    for consumer in consumers:
        consumer.expect("there")
    producers = [t.peer("C", n) for n in range(2)]
    for producer in producers:  # otherwise a producer could come and leave before the other producer has come
        producer.expect("there")
    for producer in producers:
        producer.tell("go")
        producer.ok()
    tags = []
    for consumer in consumers:
        tags += [int(tag) for tag in consumer.process.stdout.readline().split()]
        consumer.ok()
    check("tags", sorted(tags), [p * 1000 + n for p in range(2) for n in range(150)])


@role
def P8_B(t):
    port = t.port("consumer", pattern="work-queue")
    say("there")
    tags = []
    for message in port:
        with message:
            tags.append(message.tag)
    say(" ".join(map(str, tags)))


@role
def P8_C(t, number):
    with t.port("producer", pattern="work-queue") as port:
        say("there")
        heed("go")
        for n in range(150):
            port.send(tag=int(number) * 1000 + n, timeout=DEADLINE_S)


@row("producer leaves")
def P9(t):
    port = t.port("consumer")
    t.peer("B").ok()
    check("tags", drain(port, 3), [0, 1, 2])
    with refused(ClosedError):
        port.receive(timeout=DEADLINE_S)


@role
def P9_B(t):
    with t.port("producer") as port:
        for tag in range(3):
            port.send(tag=tag, timeout=DEADLINE_S)


@row("producer killed")
def P10(t):
    port = t.port("consumer")
    b = t.peer("B")
    check("tags", drain(port, 3), [0, 1, 2])
    with refused(PeerDiedError, "peer", within=(0, 2)):
        port.receive(timeout=DEADLINE_S)
    check("how B ended", b.wait(), -signal.SIGKILL)


@role
def P10_B(t):
    port = t.port("producer")
    for tag in range(3):
        port.send(tag=tag, timeout=DEADLINE_S)
    kill_myself()


@row("consumer killed")
def P11(t):
    port = t.port("producer")
    for tag in range(3):
        port.send(tag=tag, timeout=DEADLINE_S)
    check("how B ended", t.peer("B").wait(), -signal.SIGKILL)
    t.peer("C").ok()


@role
def P11_B(t):
    message = t.port("consumer").receive(timeout=DEADLINE_S)  # kept: a message without references is released
    check("first", message.tag, 0)
    kill_myself()


@role
def P11_C(t):
    port = t.port("consumer", timeout=DEADLINE_S)
    check("tags", drain(port, 3), [0, 1, 2])


@row("not yet")
def P12(t):
    port = t.port("consumer")
    with refused(NotYetError, within=(0, 0.1)):
        port.receive(timeout=0)


@row("descriptor")
def P13(t):
    port = t.port("consumer")
    poll = select.poll()
    poll.register(port, select.POLLIN)
    check("ready", port._arm(), False)
    check("poll before", poll.poll(50), [])
    b = t.peer("B")
    check("poll after", poll.poll(5000), [(port.fileno(), select.POLLIN)])
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:  # the first event may be the arrival of the producer
        try:
            check("tag", port.receive(timeout=0).tag, 13)
            break
        except NotYetError:
            if not port._arm():
                poll.poll(1000)
    b.ok()


@role
def P13_B(t):
    with t.port("producer") as port:
        port.send(tag=13, timeout=DEADLINE_S)


@row("second producer")
def P14(t):
    port = t.port("producer")
    b = t.peer("B")
    b.expect("refused")
    port.close()
    b.tell("closed")
    b.ok()


@role
def P14_B(t):
    with refused(BusyError, t.name()):
        t.port("producer")
    say("refused")
    heed("closed")
    t.port("producer")


@row("options must agree")
def P15(t):
    producer = t.port("producer", capacity=4)
    with refused(InvalidError, t.name()):
        t.port("consumer", capacity=8)
    with refused(InvalidError, t.name()):
        t.port("consumer", capacity=4, pattern="fan-out")
    consumer = t.port("consumer")
    for tag in range(4):
        producer.send(tag=tag, timeout=0)
    with refused(NotYetError):
        producer.send(tag=4, timeout=0)
    assert drain(consumer, 4) == [0, 1, 2, 3]


@row("threads")
def P16(t):
    producer, consumer = t.port("producer"), t.port("consumer")
    tags = []
    thread = threading.Thread(target=lambda: tags.extend(drain(consumer, 1000)))
    thread.start()
    for tag in range(1000):
        producer.send(tag=tag, timeout=DEADLINE_S)
    thread.join(timeout=DEADLINE_S)
    check("tags", tags, list(range(1000)))


@row("earlier peers are history")
def P17(t):
    for again in (False, True):
        port = t.port("consumer")
        if again:
            with refused(TimedOutError, t.name(), "no producer", within=(0.2, 2)):
                port.receive(timeout=0.2)
        t.peer("B").ok()
        check("tags", drain(port, 3), [0, 1, 2])
        with refused(ClosedError):
            port.receive(timeout=DEADLINE_S)
        port.close()


@role
def P17_B(t):
    with t.port("producer") as port:
        for tag in range(3):
            port.send(tag=tag, timeout=DEADLINE_S)
