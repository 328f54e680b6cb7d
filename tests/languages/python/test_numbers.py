"""Numbers that do not fit are errors with a hint, and do not become other numbers."""

import numpy as np
import pytest

import crossdock


def test_a_whole_number_beyond_64_bits_does_not_become_a_float(session, name):
    with session.publisher(name, {"u": ("f8", 4)}) as publisher:
        for value in (2**64 + 1, -(2**63) - 1):
            with pytest.raises(crossdock.InvalidError, match=str(value)):
                publisher.publish(x=value)
        publisher.publish(whole=2**64 - 1, small=np.int16(-3), real=np.float32(0.5), other=2.0**64)
        attributes = session.observe(name).latest().attributes
        assert attributes == {"whole": 2**64 - 1, "small": -3, "real": 0.5, "other": 2.0**64}
        assert [type(value) for value in attributes.values()] == [int, int, float, float]
    session.remove_series(name)


def test_a_count_that_does_not_fit_gets_a_hint(session, name):
    for more in ({"keep": -1}, {"keep": 2**32}, {"max_observers": -1}, {"chunk": 2**32}):
        with pytest.raises(crossdock.InvalidError, match="from 0 to"):
            session.publisher(name, {"u": ("f8", 4)}, **more)


def test_assigning_to_a_variable_says_how_to_write_its_elements(session, name):
    with session.publisher(name, {"u": ("f8", 4)}) as publisher:
        with pytest.raises(AttributeError, match=r"publisher\.u\[\.\.\.\]"):
            publisher.u = np.ones(4)
        with pytest.raises(AttributeError, match="no variable 'v'"):
            publisher.v = np.ones(4)
        publisher.u[...] = 1
        publisher.publish()
        assert session.observe(name).latest()["u"].sum() == 4
    session.remove_series(name)
