"""Compares two results: prints the figures that got slower or faster by more than the noise of both results."""
import json
import sys

from .records import more_is_better, spread, verdict
from .table import number


def main(a, b):
    before, after = read(a), read(b)
    changes = {key: change_of(before[key], after[key]) for key in before.keys() & after.keys()}
    return show(a, b, before, after, changes)


def show(a, b, before, after, changes):
    """Prints the figures that became slower or faster. `a` and `b` are the names of the two results, `changes` has the change and the
    noise of each figure. Returns the exit code: 1 if a figure became slower."""
    slower = faster = same = 0
    lines = []
    for key, (change, noise) in sorted(changes.items()):
        if change is None:
            continue
        said = word(change, noise)
        slower, faster, same = slower + (said == "slower"), faster + (said == "faster"), same + (not said)
        turned = before[key]["met"] != after[key]["met"]
        if said or turned:
            verdicts = f"  {verdict(before[key])} -> {verdict(after[key])}" if turned else ""
            lines.append(f"{key[0]:5}{key[1][:60]:61}{number(before[key]['value']):>10} -> {number(after[key]['value']):>9} {before[key]['unit']:13}"
                         f"{change:+7.1%} (noise {noise:.1%})  {said}{verdicts}")
    print(f"{a} -> {b}: change of time, + is slower; what is within the noise of both is not shown")
    print("\n".join(lines) if lines else "nothing beyond the noise")
    for name, only in ((a, before.keys() - after.keys()), (b, after.keys() - before.keys())):
        if only:
            print(f"only in {name}: " + "; ".join(f"{i} {c}" for i, c in sorted(only))[:2000])
    print(f"{slower} slower, {faster} faster, {same} the same")
    print(compare_verdicts(before, after))
    return 1 if slower else 0


def word(change, noise):
    """Says whether a figure became slower or faster. The answer is empty if the change is within the noise or unknown."""
    if change is None:
        return ""
    return "slower" if change > noise else "faster" if change < -noise else ""


def compare_verdicts(before, after):
    """Says in words for how many figures both results have the same verdict. A figure that is too close to call in
    either result has no verdict, so it counts as `too close to call` and not as `contrary`."""
    both = [key for key in sorted(before.keys() & after.keys()) if before[key]["aim"]]
    called = [key for key in both if not before[key].get("close") and not after[key].get("close")]
    contrary = [key for key in called if before[key]["met"] != after[key]["met"]]
    text = f"verdicts: {len(called) - len(contrary)} the same, {len(both) - len(called)} too close to call, {len(contrary)} contrary"
    return text + "".join(f"\n  {row} {case}: {verdict(before[row, case])} -> {verdict(after[row, case])}" for row, case in contrary)


def read(file):
    try:
        with open(file) as text:
            found = json.load(text)
    except (OSError, ValueError) as error:
        sys.exit(f"bench/run --compare: {file}: {error}")
    return {(r["id"], r["case"]): r for r in found if r.get("value") is not None and r.get("runs")}


def change_of(before, after):
    """Gives the relative change of the time, and the change that noise alone can cause. The noise is the sum of both spreads (the
    interquartile range over the median), and at least 5 %, because two runs of the same program on one machine differ by so
    much."""
    if not before["value"] or not after["value"] or before["unit"] != after["unit"]:
        return None, None
    change = after["value"] / before["value"] - 1
    if more_is_better(before):
        change = before["value"] / after["value"] - 1
    return change, max(0.05, _spread(before) + _spread(after))


def _spread(record):
    if len(record["runs"]) < 2:
        return 0.05
    low, _, high = spread(record["runs"])
    return (high - low) / abs(record["value"])
