"""Where the rows of the conformance list and the roles of their other processes are kept."""

ROWS = {}
ROLES = {}


def row(title):
    """A row: the function's name is its number."""

    def keep(function):
        ROWS[function.__name__] = (title, function)
        return function

    return keep


def role(function):
    """Another process of a row: the function is called ROW_ROLE."""
    number, name = function.__name__.split("_")
    ROLES[number, name] = function
    return function
