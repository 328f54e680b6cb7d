"""Each row of ../conformance.md holds in Python."""

import re
from pathlib import Path

import conformance
import pytest
from rows import ROWS


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    conformance.run(row)


def test_every_row_of_the_list_is_here():
    text = (Path(__file__).parent.parent / "conformance.md").read_text()
    assert set(re.findall(r"^\| ([A-Z]+\d+) \|", text, re.MULTILINE)) == set(ROWS)
