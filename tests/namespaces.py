"""Namespaces of Linux, for tests that need a disk or a set of processes of their own."""

import shutil
import subprocess

import pytest


def unshare(*options: str) -> list[str]:
    """Return the command before a program that gives it namespaces of its own: by right, or as a user's own root."""
    for rights in ((), ("--map-root-user",)):
        command = ["unshare", *rights, *options]
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    pytest.skip(f"this user may make no namespaces (`unshare --map-root-user {' '.join(options)} true` fails)")
