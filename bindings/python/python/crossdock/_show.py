"""Shows sessions, ports, series and versions in a notebook, as small tables in the colours of the notebook's page."""

from html import escape

# The table shows the smallest and the largest value of an array only if it has at most this many elements.
READ_MAX = 1_000_000


def _table(title, rows, head=None):
    cells = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    names = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head or [])
    return f"<table><caption><b>{escape(title)}</b></caption>{'<tr>' + names + '</tr>' if names else ''}{cells}</table>"


def session(self):
    if self.closed:
        return _table("crossdock session: closed", [])
    names = ("workflow", "task", "rank", "run", "member")
    return _table("crossdock session", [(name, getattr(self, name)) for name in names])


def port(self):
    rows = [("end", self.end), ("pattern", self.pattern), ("capacity", self.capacity)]
    if self.closed:
        return _table(f"port {self.name}: closed", rows)
    return _table(f"port {self.name}", rows + [(k.replace("_", " "), v) for k, v in self.statistics.items()])


def observer(self):
    try:
        state = self.state
    except Exception:  # noqa: BLE001: a closed observer still has a name to show
        return _table(f"series {self.name}: closed", [])
    rows = [(name, v.dtype, "×".join(map(str, v.shape))) for name, v in self.variables.items()]
    return _table(f"series {self.name}, observed: {state}", rows, ("variable", "type", "shape"))


def publisher(self):
    rows = [(name, self[name].dtype, "×".join(map(str, self[name].shape))) for name in self.variables]
    return _table(f"series {self.name}, published: version {self.sequence}", rows, ("variable", "type", "shape"))


def version(self):
    rows = [(name, value, "", "", "") for name, value in self.attributes.items()]
    for name in self.variables:
        array = self[name]
        figures = ("", "", "")
        if array.dtype.kind in "iuf" and 0 < array.size <= READ_MAX:
            figures = tuple(f"{x:.6g}" for x in (array.min(), array.mean(), array.max()))
        rows.append((name, f"{array.dtype} {'×'.join(map(str, array.shape))}", *figures))
    return _table(f"version {self.sequence} of {self.name}", rows, ("name", "value or type", "least", "mean", "greatest"))


_TABLES = {"Session": session, "Port": port, "Observer": observer, "Publisher": publisher, "Version": version}


def table(shown):
    """Gives the table of a session, port, observer, publisher or version as HTML."""
    return next(_TABLES[cls.__name__] for cls in type(shown).__mro__ if cls.__name__ in _TABLES)(shown)
