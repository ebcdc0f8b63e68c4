"""The one exception that reaches a user as a sentence instead of a traceback."""

MAX_SENTENCE = 1500


class BadInput(Exception):  # not a ValueError: tyro would catch that and print it in its own format
    """Say in one sentence what the caller should change. The command line prints it and exits with 2."""

    def __init__(self, sentence: str) -> None:
        # The sentence may quote a damaged file: line breaks, terminal escape codes, megabytes.
        text = "".join(letter if letter.isprintable() else " " for letter in sentence[: 2 * MAX_SENTENCE])
        if len(sentence) > MAX_SENTENCE:
            text = f"{text[:MAX_SENTENCE]} …."
        super().__init__(text)


class NewerFormat(BadInput):
    """Say that a file is intact but was written by a newer release; it must not be skipped or overwritten."""


def require(condition: bool, sentence: str) -> None:
    """Raise BadInput with `sentence` unless `condition` holds."""
    if not condition:
        raise BadInput(sentence)
