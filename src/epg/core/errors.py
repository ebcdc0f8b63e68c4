"""The one exception that reaches a user as a sentence instead of a traceback."""

import difflib
from collections.abc import Iterable
from numbers import Integral

MAX_SENTENCE = 1500


def printable(text: str) -> str:
    """Return one line of text from outside without line breaks, terminal escape codes and lone surrogates."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class BadInput(Exception):  # not a ValueError: tyro would catch that and print it in its own format
    """Say in one sentence what the caller should change. The command line prints it and exits with 2."""

    def __init__(self, sentence: str) -> None:
        text = printable(sentence[: 2 * MAX_SENTENCE])  # it may quote a damaged file of megabytes
        super().__init__(f"{text[:MAX_SENTENCE]} …." if len(sentence) > MAX_SENTENCE else text)


class NewerFormat(BadInput):
    """Say that a file is intact but was written by a newer release; it must not be skipped or overwritten."""


def require(condition: bool, sentence: str) -> None:
    """Raise BadInput with `sentence` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)


def is_whole(value: object) -> bool:
    """Tell whether this is a whole number: Python's or NumPy's, not a truth value and not 2.0."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_count(name: str, value: int) -> None:
    """Refuse a count that is not a whole number above zero; from Python it may be anything."""
    require(is_whole(value), f"{name} must be a whole number, not {value!r}.")
    require(value > 0, f"{name} must be above zero, not {value}.")


def require_seed(seed: int) -> None:
    """Refuse a seed that is no whole number of 32 bits."""
    require(is_whole(seed), f"seed must be a whole number, not {seed!r}.")
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), not {seed}.")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return " (did you mean X?)" if a choice is close to the name, else nothing."""
    known = list(choices)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    close = close or [it for it in known if len(name) > 3 and (it.startswith(name) or name.startswith(it))][:1]
    return f" (did you mean {close[0]}?)" if close else ""
