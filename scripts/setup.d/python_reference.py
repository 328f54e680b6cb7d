"""Prints the reference of the Python module as Markdown: every public name, its signature and its docstring."""
import inspect

import crossdock


def signature(thing, name):
    try:
        return f"{name}{inspect.signature(thing)}"
    except (TypeError, ValueError):
        return name


def text(thing):
    """Gives the docstring of a thing. Escapes `<` outside of code, because it begins no HTML tag there."""
    parts = inspect.cleandoc(thing.__doc__ or "").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


print("# Python, every call\n\nWritten from the module's own docstrings.\n")
things = {name: getattr(crossdock, name) for name in crossdock.__all__}
for name, thing in things.items():
    if callable(thing) and not inspect.isclass(thing):
        print(f"## crossdock.{name}\n\n```text\n{signature(thing, name)}\n```\n\n{text(thing)}\n")
for name, thing in things.items():
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        print(f"## {name}\n\n{text(thing)}\n")
        for key, member in sorted(vars(thing).items()):
            if key.startswith("_") or not getattr(member, "__doc__", None):
                continue
            shown = signature(member, key) if callable(member) else key
            print(f"**`{shown}`**\n\n{text(member)}\n")
print("## Exceptions\n")
for name, thing in things.items():
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        print(f"- **`{name}`**: {' '.join(text(thing).split())}")
