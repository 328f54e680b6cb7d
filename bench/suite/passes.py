"""Runs a program several times (*passes*) if one of its figures is near its limit, so that two runs of the suite come to the
same verdicts.

A shared machine changes from minute to minute: the same wake takes 4 or 35 µs, and the same cache line 40 or 200 ns.
Within one pass of a program, crossdock, its peers and the floors are measured a few seconds apart, so the pass's
*ratio* (value over limit) is sound. Passes that are minutes apart measure the machine in different states. A figure's
ratio is the median of the ratios of its passes, and not a ratio of medians that were taken at different times.

If the middle half of the passes' ratios still lies on both sides of the limit, the figure is *too close to call*, and the
report says this instead of a verdict. In this case `met` is the verdict of the median, and the next run may come to the
other verdict. A figure with only one or two passes is also too close to call if its rounds scatter to both sides of the
limit.
"""
import statistics
import time

from .records import ratio_range, rounded, spread

# A figure is measured again if its ratio is within this factor of its limit.
NEAR = 1.6
# Passes are repeated until at least `ENOUGH` of them exist and agree, but at most `MOST` times.
ENOUGH, MOST = 3, 9
# Applies to a figure with only one pass, and to a figure whose program computes one record from all passes. If the
# ratio of such a figure is within this factor of the limit, another pass may change the verdict.
CLOSE = 1.1


class Part:
    """One line of bench/programs, and the records of its passes."""

    def __init__(self, name, measure):
        self.name, self._measure, self.passes, self.seconds = name, measure, [], 0.0

    def once(self):
        begun = time.monotonic()
        self.passes.append(list(self._measure()))
        self.seconds = time.monotonic() - begun

    def merged(self):
        """One record for each figure, made from the records of all passes."""
        return [{**merged, "close": close(merged)} if merged["aim"] else merged for merged in map(merge, self._by_figure().values())]

    def undecided(self):
        """Tells whether another pass could change the verdict of any figure."""
        return 0 < len(self.passes) < MOST and any(open_still(records, len(self.passes)) for records in self._by_figure().values())

    def _by_figure(self):
        found = {}
        for records in self.passes:
            for one in records:
                found.setdefault((one["id"], one["case"]), []).append(one)
        return found


def open_still(records, passes):
    """Tells whether another pass could change the verdict of a figure. `records` has the figure's record of each pass."""
    last = records[-1]
    if not last["aim"] or last["ratio"] is None:
        return False
    if last.get("pooled"):
        return _within(last["ratio"], NEAR if passes < ENOUGH else CLOSE)
    if not any(_within(one["ratio"], NEAR) or _scatters(one) for one in records):
        return False
    return passes < ENOUGH or len({one["met"] for one in records}) > 1


def close(record):
    """Tells whether a figure is too close to its limit for a verdict. `record` is its merged record of all passes."""
    ratios = record.get("passes", [])
    if record["ratio"] is None:
        return False
    if len(ratios) < 2:
        return _within(record["ratio"], CLOSE) or _scatters(record)
    low, _, high = spread(ratios)
    # Two passes on the same side of the limit are not enough as a proof.
    return low <= 1 < high or (len(ratios) < ENOUGH and _scatters(record))


def _scatters(record):
    """Tells whether the rounds of a record scatter so much that the median could as well lie on the other side of the limit."""
    low, high = ratio_range(record)
    return low <= 1 < high


def _within(ratio, factor):
    return 1 / factor < ratio < factor


def merge(records):
    """Merges the records of one figure, one for each pass, into a single record. The key `passes` has the ratio of each
    pass."""
    last = records[-1]
    if len(records) == 1 or last.get("pooled"):
        return last
    runs = [run for one in records for run in one["runs"]]
    ratios = [one["ratio"] for one in records]
    ratio = None if None in ratios else statistics.median(ratios)
    floors = [one["floor"] for one in records if one["floor"] is not None]
    names = dict.fromkeys(name for one in records for name in one["peers"])
    peers = {name: rounded(statistics.median([one["peers"][name] for one in records if name in one["peers"]])) for name in names}
    more = {"passes": [rounded(r) for r in ratios]} if last["aim"] else {}
    return {**last, "value": rounded(statistics.median([one["value"] for one in records])), "floor": rounded(statistics.median(floors)) if floors else None,
            "peers": peers, "ratio": rounded(ratio), "met": last["met"] if ratio is None else ratio <= 1.0, "runs": runs, **more}


def again(parts, left, progress):
    """Makes further passes as long as `left()` seconds are enough for one pass. The part with the fewest passes comes
    first."""
    while True:
        waiting = [part for part in parts if part.undecided() and part.seconds * 1.2 < left()]
        if not waiting:
            return
        part = min(waiting, key=lambda part: len(part.passes))
        progress(f"{part.name}, pass {len(part.passes) + 1}")
        part.once()
