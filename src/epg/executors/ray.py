"""Evaluate requests in actors of a Ray cluster (https://docs.ray.io), one single-threaded actor per CPU.

An actor gets the bytes of one request, phi and the numbers of tasks, and returns the bytes of one result, fitness.
Whatever becomes of an actor, its node or its speed, a request is only ever repeated: results do not change.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

# Ray reads these when imported: nothing is reported to anybody, no warning about GPUs that are not there, and what
# becomes of nodes is not printed among a program's results.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import ray
from ray.exceptions import RayError

from epg.core.errors import BadInput, require
from epg.executors import wire
from epg.executors.base import Cluster, Evaluate, ExecutorFailed, Work, explain
from epg.executors.local import available_cores, worker_environment
from epg.executors.pool import MAX_LOST, TICK_SECONDS, Batch, Pool, Worker
from epg.executors.worker import answer, load
from epg.storage.files import make_directory, open_to_append

FAILING_SECONDS = 5.0
"""Workers lost on one node within this time over different requests are the node's fault."""

# The variables of this machine that decide what is computed, and how; others are a node's own affair.
_SENT = ("JAX_", "XLA_", "EPG_", "TF_CPP", "OMP_", "OPENBLAS_", "MKL_", "PYTHONPATH", "PYTHONUNBUFFERED")


class ShardActor:
    """What runs on a node: builds the work with its first request, then answers one request after another."""

    def __init__(self, build: str, config: str) -> None:
        self._work = Work(build, config)
        self._evaluate: Evaluate | Exception | None = None

    def node(self) -> bytes:
        """Return the id of the node, once the actor has started."""
        return str(ray.get_runtime_context().get_node_id()).encode()

    def evaluate(self, request: bytes) -> bytes:
        """Answer one message with another."""
        if self._evaluate is None:
            self._evaluate = load(self._work)
        return answer(self._evaluate, wire.decode(request))


class _Actor(Worker):
    """An actor as the driver sees it."""

    started = False  # for as long as the cluster has no CPU free

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.node = ""
        """Where it runs, once it has started."""


class RayExecutor(Pool[_Actor]):
    """Keep one actor per CPU of the cluster, or `processes` of them; look again before every map."""

    def __init__(self, work: Work, processes: int | None, log_dir: Path | None, cluster: Cluster) -> None:
        """Remember what to do; Ray starts with the context or the first map."""
        super().__init__(work)
        self._count, self._cluster = processes, cluster
        self._log = None if log_dir is None else log_dir / "ray.log"
        self._session = _Session(cluster, processes)
        self._events: queue.SimpleQueue[tuple[_Actor, Future[bytes]]] = queue.SimpleQueue()
        self._losses: dict[str, tuple[int | None, float]] = {}
        """Which request each node last lost a worker over, and when."""
        self._stillborn = 0
        """Workers that died before they had started, since the last that had not."""
        self._home = ""
        """The node that this process is attached to."""

    @property
    def nodes(self) -> list[str]:
        """Node of each worker that has started."""
        return sorted(worker.node for worker in self._workers if worker.started)

    def _start(self) -> None:
        self._session.open()
        self._home = ray.get_runtime_context().get_node_id()
        self._stillborn = 0
        room = self._count or _room(self._cluster.cpus)
        require(room > 0 or self._tickets > 0, f"no node of this Ray has {self._cluster.cpus:g} CPUs to give.")
        room = max(1, room)  # when every node has left, one waits for the next to join
        for worker in [it for it in self._workers if not it.started][: max(0, len(self._workers) - room)]:
            self._discard(worker)  # was to go where no node is any more
        while len(self._workers) < room:
            self._spawn()

    @cached_property
    def _actor_class(self) -> Any:
        """What actors are made of; once, as Ray sends every such class to its head and to all workers."""
        variables = {name: value for name, value in worker_environment().items() if name.startswith(_SENT)}
        decorate = ray.remote(
            num_cpus=self._cluster.cpus, max_restarts=0, max_task_retries=0, runtime_env={"env_vars": variables}
        )
        return decorate(ShardActor)

    def _spawn(self) -> None:
        worker = _Actor(self._actor_class.remote(self._work.build, self._work.config))
        self._workers.append(worker)
        self._await(worker, worker.handle.node.remote())

    def _await(self, worker: _Actor, answer: Any) -> None:
        answer.future().add_done_callback(lambda future: self._events.put((worker, future)))

    def _send(self, worker: _Actor, request: bytes, batch: Batch) -> None:
        self._await(worker, worker.handle.evaluate.remote(request))

    def _collect(self, batch: Batch) -> None:
        try:
            worker, future = self._events.get(timeout=TICK_SECONDS)
        except queue.Empty:
            return
        if worker not in self._workers:
            return  # discarded meanwhile
        error = future.exception()
        if error is not None:
            self._lose(worker, explain(error), batch)
        elif not worker.started:
            worker.node, worker.started, self._stillborn = future.result().decode(), True, 0
        else:
            message = wire.decode(future.result())
            if not worker.warm:
                self._write_log(f"a worker on node {worker.node} gave its first answer")
            if message.kind == wire.FAILED:
                self._write_log(message.text["trace"])
            self._take(worker, message, batch)

    def _lose(self, worker: _Actor, reason: str, batch: Batch) -> None:
        self._discard(worker)
        self._write_log(f"lost a worker on node {worker.node or 'none yet'}: {reason}")
        living = {node["NodeID"] for node in _living_nodes()}
        if self._home not in living:
            # Ray then ends whatever this process has begun, on every node, and begins nothing more for it.
            raise ExecutorFailed(
                f"the Ray node of this process is gone: resume the run on a living one ({self._see_log(worker)})."
            )
        if not worker.started:
            self._bury_stillborn(worker, reason)
            return
        node_is_alive = worker.node in living
        guilty = node_is_alive and not self._is_node_failing(worker, batch)
        self._give_back(worker, reason, batch, guilty)
        room = self._count or _room(self._cluster.cpus)
        if not self._workers or (node_is_alive and len(self._workers) < room):
            self._spawn()

    def _is_node_failing(self, worker: _Actor, batch: Batch) -> bool:
        """Tell whether a node loses workers whatever they do: a request is not to blame for the machine it was on."""
        index = None if worker.ticket is None else batch.indices.get(worker.ticket)
        now, before = time.monotonic(), self._losses.get(worker.node)
        self._losses[worker.node] = (index, now)
        return before is not None and before[0] != index and now - before[1] < FAILING_SECONDS

    def _bury_stillborn(self, worker: _Actor, reason: str) -> None:
        self._stillborn += 1
        if not any(it.started for it in self._workers):
            if self._stillborn >= MAX_LOST:
                raise ExecutorFailed(f"no worker starts on the Ray cluster: {reason} ({self._see_log(worker)}).")
            self._spawn()

    def _discard(self, worker: _Actor) -> None:
        self._workers.remove(worker)
        with contextlib.suppress(RayError, RuntimeError, ValueError):  # dead already, or Ray is
            ray.kill(worker.handle)

    def _write_log(self, text: str) -> None:
        if self._log is not None:
            with contextlib.suppress(OSError, BadInput):  # a full disk must not end a run that could go on
                make_directory(self._log.parent, parents=False)
                with open_to_append(self._log) as file:
                    file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}\n".encode())

    def _see_log(self, worker: _Actor) -> str:
        return "no log was kept" if self._log is None else f"see {self._log}"

    def close(self) -> None:
        """Kill every actor, and leave Ray, or end it if it is our own."""
        self._closed = True
        for worker in list(self._workers):
            self._discard(worker)
        self._session.close()


class _Session:
    """The connection of this process to a Ray: found, made, or a Ray started for it."""

    def __init__(self, cluster: Cluster, processes: int | None) -> None:
        self._cluster = cluster
        workers = processes or max(1, int(available_cores() / cluster.cpus))
        self._own_cpus = math.ceil(workers * cluster.cpus)
        self._connected = False

    def open(self) -> None:
        """Connect, unless connected already: by an earlier call, or by the program that uses us."""
        if ray.is_initialized():
            require(
                self._connected or self._cluster.address is None,
                "this program is connected to a Ray already: leave out the address to use it.",
            )
            return
        on_terminate = signal.getsignal(signal.SIGTERM)
        self._connected = True  # even if interrupted amid it
        try:
            if self._cluster.address is not None:
                _connect(self._cluster.address)
            else:
                self._start_own()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_terminate)  # Ray put in its own, whose end is a stack trace of C++
        except SystemExit:  # by Ray's own handler, before it was replaced
            raise KeyboardInterrupt(signal.SIGTERM) from None

    def _start_own(self) -> None:
        # On the same terms as local processes, which are not niced either.
        os.environ.setdefault("RAY_worker_niceness", "0")
        with warnings.catch_warnings():
            # Ray forks to start its servers, and at once becomes another program: what JAX warns of cannot happen.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            _connect("local", num_cpus=self._own_cpus, include_dashboard=False)

    def close(self) -> None:
        """Disconnect if we connected, which ends a Ray that we started."""
        if self._connected:
            self._connected = False
            ray.shutdown()


def _connect(address: str, **options: Any) -> None:
    """Connect to a Ray, or start a `local` one, quietly."""
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RayError, OSError, ValueError, RuntimeError) as error:
        raise BadInput(_why_not(address, error)) from error


def _why_not(address: str, error: Exception) -> str:
    if address == "local":
        return f"a Ray of this run's own cannot be started: {explain(error)}."
    if not isinstance(error, ConnectionError):
        return f"no Ray answers at {address}: {explain(error)}."
    if address == "auto":
        return "no Ray runs on this machine: start one with `ray start`, or leave out the address."
    # All that Ray says of either is that it failed to connect.
    return (
        f"no Ray answers at {address}, or this machine is not its node: `ray start --address={address}` makes it one."
    )


def _room(cpus: float) -> int:
    """Return how many workers of so many CPUs the living nodes have room for."""
    return sum(math.floor(node["Resources"].get("CPU", 0) / cpus) for node in _living_nodes())


def _living_nodes() -> list[dict[str, Any]]:
    try:
        return [node for node in ray.nodes() if node["Alive"]]
    except (RayError, OSError, RuntimeError) as error:
        raise ExecutorFailed(f"the Ray cluster no longer answers: {explain(error)}.") from error


def check_address(address: str, patience: float = 30.0) -> None:
    """Refuse an address where no Ray answers; Ray itself would try for more than a minute, and end the process."""
    host, _, port = address.rpartition(":")
    if address != "auto":
        require(
            bool(host) and "/" not in host and port.isdecimal() and int(port) < 2**16,
            f"{address!r} is not the address of a Ray cluster: give HOST:PORT of its head, or auto.",
        )
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise BadInput(f"no Ray answers at {address}: {error.strerror or error}.") from error
    command = [sys.executable, "-P", "-m", __name__, address]
    # How long Ray looks for a node of the cluster on this machine; its default is longer than `patience`.
    environment = worker_environment() | {"RAY_gcs_server_request_timeout_seconds": "10"}
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment)
    except subprocess.TimeoutExpired:
        raise BadInput(f"no Ray answers at {address}: what listens there is something else.") from None
    require(
        tried.returncode == 0 or "InvalidAuthToken" not in tried.stderr,
        f"the Ray at {address} wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as it was started with.",
    )
    require(tried.returncode == 0, tried.stdout.strip() or f"no Ray answers at {address}.")


if __name__ == "__main__":  # what check_address tries, in a process of its own that may hang or be ended by Ray
    try:
        _connect(sys.argv[1])
    except BadInput as sentence:
        print(sentence)
        sys.exit(2)
