"""Rust sources for the rules: without comments, strings or tests. Results are kept, because the self-test reads the same
files again for each rule that it breaks."""
import functools
import re

LITERAL = r"""//[^\n]*|"(\\.|[^"\\])*"|'(\\.|[^'\\])'"""
# A module of tests. Its closing brace is the first one that begins a line.
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*mod \w+ \{.*?(?:\n\}|\Z)", re.DOTALL)
# The names of files within `src` that are tests: those that fuzz targets and loom models call, and the frozen layouts.
TEST_FILES = ("fuzz", "loom_model", "tests", "frozen", "golden")


@functools.lru_cache(maxsize=None)
def blank(text):
    """Blanks the comments and strings of a text. This is done in one pass, because comments may contain quotes, and
    strings may contain slashes."""
    return re.sub(LITERAL, lambda found: " " + "\n" * found[0].count("\n"), text)


@functools.lru_cache(maxsize=None)
def uncommented(text):
    """Blanks the comments of a text."""
    return re.sub(LITERAL, lambda found: " " * len(found[0]) if found[0].startswith("//") else found[0], text)


def without_tests(text):
    return TESTS.sub(lambda found: "\n" * found[0].count("\n"), text)


def is_test(file):
    """Tells whether a file is a test. The file is named from the top of the sources."""
    return "tests" in file.parts or file.stem in TEST_FILES or file.parent.name in TEST_FILES


def rust(folder, top):
    """Gives the files of a package that are no tests."""
    for file in sorted((folder / "src" if (folder / "src").is_dir() else folder).rglob("*.rs")):
        if not is_test(file.relative_to(top)):
            yield file


def line(text, at):
    return text.count("\n", 0, at) + 1


def of_layout(top, module):
    """Gives the files of a module of `layout`. The module is one file, or a folder with children."""
    folder = top / "crates/layout/src"
    return sorted((folder / module).glob("*.rs")) or [folder / f"{module}.rs"]
