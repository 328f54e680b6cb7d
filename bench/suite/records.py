"""Records. A record is the JSON object of one figure, which has the same keys in every program (bench/src/lib.rs)."""
import math
import statistics


def record(row, case, unit, runs, aim="", ratio=None, peers=None, floor=None, **more):
    """Makes a record. `ratio` is the value divided by its limit, which is at most 1 if the aim is met. Without an aim it is 0."""
    value = statistics.median(runs)
    ratio = 0.0 if ratio is None else ratio
    return {"id": row, "case": case, "value": rounded(value), "unit": unit, "floor": rounded(floor),
            "peers": {name: rounded(v) for name, v in (peers or {}).items()}, "aim": aim, "ratio": rounded(ratio),
            "met": ratio <= 1.0, "runs": [rounded(r) for r in runs], **more}


def problem(row, case, what):
    """Makes the record of a figure that could not be measured. `what` is the reason."""
    return {"id": row, "case": case, "value": None, "unit": "", "floor": None, "peers": {}, "aim": "", "ratio": None,
            "met": None, "runs": [], "problem": what}


def rounded(x):
    return None if x is None else float(f"{x:.6g}")


def checked(found, name):
    """Returns the records that the program `name` printed. Raises ValueError if they are not correct."""
    if not isinstance(found, list):
        raise ValueError(f"{name} did not print an array of records")
    for one in found:
        missing = [key for key in ("id", "case", "value", "unit", "aim", "ratio", "met", "runs") if key not in one]
        if missing:
            raise ValueError(f"{name} printed a record without {', '.join(missing)}: {one}")
        one.setdefault("floor", None)
        one.setdefault("peers", {})
    return found


def more_is_better(record):
    """Tells whether the figure is a rate per second, so that a greater value is better."""
    return record["unit"].endswith("/s")


def judged(records):
    """Gives the records that have an aim and could be measured."""
    return [r for r in records if r["aim"] and not r.get("problem")]


def verdict(record):
    """Gives the verdict on a record with an aim: `met`, `missed` or `too close`."""
    return "too close" if record.get("close") else "met" if record["met"] else "missed"


def spread(runs):
    """Gives the lower quartile, the median and the upper quartile. Of fewer than four runs, the least and the greatest take the
    place of the quartiles."""
    runs = sorted(runs)
    if not runs:
        return None, None, None
    if len(runs) < 4:
        return runs[0], statistics.median(runs), runs[-1]
    low, middle, high = statistics.quantiles(runs, n=4)
    return low, middle, high


def ratio_range(record):
    """Gives the interval that contains the true median of the ratio with 95 %, computed from the scatter of the record's runs
    (McGill, Tukey, Larsen, 1978: the notch of a box plot). With fewer than four runs, both ends are the ratio itself."""
    value, ratio, runs = record["value"], record["ratio"], record["runs"]
    if ratio is None or not value or len(runs) < 4:
        return ratio, ratio
    low, _, high = spread(runs)
    notch = 1.57 * (high - low) / math.sqrt(len(runs))
    if more_is_better(record):
        return ratio * value / (value + notch), ratio * value / (value - notch) if notch < value else math.inf
    ends = ratio * (value - notch) / value, ratio * (value + notch) / value
    return min(ends), max(ends)
