"""Restarts from the newest undamaged checkpoint of a folder and prints what it finds."""

import sys

import crossdock
import numpy as np

series = crossdock.ranked("field")
saved = crossdock.restart(sys.argv[1])
assert saved.series == [series] and "v10" in saved.variables()
attributes = saved.attributes(series)
v = saved.read("v10", series)
assert v.dtype == "f8" and v.shape == (2, 3)
into = np.empty((2, 3))
assert saved.read("v10", into=into) is into and into.tobytes() == v.tobytes()
for wrong in (np.empty((3, 2)), np.empty((2, 3), "f4"), np.empty((2, 6))[:, ::2]):
    try:
        saved.read("v10", into=wrong)
        sys.exit("a wrong array was taken")
    except (crossdock.WrongTypeError, crossdock.InvalidError):
        pass
assert saved.constants("v10") == {"size": 8, "of": "f64"}
try:
    crossdock.restart("/nowhere")
    sys.exit("nothing was found")
except crossdock.NotFoundError:
    pass
try:
    crossdock.Checkpoint(saved.skipped[0][0])
    sys.exit("a damaged file was taken")
except crossdock.CorruptError:
    pass
print(series, saved.sequence(series), attributes["step"], f"{attributes['time']:.3f}", attributes["note"], len(saved.skipped), f"{v.sum():.9e}")
