"""Signals to stop: never lost, never inside an import or a finalizer."""

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from epg.core.interrupts import SIGNALS, exit_code, stop_on_signals, uninterrupted


def stopped(act: Callable[[], object]) -> None:
    """Do what sends a signal, and wait for it to arrive."""
    until = time.monotonic() + 10
    with contextlib.suppress(KeyboardInterrupt), stop_on_signals():
        act()
        while time.monotonic() < until:
            time.sleep(0.01)
        pytest.fail("the signal was lost")


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_ends_in_an_interrupt_with_its_exit_code(number: int) -> None:
    before = [signal.getsignal(it) for it in (*SIGNALS, signal.SIGALRM)]
    with pytest.raises(KeyboardInterrupt) as stopped, stop_on_signals():
        signal.raise_signal(number)
    assert exit_code(stopped.value) == 128 + number
    assert [signal.getsignal(it) for it in (*SIGNALS, signal.SIGALRM)] == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_amid_an_import_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised inside the import of a C library, the exception would abort the process."""
    (tmp_path / "stopped_amid.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    stopped(lambda: importlib.import_module("stopped_amid"))
    assert sys.modules.pop("stopped_amid").whole


def test_a_signal_amid_a_finalizer_is_not_lost() -> None:
    """Python prints and forgets what is raised there."""
    said = []

    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            said.append("whole")

    stopped(Finalized)
    assert said == ["whole"]


def test_a_block_that_must_end_ends_first() -> None:
    said = []

    def held() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            said.append("whole")

    stopped(held)
    assert said == ["whole"]
