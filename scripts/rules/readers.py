"""The words of a shared header are read in one file, which checks them. All other code, and so every binding, gets checked
values from that file.

1. Only the reader of a header names the header's type (`READERS`), and no public function of the reader gives a reference
   to it out.
2. Only the reader uses the header's words. The rule finds uses by the names of the words, in the part of `core` that the
   header belongs to. (Other packages cannot name the type, and so do not get at its words.)
3. A word that becomes an address, a length or an index (`WildWord`) is loaded in one file. This holds for every header,
   also for those of `STEPS`.
"""
import re

from . import source

# For each type of a header in shared memory: the module of `layout` with the type, the name of the type, and the file
# of its reader. An entry may name a second file, which maps the header. The second file may only make the reader from
# the address.
READERS = [
    ("queue", "Cell", "crates/core/src/queue/cell.rs", "crates/core/src/queue/ring.rs"),
    ("queue", "EndSlot", "crates/core/src/queue/slot.rs", "crates/core/src/queue/ring.rs"),
    ("queue", "EndHolder", "crates/core/src/queue/slot.rs"),
    ("queue", "EndCounters", "crates/core/src/queue/slot.rs"),
    ("queue", "SideMembers", "crates/core/src/queue/ends.rs"),
    ("queue", "PortIdentity", "crates/core/src/queue/ring.rs"),
    ("item", "ItemHeader", "crates/core/src/item/header.rs"),
    ("region", "VectorHeader", "crates/core/src/headers.rs"),
    ("region", "NdarrayHeader", "crates/core/src/headers.rs"),
    ("region", "Operation", "crates/core/src/heap/operation.rs"),
]
# The other header types. Their states are steps of a protocol that several files of one module implement, so the module
# is the reader. Only files of the module's folder name the type. Rule 3 (a word that becomes an address, a length or an
# index is loaded in one file) holds for the words of these headers, too.
STEPS = [
    ("queue", "PortHeader", "crates/core/src/queue/", "positions and counts, which producers, consumers and healing advance"),
    ("region", "RegionHeader", "crates/core/src/", "the heap's and the directory's counts, locked steps"),
    ("region", "SliceHead", "crates/core/src/", "the heap's lock-free lists"),
    ("region", "HeapSlot", "crates/core/src/", "a member's lists in the heap, and what healing does with them"),
    ("region", "Entry", "crates/core/src/", "the states of a named object"),
    ("series", "SeriesHeader", "crates/core/src/series/", "the newest version and the counters of the publisher"),
    ("series", "RecordHead", "crates/core/src/series/", "written by the publisher, read by observers"),
    ("series", "VariableEntry", "crates/core/src/series/", "as for RecordHead"),
    ("series", "AttributeEntry", "crates/core/src/series/", "as for RecordHead"),
    ("series", "ConstantEntry", "crates/core/src/series/", "as for RecordHead"),
    ("series", "Extent", "crates/core/src/series/", "as for RecordHead"),
    ("series", "PinPage", "crates/core/src/series/", "the pins of observers"),
    ("series", "PinSlot", "crates/core/src/series/", "the pins of observers"),
    ("files", "Notice", "crates/core/src/files/", "written by the service, read by consumers"),
]
# For each module of `layout`: the folders and files of `core` whose code may access the words of shared memory that the
# module's headers declare.
PARTS = {
    "queue": ["queue"],
    "item": ["item"],
    "region": ["heap", "directory", "region", "headers.rs"],
    "series": ["series"],
    "files": ["files"],
}
ACCESS = r"(?:load|store|store_wild|swap|compare_exchange\w*|fetch_\w+|for_stores)"


def fields(top):
    """Gives, for each header (module, type) and for the name of each of its words, whether the word is a `WildWord`."""
    found = {}
    for module in PARTS:
        for file in source.of_layout(top, module):
            text = source.without_tests(source.blank(file.read_text()))
            for struct in re.finditer(r"pub struct (\w+) \{(.*?)\n\}", text, re.DOTALL):
                words = {name: "WildWord" in of for name, of in re.findall(r"pub (\w+): ([^,\n]+)", struct[2])}
                found[module, struct[1]] = words
    return found


def names(text, module, type_name):
    """Gives the positions at which a text names a type of `layout`."""
    if type_name not in text or module not in text:
        return
    for use in re.finditer(r"\buse crossdock_layout::([^;]*);", text):
        if re.search(rf"\b{type_name}\b(?!\s*::)", use[1]) and re.search(rf"\b{module}\b", use[1]):
            yield use.start()
    for path in re.finditer(rf"\b{module}::{type_name}\b", text):
        yield path.start()


def check(top, folders, problems):
    def complain(file, text, at, what):
        problems.append(f"{file.relative_to(top)}:{source.line(text, at)}: {what}")

    words = fields(top)
    files = [file for folder in folders if folder.name not in ("layout", "os") for file in source.rust(folder, top)]
    texts = {file: source.without_tests(source.blank(file.read_text())) for file in files}
    for module, type_name, *_ in [*READERS, *STEPS]:
        if (module, type_name) not in words:
            problems.append(f"scripts/rules/readers.py: layout::{module} has no header {type_name}")
    for file, text in texts.items():
        path = str(file.relative_to(top))
        for glob in re.finditer(rf"\buse crossdock_layout::(?:{'|'.join(PARTS)})::\*", text):
            complain(file, text, glob.start(), "a glob hides which shared headers this file reads")
        for module, type_name, place, *mapped in [*READERS, *STEPS]:
            if path.startswith(place) or path in mapped:
                continue
            for at in names(text, module, type_name):
                complain(file, text, at, f"{type_name} is read in {place} alone: get its values from there")
        for module, type_name, place, *mapped in READERS:
            if path in (place, *mapped):
                for given in re.finditer(rf"(?<!#\[cfg\(test\)\]\n    )\bpub(?:\(\w+\))? (?:const )?fn [^;{{]*->[^;{{]*&(?:'\w+ )?{type_name}\b", text):
                    complain(file, text, given.start(), f"gives a {type_name} out, with its unchecked words: give values out")
    in_part = {module: {file for file in files for part in parts
                        if f"{file.relative_to(top)}/".startswith(f"crates/core/src/{part}/")} for module, parts in PARTS.items()}
    for module, parts in in_part.items():
        for file in sorted(parts):
            path, text = str(file.relative_to(top)), texts[file]
            readers = [(type_name, place) for of, type_name, place, *_ in READERS if of == module]
            for type_name, place in readers:
                # If another header of the same part has a word of this name, and this file may read that header, the
                # rule cannot tell whose word is used. So the rule leaves such names out.
                others = {name for (of, other), names_of in words.items() if of == module and other != type_name
                          and not any(other == t and path != p for t, p in readers) for name in names_of}
                own = set(words.get((module, type_name), ())) - others
                if path == place or not own:
                    continue
                for found in re.finditer(rf"\.({'|'.join(sorted(own))})(?:\[[^\]]*\])?\s*\.{ACCESS}\(", text):
                    complain(file, text, found.start(), f"the word '{found[1]}' of {type_name} is used in {place} alone")
        counted = {}
        for (of, _), names_of in words.items():
            for name in [name for name, wild in names_of.items() if wild and of == module]:
                counted[name] = counted.get(name, 0) + 1
        for name, headers in counted.items():
            loads = {file: found.start() for file in sorted(parts)
                     if (found := re.search(rf"\.{name}(?:\[[^\]]*\])?\s*\.load\(", texts[file]))}
            if len(loads) > headers:
                where = ", ".join(str(file.relative_to(top)) for file in loads)
                file, at = list(loads.items())[-1]
                complain(file, texts[file], at, f"the wild word '{name}' is loaded in {len(loads)} files ({where}); check it in one")
