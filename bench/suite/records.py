"""Records: the JSON object of one figure, the same in every program (bench/src/lib.rs)."""
import math
import statistics


def record(row, case, unit, runs, aim="", ratio=None, peers=None, floor=None, **more):
    """`ratio` is the value over its limit: at most 1 when the aim is met. Without an aim there is nothing to miss."""
    value = statistics.median(runs)
    ratio = 0.0 if ratio is None else ratio
    return {"id": row, "case": case, "value": rounded(value), "unit": unit, "floor": rounded(floor),
            "peers": {name: rounded(v) for name, v in (peers or {}).items()}, "aim": aim, "ratio": rounded(ratio),
            "met": ratio <= 1.0, "runs": [rounded(r) for r in runs], **more}


def problem(row, case, what):
    """Something that was to be measured and could not be."""
    return {"id": row, "case": case, "value": None, "unit": "", "floor": None, "peers": {}, "aim": "", "ratio": None,
            "met": None, "runs": [], "problem": what}


def rounded(x):
    return None if x is None else float(f"{x:.6g}")


def checked(found, name):
    """What a program printed, or an error that says what is wrong with it."""
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
    """Is it so much a second?"""
    return record["unit"].endswith("/s")


def judged(records):
    """Those with an aim that could be measured."""
    return [r for r in records if r["aim"] and not r.get("problem")]


def verdict(record):
    """In a word, of one with an aim."""
    return "too close" if record.get("close") else "met" if record["met"] else "missed"


def spread(runs):
    """Lower quartile, median, upper quartile; of few runs the least and the most."""
    runs = sorted(runs)
    if not runs:
        return None, None, None
    if len(runs) < 4:
        return runs[0], statistics.median(runs), runs[-1]
    low, middle, high = statistics.quantiles(runs, n=4)
    return low, middle, high


def ratio_range(record):
    """Between what the ratio's median lies, by the scatter of the record's rounds: 95 % of the time where they were drawn
    alike (McGill, Tukey, Larsen, 1978: the notch of a box plot). Of few rounds it says nothing but the ratio."""
    value, ratio, runs = record["value"], record["ratio"], record["runs"]
    if ratio is None or not value or len(runs) < 4:
        return ratio, ratio
    low, _, high = spread(runs)
    notch = 1.57 * (high - low) / math.sqrt(len(runs))
    if more_is_better(record):
        return ratio * value / (value + notch), ratio * value / (value - notch) if notch < value else math.inf
    ends = ratio * (value - notch) / value, ratio * (value + notch) / value
    return min(ends), max(ends)
