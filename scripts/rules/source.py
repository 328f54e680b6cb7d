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
    """The text with comments and strings blanked. One pass, because comments may hold quotes and strings slashes."""
    return re.sub(LITERAL, lambda found: " " + "\n" * found[0].count("\n"), text)


@functools.lru_cache(maxsize=None)
def uncommented(text):
    """The text with comments blanked."""
    return re.sub(LITERAL, lambda found: " " * len(found[0]) if found[0].startswith("//") else found[0], text)


def without_tests(text):
    return TESTS.sub(lambda found: "\n" * found[0].count("\n"), text)


def is_test(file):
    """Tells whether a file is a test. The file is named from the top of the sources."""
    return "tests" in file.parts or file.stem in TEST_FILES or file.parent.name in TEST_FILES


def rust(folder, top):
    """The files of a package that are no tests."""
    for file in sorted((folder / "src" if (folder / "src").is_dir() else folder).rglob("*.rs")):
        if not is_test(file.relative_to(top)):
            yield file


def line(text, at):
    return text.count("\n", 0, at) + 1


def of_layout(top, module):
    """The files of a module of `layout`, which has children or is one file."""
    folder = top / "crates/layout/src"
    return sorted((folder / module).glob("*.rs")) or [folder / f"{module}.rs"]
