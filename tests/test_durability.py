"""Runs that meet a full disk, lost permissions, another process or kill -9: one sentence, nothing good lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from namespaces import unshare
from test_executors import wait_until

from epg.api.common import write_results
from epg.cli import main
from epg.core.errors import BadInput
from epg.evaluation.protocol import MethodResult
from epg.evolution.loop import EpochMetrics, EvolutionResult, evolve_run
from epg.evolution.runs import create_run, open_run
from epg.recipes import preset
from epg.storage.metrics import MetricsWriter, read_metrics
from epg.storage.run import RUN_FORMAT, Run

FAMILY = "point-goal"
COMMAND = [sys.executable, "-m", "epg", "evolve", FAMILY, "--preset", "smoke"]
NOBODY = 65534


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    """An evolution that nothing happened to."""
    settings = preset(FAMILY, "smoke")
    return evolve_run(create_run(settings, tmp_path_factory.mktemp("reference") / "run"), settings, "inline")


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Lose the privileges of root, who may write anywhere; other users have none to lose."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def one_sentence(said: str) -> str:
    """Return what a failed command said, once it is known to be one sentence."""
    lines = [line for line in said.splitlines() if line.startswith("epg: ")]
    assert "Traceback" not in said, said
    assert "Exception" not in said, said
    assert len(lines) == 1, said
    return lines[0]


def goes_on_from(run: Path, epochs: int) -> int:
    """Return the newest whole checkpoint of a run, which must be resumable and not the first."""
    checkpoint = Run.open(run).load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.skipped == ()
    assert 0 < checkpoint.epoch < epochs
    return checkpoint.epoch


# Full disks.


@pytest.mark.slow
def test_a_file_too_large_is_said_in_a_sentence_and_the_last_checkpoint_stays(
    reference: EvolutionResult, tmp_path: Path
) -> None:
    """The kernel refuses to let any file grow beyond a limit: a true error of write(2), for every user."""
    run = tmp_path / "run"
    shutil.copytree(reference.run, run)
    size = (run / "checkpoints" / "epoch-000004.safetensors").stat().st_size
    command = [*COMMAND, "--executor", "inline", "--run", str(run), "--resume", "--evolution.epochs", "9"]
    limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}))"
    limited = [sys.executable, "-c", f"{limit}; os.execv(sys.argv[1], sys.argv[1:])", *command]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert one_sentence(done.stderr).endswith("cannot be written: File too large.")
    assert goes_on_from(run, 9) == 4
    assert not list(run.rglob("*.tmp"))


FULL_DISK = """
set -e
mount -t tmpfs -o size=2000k epg-test "$1"
cd "$1"
(until ls run/checkpoints/epoch-*[1-9]*.safetensors; do sleep 0.02; done; dd if=/dev/zero of=fill) >/dev/null 2>&1 &
set +e
"$2" -m epg evolve point-goal --preset smoke --executor inline --evolution.epochs 100000 --run run
code=$?
rm fill
cp -r run "$3"
exit $code
"""


def test_a_disk_that_fills_up_amid_a_run_is_said_in_a_sentence_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = [*unshare("--mount"), "sh", "-c", FULL_DISK, "sh", str(tmp_path / "disk"), sys.executable]
    done = subprocess.run([*command, str(tmp_path / "saved")], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2, done.stderr
    assert one_sentence(done.stderr).endswith("cannot be written: No space left on device.")
    assert goes_on_from(tmp_path / "saved", 100000) > 0


def test_metrics_on_a_full_disk_fail_once(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {})
    with MetricsWriter(run) as metrics:
        metrics.write(0, {"fitness": 1.0})
        metrics._file.close()
        metrics._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115 (closed by the writer)
        with pytest.raises(BadInput, match=r"metrics\.jsonl cannot be written: No space left on device\.$"):
            metrics.write(1, {"fitness": 2.0})
    assert len(read_metrics(run.metrics)) == 1


# Permissions.


@pytest.fixture
def public() -> Iterator[Path]:
    """Make a directory that everybody may enter; those of pytest are for their owner only."""
    place = Path(tempfile.mkdtemp(prefix="epg-test-"))
    os.chmod(place, 0o755)
    yield place
    shutil.rmtree(place)


def test_permission_lost_amid_a_run_leaves_the_last_checkpoint(public: Path) -> None:
    settings = preset(FAMILY, "smoke")
    run = create_run(settings, public / "run")
    with contextlib.ExitStack() as stack:

        def lose(epoch: EpochMetrics) -> None:
            if epoch.epoch == 1:
                # The checkpoint of this epoch is still being written: the loss of permission must not race it.
                assert wait_until((run.checkpoints / "epoch-000002.safetensors").exists)
                os.chmod(run.checkpoints, 0o555)
                os.chmod(run.path, 0o555)
                stack.enter_context(without_privileges())

        with pytest.raises(BadInput, match=r"cannot be written: Permission denied\.$"):
            evolve_run(run, settings, "inline", on_epoch=lose)
    os.chmod(run.path, 0o700)
    os.chmod(run.checkpoints, 0o700)
    assert goes_on_from(run.path, settings.evolution.epochs) == 2
    again, settings = open_run(run.path)
    assert evolve_run(again, settings, "inline").epoch == settings.evolution.epochs


def test_a_directory_that_cannot_be_written_is_refused_at_once(reference: EvolutionResult, public: Path) -> None:
    place = public / "place"
    shutil.copytree(reference.run, place / "old")
    for folder in (place / "old", place):
        os.chmod(folder, 0o555)
    settings = preset(FAMILY, "smoke")
    try:
        with without_privileges():
            with pytest.raises(BadInput, match=r"place/new cannot be made: .*(Permission denied|cannot be written)"):
                create_run(settings, place / "new")
            old = Run.open(place / "old")
            with pytest.raises(BadInput, match=r"place/old cannot be written: Permission denied\.$"), old.lock():
                pass
    finally:
        os.chmod(place, 0o755)
        os.chmod(place / "old", 0o755)
    assert os.listdir(place) == ["old"]


# A run that is no longer there.


@pytest.mark.parametrize("what", ["moved", "replaced", "policies elsewhere"])
def test_results_are_written_into_their_own_run_only(what: str, tmp_path: Path) -> None:
    run, strangers = Run.create(tmp_path / "run", {"format": RUN_FORMAT, "kind": "maml"}), tmp_path / "strangers"
    strangers.mkdir()
    results = [MethodResult("maml", "MAML", 32, np.arange(3.0), np.full((3, 64), 1.5), np.ones((3, 2)))]
    with run.lock():
        if what == "policies elsewhere":
            (run.path / "policies").symlink_to(strangers)
        else:
            run.path.rename(tmp_path / "elsewhere")
        if what == "replaced":
            strangers.rename(run.path)
            strangers = run.path
        with pytest.raises(BadInput, match=r"was moved, deleted or replaced|policies is a symbolic link"):
            write_results(results, FAMILY, 0, run)
    assert list(strangers.iterdir()) == []


# Two processes.


def test_a_second_process_on_a_run_is_refused_by_the_command(
    reference: EvolutionResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(reference.run, tmp_path / "run")
    with Run.open(tmp_path / "run").lock(), pytest.raises(SystemExit) as end:
        main(["evolve", FAMILY, "--run", str(tmp_path / "run"), "--resume", "--executor", "inline"])
    assert end.value.code == 2
    assert one_sentence(capsys.readouterr().err).endswith("is in use by another process: wait for it or stop it.")


def test_of_two_that_create_a_run_at_once_one_is_refused(tmp_path: Path) -> None:
    for attempt in range(20):
        barrier, outcomes = threading.Barrier(2), []

        def create(number: int, place: Path, barrier: threading.Barrier = barrier, out: list[int] = outcomes) -> None:
            barrier.wait()
            with contextlib.suppress(BadInput):
                Run.create(place, {"format": RUN_FORMAT, "number": number})
                out.append(number)

        place = tmp_path / str(attempt)
        threads = [threading.Thread(target=create, args=(number, place)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [Run.open(place).config["number"]] == outcomes


# kill -9.


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_once(run: Path, draw: random.Random) -> str:
    """Begin a run, kill its driver or a worker at a random moment, resume if need be; return its loss's digest."""
    command = [*COMMAND, "--processes", "2", "--json", "--run", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Before the run exists, while workers start, or amid its epochs, which take a few hundredths of a second.
    moment = draw.choice(("start", "workers", "epochs", "epochs", "epochs"))
    if moment == "workers":
        wait_until(lambda: len(children(process.pid)) == 2 or process.poll() is not None, 120)
    elif moment == "epochs":
        wait_until(lambda: (run / "metrics.jsonl").exists() or process.poll() is not None, 120)
    time.sleep(draw.uniform(0, 3.0 if moment == "start" else 0.5))
    workers = children(process.pid)
    victim = draw.choice(workers) if workers and draw.random() < 0.5 else process.pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    if process.returncode != 0:
        again = ["--resume"] if (run / "config.json").exists() else []
        done = subprocess.run([*command, *again], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        out = done.stdout
    assert [record["epoch"] for record in read_metrics(run / "metrics.jsonl")] == [0, 1, 2, 3]
    digest: str = json.loads(out.splitlines()[-1])["loss_sha256"]
    return digest


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_and_resumed_a_run_gives_the_same_loss(
    kills: int, reference: EvolutionResult, tmp_path: Path
) -> None:
    digests = [kill_once(tmp_path / str(seed), random.Random(seed)) for seed in range(kills)]
    assert digests == [reference.loss_sha256] * kills
