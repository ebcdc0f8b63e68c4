"""One worker process as its parent sees it: started, given requests, ended."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from epg.core.runtime import single_threaded_environment
from epg.executors import wire
from epg.executors.base import Arrays, Work


class WorkerProcess:
    """A worker and this side's end of its socket."""

    def __init__(self, work: Work, log: Path | None) -> None:
        """Start the worker and tell it what to build; OSError if the system has no room for it."""
        self.ticket: int | None = None
        """Ticket of the request under way; None when free."""
        parent_end, child_end = socket.socketpair()
        # The child's end must not stay open here, or the death of the worker would go unnoticed.
        with parent_end, child_end:
            self.process = _launch(child_end.fileno(), log)
            self.connection = Connection(parent_end.detach())
        with contextlib.suppress(OSError):  # dead already: the first request will find out
            self.connection.send_bytes(wire.encode(wire.BUILD, {}, build=work.build, config=work.config))

    def send(self, ticket: int, request: Arrays) -> bool:
        """Hand over a request; return False if the worker is dead."""
        data = wire.encode(wire.REQUEST, request, ticket=str(ticket))
        self.ticket = ticket
        try:
            self.connection.send_bytes(data)
        except OSError:
            return False
        return True

    def receive(self) -> wire.Message | None:
        """Wait for the answer and be free; return None if the worker is dead."""
        try:
            message = wire.receive(self.connection)
        except (EOFError, OSError):
            return None
        self.ticket = None
        return message

    def close(self, patience: float = 0.0) -> None:
        """Wait `patience` seconds for the process to end, then end it."""
        self.connection.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _launch(descriptor: int, log: Path | None) -> subprocess.Popen[bytes]:
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with open(os.devnull if log is None else log, "ab") as output:
        return subprocess.Popen(
            # -P: PYTHONPATH is the whole path; the current directory must not come before it.
            [sys.executable, "-P", "-m", "epg.executors.worker", str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=worker_environment(),
        )


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker: this one's, with one thread, its module path, and output at once."""
    environment = single_threaded_environment(os.environ)
    # The parent's own path, so that a user's module is found there as it was here.
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # What a worker printed, and where it was when it crashed, is in its log even if it never came to flush.
    environment.update(PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1")
    return environment
