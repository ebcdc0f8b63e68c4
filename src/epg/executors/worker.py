"""A worker process, started by the local executor.

A Ctrl-C in the terminal does not reach its own session; it ends with the process that started it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from epg.core.errors import BadInput
from epg.executors import wire
from epg.executors.base import Evaluate, Work, explain

MAX_TRACE = 20_000


def main(descriptor: int) -> None:
    """Serve requests until the parent has gone."""
    connection = Connection(descriptor)
    threading.Thread(target=_exit_with_parent, args=(descriptor,), daemon=True).start()
    try:
        build = wire.receive(connection)
        evaluate = load(Work(build.text["build"], build.text["config"]))
        while True:
            connection.send_bytes(answer(evaluate, wire.receive(connection)))
    except (EOFError, OSError):
        return


def _exit_with_parent(descriptor: int) -> None:
    # A shard can take minutes; nobody wants its result any more once the parent is dead.
    poll = select.poll()
    poll.register(descriptor, select.POLLHUP | select.POLLERR)
    poll.poll()
    os._exit(1)


def load(work: Work) -> Evaluate | Exception:
    """Build the work, or keep why it cannot be built: that is the answer to every request."""
    try:
        return work.load()
    except Exception as error:
        return error


def answer(evaluate: Evaluate | Exception, request: wire.Message) -> bytes:
    """Evaluate a request; return its result, or what went wrong with it, under its ticket."""
    ticket = request.text["ticket"]
    try:
        if isinstance(evaluate, Exception):
            raise evaluate
        return wire.encode(wire.RESULT, evaluate(request.arrays), ticket=ticket)
    except BadInput as error:
        return wire.encode(wire.BAD_INPUT, {}, ticket=ticket, error=str(error))
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        trace = traceback.format_exc()[-MAX_TRACE:]
        return wire.encode(wire.FAILED, {}, ticket=ticket, error=explain(error), trace=trace)
