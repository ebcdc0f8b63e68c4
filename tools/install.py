"""Install into the environment of the Python that runs this: with uv, several times as fast as pip, else with pip.

    .venv/bin/python tools/install.py -e '.[dev]'

Versions are those of constraints.txt. uv does not read pip's settings, so they are handed on to it. Where uv cannot be
installed, pip has settings that are unknown here, or uv fails, pip installs and its messages are the ones to read.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

CONSTRAINTS = ["-c", str(Path(__file__).parents[1] / "constraints.txt")]
# Python compiles what it imports, once; pip would compile everything, which is half of the time of an installation.
PIP = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile", *CONSTRAINTS]
UV = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable, *CONSTRAINTS]
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
HARMLESS = {"cache-dir", "default-timeout", "timeout", "disable-pip-version-check", "no-cache-dir", "retries", "quiet",
            "progress-bar", "require-virtualenv", "root-user-action", "no-input", "cert"}  # fmt: skip


def for_uv(listing: Iterable[str]) -> tuple[list[str], dict[str, str]] | None:
    """Turn what `pip config list` prints into options and variables of uv; None if uv has no such setting."""
    settings: dict[str, str] = {}
    for line in sorted(
        listing, key=lambda it: (it.startswith(":env:"), it.startswith("install."))
    ):  # the last one wins
        name, _, value = line.partition("=")
        if name.startswith(("global.", "install.", ":env:.")):
            settings[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    if not settings.keys() <= OPTIONS.keys() | HARMLESS:
        return None
    # As pip does: the best version of all indexes, not the first index that has the package.
    options = ["--index-strategy", "unsafe-best-match"]
    for name, option in OPTIONS.items():
        for value in settings.get(name, "").split():
            options += [option, value]
    return options, {"SSL_CERT_FILE": settings["cert"]} if "cert" in settings else {}


def main(what: list[str]) -> int:
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    settings = for_uv(listing.splitlines())
    if settings is not None and subprocess.run([*PIP, "uv"], capture_output=True).returncode == 0:
        options, variables = settings
        done = subprocess.run([*UV, *options, *what], env=os.environ | variables, capture_output=True, text=True)
        if done.returncode == 0:
            return 0
        print("install: uv failed; pip installs instead, which takes a minute longer.", file=sys.stderr)
    return subprocess.run([*PIP, *what]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
