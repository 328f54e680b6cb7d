"""Prints the reference of the Fortran modules as Markdown: each public type with its procedures, their arguments and comments."""
import re
import sys
from pathlib import Path

# The files in the order in which a user meets them. The modules whose names end in _c only declare the C functions.
FILES = ["crossdock.f90", "crossdock_objects.F90", "crossdock_series.F90", "crossdock_items.F90", "crossdock_checkpoints.F90"]


def reference(folder):
    parts = ["# Fortran, every call\n\nWritten from the modules. A procedure without its own text does what the C function of the same name does "
             "([C, every call](c-reference.md)). `stat` is a status of `crossdock.h`; optional arguments have their defaults there.\n"]
    for name in FILES:
        text = (folder / name).read_text()
        lines = text.splitlines()
        procedures = find_procedures(lines)
        opening = "\n".join(line[1:].removeprefix(" ") for line in takewhile_comment(lines) if "SPDX" not in line)
        parts.append(f"## {name}\n\n{plain(opening)}\n")
        public = set(re.findall(r"\w+", " ".join(re.findall(r"^ *public :: (.*)$", text, re.MULTILINE)).replace("&", " ")))
        bound = set()
        for title, said, bindings in find_types(lines):
            bound |= {target for _, targets, _ in bindings for target in targets}
            if title not in public or not bindings:
                continue
            parts.append(f"### {title}\n\n{plain(said)}\n")
            parts += [entry(f"{title}%{binding}", targets, note, procedures) for binding, targets, note in bindings]
        free = [p for p in procedures if p in public and p not in bound]
        if free:
            parts.append("### Procedures of the module\n")
            parts += [entry(p, [p], "", procedures) for p in free]
    return "\n".join(parts)


def plain(text):
    """Escapes `<` outside of code (in backquotes, or indented), because it begins no HTML tag there. Examples are indented
    by two or more spaces."""
    lines = []
    for line in text.splitlines():
        lines.append("  " + line if line.startswith("  ") else "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(line.split("`"))))
    return "\n".join(lines).strip()


def takewhile_comment(lines):
    for line in lines:
        if not line.startswith("!"):
            return
        yield line


def joined(lines, number):
    """Gives a statement with its continuation lines, and the number of the line after the statement."""
    text = lines[number].split("  !")[0].rstrip()
    while text.endswith("&"):
        number += 1
        text = text[:-1].rstrip() + " " + lines[number].strip().removeprefix("&").strip()
    return text.strip(), number + 1


def comment_before(lines, number):
    said = []
    while number and re.match(r" *![>!]? ?", lines[number - 1]) and not lines[number - 1].startswith("#"):
        number -= 1
        said.insert(0, re.sub(r"^ *![>!]? ?", "", lines[number]))
    return " ".join(said)


def find_procedures(lines):
    """Gives for each name of a procedure its comment, its statement, and the declarations of its arguments."""
    found, interface = {}, False
    for number, line in enumerate(lines):
        if re.match(r" *(abstract )?interface\b", line):
            interface = True
        if re.match(r" *end interface", line):
            interface = False
        head = re.match(r"  (?!end )(?:[\w()*=: ]+ )?(?:subroutine|function) (\w+)", line)
        if not head or interface:
            continue
        statement, after = joined(lines, number)
        arguments = set(re.findall(r"\w+", re.search(r"\(([^()]*)\)(?: result.*)?$", statement)[1])) if "(" in statement else set()
        declared = []
        while after < len(lines) and not re.match(r"  end (subroutine|function)", lines[after]):
            text, after = joined(lines, after)
            names = re.match(r"[^!]*:: *(.*)", text)
            if names and arguments & set(re.findall(r"\w+", re.sub(r"\([^()]*\)", "", names[1]))):
                declared.append(text)
        found[head[1]] = (comment_before(lines, number), statement, declared)
    return found


def find_types(lines):
    """Yields for each type its name, its comment, and a list of its bindings with their procedures and comments."""
    number = 0
    while number < len(lines):
        head = re.match(r"  type(?:, [\w()]+)* :: (\w+)", lines[number])
        if not head:
            number += 1
            continue
        said, bindings = comment_before(lines, number), []
        number += 1
        hidden = {}
        while not re.match(r"  end type", lines[number]):
            begun = number
            text, number = joined(lines, number)
            if binding := re.match(r"(procedure|generic)(, private)? *:: *(.*)", text):
                for part in ([binding[3]] if binding[1] == "generic" else binding[3].split(",")):
                    name, _, targets = (word.strip() for word in part.partition("=>"))
                    targets = [t.strip() for t in targets.split(",")] if targets else [name]
                    if binding[2]:
                        hidden[name] = targets[0]
                    else:
                        bindings.append((name, targets, comment_before(lines, begun)))
        yield head[1], said, [(name, [hidden.get(t, t) for t in targets], note) for name, targets, note in bindings]


def entry(name, targets, note, procedures):
    """Makes the entry for one call. If several procedures have the call's name, the entry shows the first one whose
    statement was found."""
    known = [procedures[t] for t in targets if t in procedures]
    said = " ".join(text for text in (note, known[0][0] if known else "") if text)
    kinds = f" ({len(targets)} types, kinds or ranks)" if len(targets) > 1 else ""
    code = ""
    if known:
        _, statement, declared = known[0]
        code = "\n```fortran\n" + "\n".join([statement, *("  " + line for line in declared)]) + "\n```\n"
    return f"**`{name}`**{kinds} {plain(said)}".rstrip() + f"\n{code}"


if __name__ == "__main__":
    print(reference(Path(sys.argv[1])))
