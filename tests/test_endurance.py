"""Slow: a hundred random kills change no bit, and a thousand epochs take no more memory or files than a hundred."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from epg.storage.loss_artefact import load_loss

TOOLS = Path(__file__).parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
from soak import is_worker, offspring  # noqa: E402

pytestmark = pytest.mark.slow

KILLS = 25  # on each of two families and two executors
EPOCHS = {"point-goal": 60, "random-reacher": 12}


def command(family: str, run: Path, *more: str) -> list[str]:
    short = ["--preset", "smoke", "--evolution.epochs", str(EPOCHS[family])]
    return [sys.executable, "-m", "epg", "evolve", family, *short, "--run", str(run), *more]


def strike(pid: int, draw: random.Random) -> None:
    """Kill, ask to end, or stop a process and then kill it."""
    blow = draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
    try:
        os.kill(pid, blow)
        if blow == signal.SIGSTOP:
            time.sleep(draw.uniform(0.0, 2.0))
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # ended by itself


def evolve_under_fire(family: str, run: Path, executor: str, kills: int, draw: random.Random) -> int:
    """Evolve to the end, resuming after every death of the driver; return how many blows fell."""
    blows = 0
    while True:
        resume = ["--resume"] if (run / "config.json").exists() else []
        arguments = command(family, run, "--executor", executor, "--processes", "2", *resume)
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and blows < kills:
            time.sleep(draw.uniform(0.0, 8.0))
            victims = [pid for pid in offspring(process.pid) if is_worker(pid)]
            if process.poll() is None:
                strike(draw.choice([process.pid, *victims]), draw)
                blows += 1
        _, said = process.communicate(timeout=600)
        assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM), said[-2000:]
        assert "Traceback" not in said, said[-2000:]
        if process.returncode == 0:
            return blows


@pytest.mark.parametrize("executor", ["local", "ray"])
@pytest.mark.parametrize("family", EPOCHS)
def test_random_kills_change_no_bit(family: str, executor: str, tmp_path: Path) -> None:
    subprocess.run(command(family, tmp_path / "reference", "--executor", "inline"), check=True, capture_output=True)
    reference = load_loss(tmp_path / "reference").manifest["sha256"]
    draw, blows, number = random.Random(f"{family} {executor}"), 0, 0
    while blows < KILLS:
        run = tmp_path / f"run-{number}"
        blows += evolve_under_fire(family, run, executor, min(5, KILLS - blows), draw)
        assert load_loss(run).manifest["sha256"] == reference, f"{run} after {blows} blows"
        number += 1


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_a_thousand_epochs_leak_nothing(executor: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, TOOLS / "soak.py", executor, "--out", tmp_path], check=True, timeout=3600)
    series = json.loads((tmp_path / "soak.json").read_text())[executor]
    assert (tmp_path / "soak.png").stat().st_size > 10_000
    assert len(series["epoch"]) == 100
    for name in ("driver MB", "worker MB", "driver files", "worker files"):
        early, late = np.median(series[name][10:20]), np.median(series[name][-10:])
        assert late <= 1.05 * early + (5 if name.endswith("MB") else 2), (name, early, late)
