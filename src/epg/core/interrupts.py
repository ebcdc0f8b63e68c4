"""Signals that ask this process to stop, at a moment that suits: never between a result and its being on disk.

Ctrl-C (SIGINT), a cluster (SIGTERM) and a terminal that goes away (SIGHUP) all end in KeyboardInterrupt.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
RETRY = 0.05  # seconds until a signal that came at a bad moment is delivered again


def exit_code(stopped: KeyboardInterrupt) -> int:
    """Return what the shell would say of the signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let all three end in KeyboardInterrupt, unless they are ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    caller = sys._getframe(2)  # of the with statement: what called it does not matter to `_is_unsafe`
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN and number != signal.SIGALRM:
            signal.signal(number, partial(_stop, caller))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(caller: FrameType, number: int, frame: FrameType | None) -> None:
    if _is_unsafe(frame, caller):
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, RETRY)
        return
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:  # its terminal is gone: what is still to be said must not fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    raise KeyboardInterrupt(number)


def _is_unsafe(frame: FrameType | None, caller: FrameType) -> bool:
    """Whether an exception raised here would be lost (a finalizer) or abort the process (the import of a C library)."""
    while frame is not None and frame is not caller:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name in ("__del__", "_xla_gc_callback"):
            return True
        frame = frame.f_back
    return False


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
