"""Collects the rows of the conformance list, and the roles of their other processes."""

ROWS = {}
ROLES = {}


def row(title):
    """Declares a function as a row. The function's name is the row's number."""

    def keep(function):
        ROWS[function.__name__] = (title, function)
        return function

    return keep


def role(function):
    """Declares a function as the program of another process of a row. The function's name is ROW_ROLE."""
    number, name = function.__name__.split("_")
    ROLES[number, name] = function
    return function
