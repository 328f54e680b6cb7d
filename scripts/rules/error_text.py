"""No code reads or edits the text of an error. Code decides by the status and the reason of an error; the text is for
people.

A name counts as the text of an error if it is bound to an error (`Err(e)`, `map_err(|e| …)`, a parameter of an error's
type, the field of a reason), or if its value is made from an error (`e.to_string()`, `format!("… {e}")`). Functions
that search, split, compare or cut a text must not be called on such a name.
"""
import functools
import re

from . import source

READS = (
    r"contains|replace|replacen|replace_range|trim_\w*matches|strip_prefix|strip_suffix|split\w*|rsplit\w*|starts_with|"
    r"ends_with|find|rfind|matches|rmatches|match_indices|lines|truncate|drain|eq_ignore_ascii_case|char_indices|chars"
)
# Names of variables that mean an error or its reason in every function.
NAMES = {"error", "failure", "refused", "refusal", "why", "reason", "cause", "problem", "trouble", "complaint"}
# The names of the types of errors.
TYPES = r"(?:\w+::)*(?:\w*Error|Refusal|Refused|Reason|Failure|Problem|Problems|Malformed|BadName|BadTypeName)"
BINDINGS = re.compile(
    r"\bErr\((?:ref |mut )*(?P<a>\w+)\)"
    r"|\b(?:map_err|or_else|unwrap_or_else|inspect_err|map_or_else)\(\s*\|(?:&|mut )?(?P<b>\w+)\|"
    r"|\b(?:\w*Error|Reason|Refused|Malformed)::\w+(?:\(|\s*\{\s*)(?:ref )?(?P<c>[a-z_]\w*)\s*(?:\)|\}|,)"
    r"|\b(?P<d>\w+): &?(?:mut )?" + TYPES + r"\b"
)
READ = re.compile(rf"\.({READS})(?:::<[^>]*>)?\(")
SAME = re.compile(r' ([!=]=) &?"')
CHOICE = re.compile(r"\bmatch ([^{;]*(?:as_str|to_string|message|as_ref|text)\(\))\s*\{")
MAY_BE_ERROR = re.compile(rf"\b(?:Err\(|map_err|or_else|unwrap_or_else|inspect_err|map_or_else|unwrap_err|err\(\)|message|Reason|{'|'.join(sorted(NAMES))})|: &?(?:mut )?{TYPES}\b|Error::")
LET = re.compile(r'\blet (?:mut )?(\w+)(?:: [^=;]+)? = ((?:[^;"]|"(?:\\.|[^"\\])*")*);')

# The exceptions from the rule that code does not read the text of an error. Each entry has the file, the expression on
# which the function is called (without spaces), the function, and the reason.
EXCEPTIONS = [
    ("crates/capi/src/error.rs", "error.to_string()", "replace", "the edge: a C string cannot hold a zero byte"),
    ("crates/catalog/src/etcd.rs", "status.message()", "contains", "etcd's answer; gRPC's code 5 alone does not say that a lease is gone"),
    ("crates/catalog/src/etcd.rs", "why", "contains", "etcd's client gives no code for a lease that is gone"),
    ("crates/catalog/src/etcd.rs", "text", "contains", "tonic says only by words that no connection was made, so that nothing can have changed"),
]


def receiver(text, end):
    """Gives the expression that ends at `end`: names, calls, indices and the dots between them."""
    at = end
    while at > 0:
        last = text[at - 1]
        if last in ")]":
            opening, depth = {")": "(", "]": "["}[last], 0
            while at > 0:
                at -= 1
                depth += {last: 1, opening: -1}.get(text[at], 0)
                if depth == 0:
                    break
        elif last == '"':
            at -= 2
            while at > 0 and (text[at] != '"' or text[at - 1] == "\\"):
                at -= 1
        elif re.match(r"[\w?.!:]", last):
            at -= 1
        elif last.isspace() and text[at:at + 1] == ".":
            at -= 1
            while at > 0 and text[at - 1].isspace():
                at -= 1
        else:
            break
    return text[at:end]


def functions(text):
    starts = [found.start() for found in re.finditer(r"\bfn \w+", text)] + [len(text)]
    return [(start, text[start:end]) for start, end in zip(starts, starts[1:])]


def block_end(body, at):
    """Gives the end of the block in which `at` lies."""
    depth = 0
    for index in range(at, len(body)):
        depth += {"{": 1, "}": -1}.get(body[index], 0)
        if depth < 0:
            return index
    return len(body)


def is_made_of(value, errors):
    """Tells whether a value is the text of one of these errors, or the error itself."""
    names = "|".join(map(re.escape, errors))
    value = value.strip()
    if value.endswith("?") or "map_err" in value or re.search(r"\b(?:match|if)\b", value):
        return False
    return bool(
        re.fullmatch(rf"&?(?:\w+\.)*(?:{names})(?:\.\w+\(\))*", value)
        or re.match(r"format!", value) and re.search(rf"\{{(?:{names})(?:[:.][^}}]*)?\}}|,\s*(?:{names})\b", value)
        or re.search(r"\.(?:unwrap_err|err)\(\)", value)
    )


def errors_of(body):
    """Finds the names that mean an error or the text of an error in a function. Gives, for each name, the ranges in
    which it has this meaning."""
    found = {name: [(0, len(body))] for name in NAMES}
    for binding in BINDINGS.finditer(body):
        for name in filter(None, binding.groupdict().values()):
            if name not in ("self", "_"):
                found.setdefault(name, []).append((binding.start(), block_end(body, binding.end())))
    for _ in range(2):
        for let in LET.finditer(body):
            here = [name for name, ranges in found.items() if any(a <= let.start() <= b for a, b in ranges)]
            if is_made_of(let[2], here):
                found.setdefault(let[1], []).append((let.end(), block_end(body, let.end())))
    return found


def is_error_text(expression, at, errors):
    """Tells whether an expression at this place of a function is the text of an error."""
    here = {name for name, ranges in errors.items() if any(a <= at <= b for a, b in ranges)}
    if expression.startswith("format!"):
        return is_made_of(expression, here)
    if re.search(r"\.(?:unwrap_err|err)\(\)", expression):
        return True
    # Removes the arguments of calls, so that only the names of the chain of calls remain.
    chain = expression
    while (shorter := re.sub(r'"(?:\\.|[^"\\])*"|\([^()]*\)|\[[^\[\]]*\]', "", chain)) != chain:
        chain = shorter
    if "?" in chain and "map_err" in chain:
        return False
    parts = re.findall(r"\w+", chain)
    return bool(parts) and (parts[0] in here or any(part in NAMES for part in parts) or parts[-1] == "message")


@functools.lru_cache(maxsize=None)
def found_in(text):
    """Gives every place at which code reads or edits the text of an error: the position, the text, and the function."""
    text = source.without_tests(source.uncommented(text))
    found = []
    for start, body in functions(text):
        reads = [(read.start(), receiver(body, read.start()), read[1]) for how in (READ, SAME) for read in how.finditer(body)]
        reads += [(choice.start(), choice[1], "match") for choice in CHOICE.finditer(body)]
        if not reads or not MAY_BE_ERROR.search(body):
            continue
        errors = errors_of(body)
        for at, expression, how in reads:
            if is_error_text(expression, at, errors) and not re.search(r"assert\w*!\([^;]*$", body[:at]):
                found.append((source.line(text, start + at), re.sub(r"\s+", "", expression), how))
    return found


def check(top, folders, problems):
    needed = set()
    for folder in folders:
        for file in source.rust(folder, top):
            path = str(file.relative_to(top))
            for line, expression, how in found_in(file.read_text()):
                exception = next((e for e in EXCEPTIONS if e[:3] == (path, expression, how)), None)
                if exception:
                    needed.add(exception)
                else:
                    problems.append(f"{path}:{line}: '{expression}' is the text of an error, and `{how}` reads or edits it: decide by the error's fields")
    for exception in EXCEPTIONS:
        if exception not in needed:
            problems.append(f"scripts/rules/error_text.py: {exception[0]} reads no '{exception[1]}' any more; take the exception out")
