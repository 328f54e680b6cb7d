"""Five sentences at the head of the page: aims, peers, the best case, the worst case, and the machine."""
import statistics

from .names import in_words
from .records import judged, more_is_better
from .records import verdict as in_a_word
from .table import number


def sentences(records, about):
    return [_aims(records), _peers(records), _best(records), _worst(records), _machine(records, about)]


def _aims(records):
    words = [in_a_word(r) for r in judged(records)]
    if not words:
        return "No figure of this run has an aim."
    return (f"Of {len(words)} figures with an aim, {words.count('met')} meet it, {words.count('missed')} miss it and "
            f"{words.count('too close')} are too close to call.")


def leads(records):
    """Gives a list with an entry for each peer of each figure: how many times better crossdock is, the peer, and the record. The
    greatest factor comes last."""
    found = []
    for r in records:
        for name, value in r["peers"].items():
            if value and r["value"] and value > 0 and r["value"] > 0:
                found.append((r["value"] / value if more_is_better(r) else value / r["value"], name, r))
    return sorted(found, key=lambda one: one[0])


def _peers(records):
    found = [lead for lead, _, _ in leads(records)]
    if not found:
        return "No peer was measured beside crossdock."
    return (f"In {sum(lead > 1 for lead in found)} of {len(found)} comparisons with a peer, measured in the same run, crossdock is ahead, "
            f"by a factor of {number(statistics.median(found))} in the median.")


def _best(records):
    found = leads(records)
    if not found or found[-1][0] <= 1:
        return "It is ahead of no peer."
    return f"It is furthest ahead in {_case(found[-1][2])}: {number(found[-1][0])} times better than {found[-1][1]}."


def _worst(records):
    missed = [r for r in judged(records) if in_a_word(r) == "missed"]
    if not missed:
        return "No aim is missed."
    worst = max(missed, key=lambda r: r["ratio"])
    return f"It is furthest from its aim in {_case(worst)}: {number(worst['ratio'])} times the limit."


def _machine(records, about):
    here, lost = about["machine"], sum(bool(r.get("problem")) for r in records)
    missing = f"; {lost} could not be measured" if lost else ""
    return (f"{'A short' if about['quick'] else 'A full'} run of {about.get('seconds', 0):.0f} s on {here['processors']} CPUs with a load of "
            f"{here['load_at_start']} at its start gave these figures, whose ratios count and not their nanoseconds{missing}.")


def _case(record):
    words = in_words(record["id"])
    return f"“{words}: {record['case']}” ({record['id']})" if words != record["id"] else f"“{record['case']}” ({record['id']})"
