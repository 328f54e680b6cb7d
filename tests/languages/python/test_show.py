"""Tests the tables that a notebook shows, and `connect(run=…)` with the name of a run that does not exist."""

import crossdock
import numpy as np
import pytest


def test_sessions_ports_series_and_versions_show_themselves_in_a_notebook(session, name):
    assert "workflow" in session._repr_html_() and "default" in session._repr_html_()
    with session.port(name, "producer") as port:
        assert "one-to-one" in port._repr_html_() and "<script" not in port._repr_html_()
    assert "closed" in port._repr_html_()
    with session.publisher(name + "/series", {"u": ("f8", (4, 5)), "n": "i4"}) as publisher:
        publisher.u[:] = np.arange(20).reshape(4, 5)
        publisher.publish(note="<b>x</b>")
        assert "4×5" in publisher._repr_html_()
        with session.observe(name + "/series", timeout=10) as observer:
            assert "live" in observer._repr_html_() and "f" in observer._repr_html_()
            version = observer.next(timeout=10)
            html = version._repr_html_()
            assert "&lt;b&gt;x&lt;/b&gt;" in html and "<b>x</b>" not in html
            assert "9.5" in html and "19" in html
            del version


def test_a_run_that_is_not_there_is_told_with_those_that_are(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSDOCK_RUNS", str(tmp_path))
    with pytest.raises(crossdock.NotFoundError, match="no run 'waves'"):
        crossdock.connect(run="waves")
    with pytest.raises(crossdock.InvalidError, match="run= says"):
        crossdock.connect("/tmp/x.sock", run="waves")
