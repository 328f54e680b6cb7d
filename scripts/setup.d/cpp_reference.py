"""Prints the reference of the C++ headers as Markdown: what is public, with its comments, and without the bodies of functions."""
import re
import sys
from pathlib import Path

# Matches declarations that users do not need: those of `detail`, and those that describe types to the library.
INSIDE = re.compile(r"^(?:template <.*> )?(?:inline |constexpr )*(?:(?:struct|class) )?(?:crossdock::)?(?:detail::|type_name<|shareable<|is_shareable<)")
SCOPES = re.compile(r"\b(namespace|class|struct|enum)\b")


def reference(folder):
    order = re.findall(r"#include <crossdock/([\w.]+)>", (folder / "crossdock.hpp").read_text())
    parts = ["# C++, every call\n\nWritten from the headers: what is public in `namespace crossdock`, with its comments.\n"]
    for name in order:
        text = (folder / name).read_text()
        opening = re.match(r"(?://.*\n)+", text)
        said = "\n".join(line[2:].removeprefix(" ") for line in opening[0].splitlines()) if opening else ""
        declared = declarations(text[opening.end() :] if opening else text)
        if declared:
            parts.append(f"## {name}\n\n{plain(said)}\n\n```cpp\n{declared}\n```\n")
    return "\n".join(parts)


def plain(text):
    """Escapes `<` outside of code (in backquotes, or indented), because it begins no HTML tag there."""
    return "\n".join(line if line.startswith("    ") else "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(line.split("`")))
                     for line in text.splitlines())


def declarations(text):
    """Gives the public declarations, in one pass over the characters. `scopes` has the kind of each open brace. What is
    in a function's body, in `detail` or in a private part is left out."""
    lines, comment, pending, scopes = [], [], "", []
    position, length = 0, len(text)

    def shown():
        return all(scope["kind"] in ("namespace", "class") and scope["public"] and not scope["hidden"] for scope in scopes)

    def emit(words):
        words = re.sub(r"\s+", " ", words).strip().replace(" ;", ";")
        if shown() and words and not words.startswith(("using namespace", "using base", "friend ", "static_assert")) and not INSIDE.search(words):
            indent = "  " * sum(scope["kind"] == "class" for scope in scopes)
            if comment and lines and lines[-1] and not lines[-1].endswith("{"):
                lines.append("")
            lines.extend(indent + line for line in comment)
            lines.append(indent + words)
            comment.clear()
            return True
        comment.clear()
        return False

    while position < length:
        rest = text[position:]
        if (line := re.match(r"//[^\n]*|/\*.*?\*/|#[^\n]*(?:\\\n[^\n]*)*", rest, re.DOTALL)) and (rest[0] != "#" or not pending.strip()):
            if line[0].startswith("///<"):
                if shown() and lines:
                    lines[-1] += "  " + line[0]
            elif line[0].startswith("///") and not pending.strip():
                comment.append(line[0])
            position += line.end()
        elif literal := re.match(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', rest):
            pending += literal[0]
            position += literal.end()
        elif rest[0] == "{" and (pending.count("(") > pending.count(")") or re.search(r"= *[\w:]*$", pending)):
            group = braces(rest)  # a default
            pending += group
            position += len(group)
        elif rest[0] == "{":
            kind, public = opened(pending)
            if kind == "enum":
                pending += re.sub(r"//[^\n]*", "", braces(rest))
                position += len(braces(rest))
                continue
            head = re.sub(r" : (?:public|private) .*detail::.*", "", " ".join(pending.split())) if kind == "class" else without_initialisers(pending)
            seen = kind == "namespace" or emit(head + (" {" if kind == "class" else ";"))
            scopes.append({"kind": kind, "public": public, "hidden": not seen})
            pending = ""
            position += 1
        elif rest[0] == "}":
            scope = scopes.pop()
            comment.clear()
            if scope["kind"] == "class" and not scope["hidden"]:
                lines.append("  " * sum(s["kind"] == "class" for s in scopes) + "};")
            pending = ""
            position += 1
        elif rest[0] == ";":
            emit(pending + ";" if pending.strip() else "")
            pending = ""
            position += 1
        elif label := re.match(r"(public|private|protected):", rest):
            if scopes and scopes[-1]["kind"] == "class":
                scopes[-1]["public"] = label[1] == "public"
            comment.clear()
            pending = ""
            position += label.end()
        else:
            pending += rest[0]
            position += 1
    return "\n".join(lines).strip()


def braces(text):
    """Gives the text from an opening brace to the brace that closes it."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[: position + 1]
    return text


def opened(words):
    """Tells from the words before a brace what the brace opens, and whether its contents are public."""
    head = re.sub(r"template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>", "", words)
    found = SCOPES.search(head)
    if "(" in re.sub(r"alignas\([^)]*\)", "", head.split(" : ")[0]) or not found:
        return "function", True
    if found[1] == "namespace":
        return "namespace", "detail" not in head and head.split()[-1] != "namespace"
    if found[1] == "enum":
        return "enum", True
    return "class", found[1] == "struct"


def without_initialisers(words):
    """Gives the declaration of a constructor without its list of initialisers."""
    return re.sub(r"(?s)\s:\s+\w+[({].*$", "", words)


if __name__ == "__main__":
    print(reference(Path(sys.argv[1])))
