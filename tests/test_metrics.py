"""Metrics: lines and TensorBoard events that agree, torn lines, and what a resumed run rewrites."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from epg.core.errors import BadInput
from epg.storage.metrics import MetricsWriter, read_metrics
from epg.storage.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {})


def events(run: Run) -> list[Any]:
    """Parse the TFRecord files of a run: length, checksum, event, checksum."""
    found = []
    for path in sorted(run.path.glob("**/events*")):
        data, place = path.read_bytes(), 0
        while place < len(data):
            (length,) = struct.unpack_from("<Q", data, place)
            found.append(event_pb2.Event.FromString(data[place + 12 : place + 12 + length]))
            place += length + 16
    return found


def scalars(run: Run) -> list[tuple[int, str, float]]:
    return [(event.step, value.tag, value.simple_value) for event in events(run) for value in event.summary.value]


def write_epochs(writer: MetricsWriter, epochs: range) -> None:
    with writer:
        for epoch in epochs:
            writer.write(epoch, {"fitness": epoch / 2})


def test_a_line_holds_everything_and_tensorboard_the_finite_numbers(run: Run) -> None:
    with MetricsWriter(run) as writer:
        writer.write(0, {"fitness": np.float32(1.5), "lost": 2, "best": float("nan"), "note": "a", "ok": True})
        writer.write(1, {"fitness": -float("inf"), "returns": [1.0, float("inf")]})
        assert run.metrics.read_text().count("\n") == 2  # flushed at once
    lines = run.metrics.read_text().splitlines()
    first = {"epoch": 0, "fitness": 1.5, "lost": 2, "best": None, "note": "a", "ok": True}
    assert [json.loads(line) for line in lines] == read_metrics(run.metrics)
    assert read_metrics(run.metrics) == [first, {"epoch": 1, "fitness": None, "returns": [1.0, None]}]
    assert scalars(run) == [(1, "fitness", 1.5), (1, "lost", 2.0)]  # after one epoch


def test_a_torn_last_line_alone_is_forgiven(run: Run) -> None:
    write_epochs(MetricsWriter(run), range(3))
    whole = run.metrics.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for end in range(start, len(whole) - 1):
        run.metrics.write_bytes(whole[:end])
        assert [record["epoch"] for record in read_metrics(run.metrics)] == [0, 1]
    run.metrics.write_bytes(whole[:-1])  # only the newline is lost: the record is whole
    assert [record["epoch"] for record in read_metrics(run.metrics)] == [0, 1, 2]
    run.metrics.write_bytes(whole + b"\0\0\0")
    assert [record["epoch"] for record in read_metrics(run.metrics)] == [0, 1, 2]


@pytest.mark.parametrize("bad", [b'{"epoch": 1', b"[1]", b'{"fitness": 1}', b'{"epoch": true}', b"", b"\xff"])
def test_damage_elsewhere_is_refused_by_line(run: Run, bad: bytes) -> None:
    run.metrics.write_bytes(b'{"epoch": 0}\n' + bad + b"\n")
    with pytest.raises(BadInput, match=r"metrics\.jsonl, line 2, is damaged"):
        read_metrics(run.metrics)


def test_missing_metrics_are_named(run: Run) -> None:
    with pytest.raises(BadInput, match=r"metrics\.jsonl cannot be read"):
        read_metrics(run.metrics)


@pytest.mark.parametrize("tail", [b"", b'{"epoch": 5, "fit'])
def test_a_resumed_run_has_the_metrics_of_one_never_stopped(tmp_path: Path, run: Run, tail: bytes) -> None:
    straight = Run.create(tmp_path / "straight", {})
    write_epochs(MetricsWriter(straight), range(6))
    write_epochs(MetricsWriter(run), range(5))
    with open(run.metrics, "ab") as file:
        file.write(tail)
    write_epochs(MetricsWriter.resume(run, 3), range(3, 6))
    assert run.metrics.read_bytes() == straight.metrics.read_bytes()


def test_a_record_that_lost_only_its_newline_is_kept(run: Run) -> None:
    write_epochs(MetricsWriter(run), range(3))
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[:-1])
    MetricsWriter.resume(run, 3).close()
    assert run.metrics.read_bytes() == whole


def test_tensorboard_is_told_to_purge_what_happens_again(run: Run) -> None:
    write_epochs(MetricsWriter(run), range(3))
    write_epochs(MetricsWriter.resume(run, 2), range(2, 3))
    starts = [event.step for event in events(run) if event.HasField("session_log")]
    assert starts == [3]
    assert scalars(run) == [(1, "fitness", 0.0), (2, "fitness", 0.5), (3, "fitness", 1.0), (3, "fitness", 1.0)]


def test_every_learning_curve_is_a_run_of_tensorboard(run: Run) -> None:
    with MetricsWriter(run) as writer:
        for curve in ("epg/tasks-0-9", "ppo/tasks-0-9"):
            for step in (64, 128):
                writer.write_update(curve, step, {"episode_return": step / 2, "kl": float("nan")})
    assert read_metrics(run.metrics)[1] == {
        "curve": "epg/tasks-0-9",
        "env_steps": 128,
        "episode_return": 64,
        "kl": None,
    }
    assert not [path for path in run.tensorboard.iterdir() if path.is_file()]
    for curve in ("epg/tasks-0-9", "ppo/tasks-0-9"):
        found = scalars(replace(run, path=run.path / "tensorboard" / curve))
        assert found == [(64, "learning/episode_return", 32.0), (128, "learning/episode_return", 64.0)]


def test_resume_before_any_line_starts_afresh(run: Run) -> None:
    write_epochs(MetricsWriter.resume(run, 0), range(1))
    assert read_metrics(run.metrics) == [{"epoch": 0, "fitness": 0.0}]


def test_a_place_that_cannot_be_written_is_refused(run: Run) -> None:
    run.metrics.mkdir()
    with pytest.raises(BadInput, match="cannot be written: Is a directory"):
        MetricsWriter(run)
    run.metrics.rmdir()
    run.tensorboard.touch()
    with pytest.raises(BadInput, match="tensorboard cannot be made: File exists"):
        MetricsWriter(run)
