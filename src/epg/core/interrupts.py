"""Signals that ask this process to stop, at a moment that suits: never between a result and its being on disk.

Ctrl-C (SIGINT), a cluster (SIGTERM) and a terminal that goes away (SIGHUP) all end in KeyboardInterrupt.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Return what the shell would say of the signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = {number: signal.getsignal(number) for number in SIGNALS[1:]}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:  # its terminal is gone: what is still to be said must not fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise KeyboardInterrupt(number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold signals back until the block has ended, then let the first one through."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: held.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])
