"""Collects the functions that test the rows of the conformance list, and the functions that the other processes of
these tests run."""

ROWS = {}
ROLES = {}


def row(title):
    """Declares a function as the test of a row. The function's name is the row's number."""

    def keep(function):
        ROWS[function.__name__] = (title, function)
        return function

    return keep


def role(function):
    """Declares a function that another process of a test runs. The function's name is ROW_ROLE."""
    number, name = function.__name__.split("_")
    ROLES[number, name] = function
    return function
