"""`epg watch RUN`: a live page of a run, for this machine only. It reads what the run saves, without JAX."""

from __future__ import annotations

import json
import shlex
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from epg.core.errors import BadInput, require
from epg.core.plain import plain
from epg.storage.files import read_bytes
from epg.storage.metrics import read_metrics
from epg.storage.run import Run
from epg.viz.run_reader import read_config, read_cosines, read_phi_fitness

LOOPBACK = "127.0.0.1"
PAGE = Path(__file__).parent / "templates" / "watch.html"
MAX_FILM_BYTES = 64 * 2**20
MOST_ROWS = 1000  # sent to the page; of longer runs every n-th
FILM_HINT = "`epg render {}` films a policy that this loss trains (MuJoCo families only); the strip appears here."
SHOWN = ("fitness_mean", "fitness_best", "fitness_worst", "signal", "alpha", "phi_norm")


def snapshot(run: Run) -> dict[str, Any]:
    """Return what the page shows of a run as it is now."""
    records = read_metrics(run.metrics) if run.metrics.exists() else []
    stride = -(-len(records) // MOST_ROWS) or 1
    kept = records[::-1][::stride][::-1]  # the last one always
    rows = [{name: _number(it.get(name)) for name in ("epoch", *SHOWN)} | {"rate": _rate(it)} for it in kept]
    evolution = run.config.get("settings", {}).get("evolution", {})
    film = newest_film(run.path)
    return {
        "run": str(run.path),
        "family": str(run.config.get("family")),
        "epochs": evolution.get("epochs"),
        "env_steps": sum(it["env_steps"] for it in records if _number(it.get("env_steps")) is not None),
        "age": time.time() - run.metrics.stat().st_mtime if records else 0.0,
        "rows": rows,
        "phi": read_phi_fitness(run.path)[-MOST_ROWS:].tolist() if records else [],
        "blocks": read_cosines(run.path) if records else {},
        "film_hint": FILM_HINT.format(shlex.quote(str(run.path))) if (run.path / "loss.json").is_file() else "",
        "film": None if film is None else f"{film.parent.name}-{film.stat().st_mtime_ns}",
    }


def newest_film(run: Path) -> Path | None:
    """Return the newest film strip below a run."""
    found = [*run.glob("*/strip.png"), *run.glob("first/*/strip.png")]
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def _number(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _rate(record: dict[str, Any]) -> float | None:
    steps, seconds = _number(record.get("env_steps")), _number(record.get("seconds"))
    return None if steps is None or not seconds else steps / seconds


class WatchServer(ThreadingHTTPServer):
    """Serves the page of one run on the loopback interface; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, run: str | Path, port: int = 0) -> None:
        self.run = Run.open(run)
        require(self.run.config.get("kind") == "evolve", f"{run} is not an evolution: only one can be watched.")
        require(0 <= port < 65536, f"a port lies between 0 and 65535, not at {port}.")
        read_config(self.run.path)  # refuses a damaged one now, instead of with every answer
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise BadInput(f"port {port} cannot be used: {error.strerror or error}.") from None

    @property
    def url(self) -> str:
        """Return where the page is."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return status, type and content of one of the three things there are."""
        try:
            if path == "/":
                return 200, "text/html; charset=utf-8", PAGE.read_bytes()
            if path == "/data.json":
                return 200, "application/json", json.dumps(plain(snapshot(self.run)), allow_nan=False).encode()
            film = newest_film(self.run.path) if path == "/film.png" else None
            if film is not None:
                return 200, "image/png", read_bytes(film, MAX_FILM_BYTES)
        except (BadInput, OSError) as error:
            return 500, "text/plain; charset=utf-8", str(error).encode()
        return 404, "text/plain", b"there is nothing here"


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        # A page of another site could make a browser ask us under its own name (DNS rebinding): refuse any but ours.
        own = f"{LOOPBACK}:{self.server.server_address[1]}", f"localhost:{self.server.server_address[1]}"
        known = self.headers.get("Host") in own
        status, kind, body = self.server.answer(self.path.split("?")[0]) if known else (403, "text/plain", b"not here")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: a line every two seconds helps nobody."""
