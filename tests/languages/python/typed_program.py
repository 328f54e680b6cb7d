"""A program that uses every kind of call; mypy --strict has to accept it (test_package.py)."""

import numpy as np
import crossdock
def f() -> float:
    with crossdock.connect(timeout=2.0) as s:
        r = s.region("a", size="1 MiB")
        v = r.vector("v", np.float64, 10)
        v.array[:] = 1
        v.resize(3)
        st = r.string("s"); st.value = "x"
        with s.port("p", "producer", pattern="fan-out", capacity=4) as p:
            p.send(v, tag=3, inline=b"ab", timeout=1)
            h = p.reclaim()
            if h is not None:
                o = r.load(h, "vector<f64>")
                print(o.array.sum())
        return float(v.array.sum())
async def g(p: crossdock.Port) -> None:
    m = await p.areceive(timeout=3)
    print(m.tag)
    async for m in p:
        with m:
            print(m.load().array)
    for m in p.messages(timeout=600):
        m.release()
