"""The one exception that reaches a user as a sentence instead of a traceback."""

MAX_SENTENCE = 1500


class BadInput(Exception):  # no ValueError: tyro would catch that and print it in its own way
    """Say in one sentence what the caller should change. The command line prints it and exits with 2."""

    def __init__(self, sentence: str) -> None:
        # A damaged file can have anything quoted: lines, commands to a terminal, megabytes.
        text = "".join(letter if letter.isprintable() else " " for letter in sentence[: 2 * MAX_SENTENCE])
        if len(sentence) > MAX_SENTENCE:
            text = f"{text[:MAX_SENTENCE]} …."
        super().__init__(text)


class NewerFormat(BadInput):
    """Say that a file is whole, but only a newer release can read it: nothing to skip or to write over."""
