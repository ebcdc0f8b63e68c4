"""Small NumPy workloads for the executor tests: each is `module:function` work that any process can build."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from epg.core.errors import BadInput

Arrays = dict[str, np.ndarray]


def double(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Return `factor` times x, and the process that did it."""
    return lambda request: {"y": config["factor"] * request["x"], "pid": np.asarray(os.getpid())}


def slow(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Sleep as long as the request says, once a file says that it has begun."""

    def evaluate(request: Arrays) -> Arrays:
        if "folder" in config:
            Path(config["folder"], f"{os.getpid()}").touch()
        time.sleep(float(request["seconds"]))
        return {"y": request["seconds"] * 2}

    return evaluate


def burn(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Keep a core busy for as many seconds of its time as the request says."""

    def evaluate(request: Arrays) -> Arrays:
        until = time.process_time() + float(request["seconds"])
        while time.process_time() < until:
            pass
        return {}

    return evaluate


def die(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Kill the own process when x is 3, `times` times over all workers, counted by files."""

    def evaluate(request: Arrays) -> Arrays:
        flags = len(list(Path(config["folder"]).iterdir()))
        if request["x"] == 3 and flags < config["times"]:
            Path(config["folder"], str(flags)).touch()
            print("about to die", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": request["x"] * 2}

    return evaluate


def die_building(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Kill the own process before there is anything to evaluate with."""
    os._exit(7)


def fail(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Raise the error that the request asks for."""

    def evaluate(request: Arrays) -> Arrays:
        if request["x"] == 1:
            raise ZeroDivisionError("one is\nnot allowed")
        if request["x"] == 2:
            raise BadInput("two is a bad input.")
        return {"y": request["x"], "pid": np.asarray(os.getpid())}

    return evaluate


def fail_building(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Refuse to be built."""
    raise BadInput("this cannot be built.")


def patient(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Let request 0 end only after `others` other requests have."""

    def evaluate(request: Arrays) -> Arrays:
        folder, deadline = Path(config["folder"]), time.monotonic() + 20
        if request["x"] != 0:
            (folder / str(request["x"])).touch()
        while request["x"] == 0 and len(list(folder.iterdir())) < config["others"]:
            assert time.monotonic() < deadline, "the other requests were not done meanwhile"
            time.sleep(0.01)
        return {"y": request["x"] * 2}

    return evaluate


def deaf(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Sleep for a minute holding Python's lock, as a long call into C may: no thread of the worker runs."""

    def evaluate(request: Arrays) -> Arrays:
        Path(config["folder"], "begun").touch()
        ctypes.PyDLL(None).sleep(60)
        return {}

    return evaluate


def environment(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Return whether this process is set to one thread and leads its own session."""

    def evaluate(request: Arrays) -> Arrays:
        single = "intra_op_parallelism_threads=1" in os.environ["XLA_FLAGS"]
        return {
            "single": np.asarray(single and os.environ["OMP_NUM_THREADS"] == "1"),
            "session": np.asarray(os.getsid(0)),
            "pid": np.asarray(os.getpid()),
        }

    return evaluate


def stall(config: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Sleep for a minute over the first request 0 of all workers, marked by a file; answer all others at once."""

    def evaluate(request: Arrays) -> Arrays:
        flag = Path(config["folder"], "stalled")
        if request["x"] == 0 and not flag.exists():
            flag.touch()
            time.sleep(60)
        return {"y": request["x"] * 2}

    return evaluate


class Stillborn:
    """An actor that never starts."""

    def __init__(self, build: str, config: str) -> None:
        raise OSError("no room here")

    def node(self) -> bytes:
        return b""
