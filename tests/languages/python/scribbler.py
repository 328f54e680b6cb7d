"""A member that overwrites its own region with random numbers while it uses the region (test_hostile.py). Its calls may
fail with errors, but must never crash or hang.

    scribbler.py REGION SEED SECONDS
"""

import ctypes
import faulthandler
import random
import sys
import time

import crossdock


def main(name, seed, seconds):
    faulthandler.enable()
    dice = random.Random(int(seed))
    with crossdock.connect(private_daemon=False) as session:
        region = session.region(name, "create_only", "4 MiB")
        vector, array = region.vector("v", "f8", 100), region.ndarray("a", (3, 4), "f4")
        text, number = region.string("t", "hello" * 10), region.simple("n", "i8")
        handles = [x.handle for x in (vector, array, text, number)]
        base = number.array.__array_interface__["data"][0] - number.handle.offset
        words = (ctypes.c_uint64 * (region.statistics["reserved"] // 8)).from_address(base)
        headers = [handle.offset // 8 + k for handle in handles for k in range(16)]
        uses = (
            lambda: vector.array.sum(),
            lambda: array.array.sum(),
            lambda: text.bytes,
            lambda: number.value,
            lambda: vector.resize(dice.randrange(1000)),
            lambda: array.reshape((dice.randrange(9), 3)),
            lambda: setattr(text, "value", "x" * dice.randrange(2000)),
            lambda: region.objects(),
            lambda: region.statistics,
            lambda: region.simple(f"o{dice.randrange(9)}", ("u1", dice.randrange(1, 5000)), timeout=0.05),
            lambda: region.remove(f"o{dice.randrange(9)}"),
            lambda: region.load(dice.choice(handles)),
            lambda: region.open("v", timeout=0.05).array.sum(),
        )
        refused, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            at = dice.choice(headers) if dice.random() < 0.5 else dice.randrange(min(len(words), 40000))
            old = words[at]
            words[at] = dice.choice((0, 1, dice.getrandbits(64), old ^ (1 << dice.randrange(64)), old + 8, 1 << 63))
            for use in uses:
                try:
                    use()
                except crossdock.Error:
                    refused += 1
        session.remove_region(name)
    print(f"{refused} refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
