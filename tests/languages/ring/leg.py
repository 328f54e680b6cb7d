"""The third leg of the ring, in which a vector passes through programs in five languages (README.md)."""

import sys

import crossdock

ME = 2


def check(so, what):
    if not so:
        raise AssertionError("not so: " + what)


def segment_offset(address):
    """How far into its shared mapping an address lies: the kernel's own answer, from /proc/self/maps."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            place, rights, start, *_ = line.split()
            begin, end = (int(x, 16) for x in place.split("-"))
            if begin <= address < end:
                check(rights[3] == "s", "the elements lie in shared memory")
                return address - begin + int(start, 16)
    raise AssertionError("the elements lie nowhere")


def run(prefix, laps):
    with crossdock.connect(task="python", private_daemon=False) as session:
        with session.port(prefix + "/cpp-python", "consumer", capacity=2) as before, session.port(
            prefix + "/python-fortran", "producer", capacity=2
        ) as behind:
            same = None
            for lap in range(laps):
                with before.receive(timeout=30) as message:
                    vector = message.load()
                    x = vector.array
                    offset = segment_offset(x.__array_interface__["data"][0])
                    check(vector.type == "vector<f64>" and x.shape == (1000,), "it is a vector of 1000 doubles")
                    check(message.tag == lap and int.from_bytes(message.inline, "little") == offset, "same elements")
                    check(vector.handle == message.handle and message.handle == (same or message.handle), "same handle")
                    same = message.handle
                    check(x[ME - 1] == lap + 1 and x[ME + 1] == lap, "the leg before was there, the one behind was not")
                    x[ME] += 1
                    behind.send(vector, tag=lap, inline=message.inline, timeout=30)
                    del x, vector
            counted = behind.statistics
            check(counted["messages"] == laps and counted["bytes_handed_over"] == laps * 8008, "all is counted")
            check(counted["bytes_copied"] == 0, "nothing was copied")


if __name__ == "__main__":
    try:
        run(sys.argv[1], int(sys.argv[2]))
        print("ok ring python: same handle, same elements, 0 copied")
    except Exception as error:  # any error means that this leg has failed
        print(f"FAILED ring python: {type(error).__name__}: {error}")
        sys.exit(1)
