"""The one exception that reaches a user as a sentence instead of a traceback."""


class BadInput(Exception):  # no ValueError: tyro would catch that and print it in its own way
    """Say in one sentence what the caller should change. The command line prints it and exits with 2."""
