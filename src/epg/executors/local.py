"""Evaluate requests in worker processes on this machine, one single-threaded process per core."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path

from epg.core.errors import require
from epg.core.runtime import single_threaded_environment
from epg.executors import wire
from epg.executors.base import ExecutorFailed, Work
from epg.executors.pool import TICK_SECONDS, Batch, Pool, Worker
from epg.storage.files import make_directory, open_to_append

# Linux is asked (PR_SET_PDEATHSIG = 1) to end a worker with the thread that started it, even a stopped one; at once,
# before anything that takes time.
WORKER = f"""
import ctypes, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
prctl and prctl(1, {signal.SIGKILL:d})
sys.path[:] = sys.argv[2:]
from epg.executors.worker import main
main(int(sys.argv[1]))
"""
PATIENCE_SECONDS = 2.0
MESSAGE_SECONDS = 60
"""A worker that takes longer to accept a message, or to end one that it began, counts as dead."""


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerProcess(Worker):
    """A worker process and this side's end of its socket."""

    def __init__(self, work: Work, log: Path | None) -> None:
        """Start the worker and tell it what to build; OSError if the system has no room for it."""
        self.log = log
        ours, its = socket.socketpair()
        # The child's end must not stay open here, or the death of the worker would go unnoticed.
        with ours, its:
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a stopped worker reads nothing
                ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", MESSAGE_SECONDS, 0))
            self.process = _launch(its.fileno(), log)
            self.connection = Connection(ours.detach())
        self.send(wire.encode(wire.BUILD, {}, build=work.build, config=work.config))  # if dead, the next one finds out

    def send(self, message: bytes) -> bool:
        """Send a message; return False if the worker is dead."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(message)
            return True
        return False

    def receive(self) -> wire.Message | None:
        """Wait for the answer; return None if the worker is dead."""
        with contextlib.suppress(EOFError, OSError):
            return wire.receive(self.connection)
        return None

    def waits(self) -> dict[int, float]:
        """Return for how many seconds each of its threads has waited for a core; empty where Linux does not tell."""
        found = {}
        for thread in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
                found[int(thread.parent.name)] = int(thread.read_text().split()[1]) / 1e9
        return found

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
        make_directory(log.parent, parents=False)  # a run that was deleted stays so
    with open_to_append(Path(os.devnull) if log is None else log) as output:
        return subprocess.Popen(
            # -P: PYTHONPATH is the whole path; the current directory must not come before it.
            [sys.executable, "-P", "-c", WORKER, str(descriptor), *module_path()],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=worker_environment(),
        )


def module_path() -> list[str]:
    """Return where modules are found here; PYTHONPATH cannot hold an entry with a colon."""
    return [entry or os.getcwd() for entry in sys.path]


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker: this one's, with one thread, its module path, and output at once."""
    environment = single_threaded_environment(os.environ)
    # The parent's own path, so that a user's module is found there as it was here.
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in module_path() if os.pathsep not in entry)
    # What a worker printed, and where it was when it crashed, is in its log even if it never came to flush.
    environment.update(PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1")
    return environment


class LocalExecutor(Pool[WorkerProcess]):
    """Keep `processes` workers."""

    def __init__(self, work: Work, processes: int | None = None, log_dir: Path | None = None) -> None:
        """Remember what to do; the workers start with the context or the first map."""
        super().__init__(work)
        self._count = available_cores() if processes is None else processes
        require(self._count > 0, f"processes must be above zero, not {processes}.")
        self._log_dir = log_dir

    @property
    def pids(self) -> list[int]:
        """Process id of each worker."""
        return [worker.process.pid for worker in self._workers]

    def _start(self) -> None:
        while len(self._workers) < self._count:
            self._workers.append(self._spawn(len(self._workers)))

    def _spawn(self, slot: int) -> WorkerProcess:
        try:
            return WorkerProcess(self._work, self._log_dir and self._log_dir / f"worker-{slot}.log")
        except OSError as error:
            raise ExecutorFailed(f"worker {slot} cannot be started: {error.strerror or error}.") from error

    def _send(self, worker: WorkerProcess, request: bytes, batch: Batch) -> None:
        if not worker.send(request):
            self._lose(worker, "it died", batch)

    def _collect(self, batch: Batch) -> None:
        busy = {worker.connection: worker for worker in self._workers if worker.ticket is not None}
        for connection in wait(list(busy), TICK_SECONDS) if busy else ():  # none: the only worker was just replaced
            worker = busy[connection]  # type: ignore[index]
            message = worker.receive()
            if message is None:
                self._lose(worker, "it died", batch)
            else:
                self._take(worker, message, batch)

    def _lose(self, worker: WorkerProcess, reason: str, batch: Batch) -> None:
        worker.close()
        slot = self._workers.index(worker)
        self._workers[slot] = self._spawn(slot)
        self._give_back(worker, reason, batch)

    def _see_log(self, worker: WorkerProcess) -> str:
        return "no log was kept" if worker.log is None else f"see {worker.log}"

    def close(self) -> None:
        """Stop every worker: asked first, killed after two seconds."""
        self._closed = True
        for worker in self._workers:
            worker.process.terminate()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for worker in self._workers:
            worker.close(max(0.0, deadline - time.monotonic()))
        self._workers.clear()
