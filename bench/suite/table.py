"""The table that is printed at the end of a run, as text."""
from .records import judged, spread
from .records import verdict as in_a_word


def head(about):
    m = about["machine"]
    text = (f"{m['processors']} processors of {m['processor']} ({m['caches']}), {m['memory_gib']} GiB, Linux {about['kernel']}, {m['system']}, "
            f"{m['page_bytes']}-byte pages, huge pages {m['transparent_huge_pages']}; load {m['load_at_start']}; {about['taken']}")
    return text + "\n" + ", ".join(f"{name} {version}" for name, version in about["versions"].items() if name != "peers")


def number(x):
    if x is None:
        return "-"
    return f"{x:,.0f}".replace(",", " ") if abs(x) >= 1000 else f"{x:.3g}"


def verdict(record):
    if record.get("problem"):
        return "not measured"
    if not record["aim"]:
        return ""
    return in_a_word(record).replace("missed", "MISSED") + agreement(record)


def agreement(record):
    """Says how many of the passes, each taken alone, have the same verdict as the record, in the form `, 3 of 4`."""
    ratios = record.get("passes", [])
    wanted = record["met"] or record.get("close", False)
    same = sum((ratio <= 1) == wanted for ratio in ratios)
    return f", {same} of {len(ratios)}" if len(ratios) > 1 else ""


def summary(records):
    """Says how many figures have an aim, and how many of them met it, missed it, or are too close to call."""
    words = [in_a_word(r) for r in judged(records)]
    return f"{len(words)} figures with an aim, {words.count('met')} met, {words.count('missed')} missed, {words.count('too close')} too close to call"


def aims(records):
    return [r for r in records if r["aim"] or r.get("problem")]


def order(record):
    row = record["id"]
    return (row[0] != "P", row[:1], int(row[1:]) if row[1:].isdigit() else 0)


def text(records):
    lines = ["", f"{'id':5}{'case':58}{'value':>10} {'unit':13}{'quartiles':>19}  {'ratio':>6}  verdict"]
    for r in sorted(aims(records), key=order):
        if r.get("problem"):
            continue
        low, _, high = spread(r["runs"])
        lines.append(f"{r['id']:5}{r['case'][:57]:58}{number(r['value']):>10} {r['unit']:13}{number(low) + ' - ' + number(high):>19}  {number(r['ratio']):>6}  {verdict(r)}")
        if r["peers"]:
            lines.append("     " + ", ".join(f"{name} {number(v)}" for name, v in r["peers"].items()))
    missed = sorted({r["id"] for r in judged(records) if in_a_word(r) == "missed"}, key=lambda i: int(i[1:]) if i[1:].isdigit() else 0)
    lines.append(f"\n{summary(records)}" + (f" (missed: {', '.join(missed)})" if missed else ""))
    problems = [r for r in records if r.get("problem")]
    lines += [f"not measured: {r['id']} {r['case']}: {r['problem']}" for r in problems]
    return "\n".join(lines)
