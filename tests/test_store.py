"""Runs, checkpoints and losses: what comes back, what is refused, and what survives damage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epg
from epg.core.errors import BadInput
from epg.executors import make_executor
from epg.storage import artefact
from epg.storage import run as store
from epg.storage.artefact import _manifest_digest
from epg.storage.checkpoint_writer import CheckpointWriter
from epg.storage.files import encode_tensors, write_json
from epg.storage.loss_artefact import load_loss, save_loss
from epg.storage.metrics import MetricsWriter
from epg.storage.policy_artefact import load_policy, save_policy
from epg.storage.run import CHECKPOINT_FORMAT, RUN_FORMAT, Run, is_locked, new_run

PHI = np.linspace(-1, 1, 257, dtype=np.float32)
MANIFEST = {
    "family": "point",
    "family_version": 1,
    "spaces": {"observation": 4, "action": 2, "discrete": False, "features": 0},
    "settings": {"family": "point", "seed": 3},
    "seed": 3,
    "epochs": 10,
    "env_steps": 12345,
    "warm_start": None,
    "curve": [0.5, float("nan"), 2],
}
CONFIG = {"format": RUN_FORMAT, "family": "point", "seed": 3}


def state(epoch: int) -> dict[str, np.ndarray]:
    return {"phi": PHI * epoch, "step": np.asarray(epoch), "key": np.asarray([1, epoch], np.uint32)}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", CONFIG)


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# Runs.


def test_a_run_comes_back_with_its_config(tmp_path: Path) -> None:
    config = {"z": 1, "a": {"widths": [64, 64]}, "format": RUN_FORMAT}
    created = Run.create(tmp_path / "deep" / "run", config)
    opened = Run.open(str(tmp_path / "deep" / "run"))
    assert opened == created
    assert opened.config == config
    assert os.listdir(opened.path) == ["config.json"]
    places = (opened.metrics, opened.report, opened.figures, opened.checkpoints, opened.tensorboard, opened.logs)
    assert [path.parent for path in places] == [opened.path] * 6


def test_an_empty_directory_becomes_a_run(tmp_path: Path) -> None:
    (tmp_path / ".config.json.0a0a0a0a.tmp").touch()  # what a create killed in the middle leaves
    assert Run.create(tmp_path, {}).config == {}


def test_a_run_is_not_overwritten(run: Run) -> None:
    with pytest.raises(BadInput, match=r"already holds a run: choose another --run, or .* --resume\.$"):
        Run.create(run.path, {"other": 1})
    assert Run.open(run.path).config == CONFIG


def test_files_of_something_else_are_not_mixed_with_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match="holds files that are not a run: choose another --run"):
        Run.create(tmp_path, {})
    with pytest.raises(BadInput, match="is not a directory"):
        Run.create(tmp_path / "thesis.tex", {})
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_place_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"file/run cannot be made: .*file is not a directory, choose another --run\.$"):
        Run.create(tmp_path / "file" / "run", {})
    assert os.listdir(tmp_path) == ["file"]


def test_a_place_where_nobody_may_write_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^/proc/epg/run cannot be made: .+\.$"):  # not even root
        Run.create("/proc/epg/run", {})


def test_a_config_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, _: object, replace: bool) -> None:
        raise BadInput(f"{path} cannot be written: No space left on device.")

    monkeypatch.setattr(store, "write_json", fail)
    with pytest.raises(BadInput, match="No space left"):
        Run.create(tmp_path / "deep" / "run", {})
    assert os.listdir(tmp_path) == []


def test_what_is_no_run_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        Run.open(tmp_path / "none")
    with pytest.raises(BadInput, match=r"is not a run: it has no config\.json"):
        Run.open(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(BadInput, match=r"config\.json is damaged: it is not an object"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (1, r"has format 1, older than this epg reads \(2\): make it again"),
        (3, r"has format 3, newer than this epg reads \(2\): upgrade epg to 0\.9\.1, which wrote it"),
        (0, "is damaged: format 0 never existed"),
        (True, "is damaged: format True never existed"),
        (None, "is damaged: format None never existed"),
    ],
)
def test_a_run_of_another_format_is_refused_in_a_sentence(tmp_path: Path, found: Any, reason: str) -> None:
    Run.create(tmp_path / "run", {"format": found, "epg": "0.9.1"})
    with pytest.raises(BadInput, match=rf"config\.json {reason}\.$"):
        Run.open(tmp_path / "run")


LOCKING = """
import sys
from epg.storage.run import Run
with Run.open(sys.argv[1]).lock():
    print("locked", flush=True)
    input()
"""


def test_a_second_process_is_refused_until_the_first_is_dead(run: Run) -> None:
    with python(LOCKING, str(run.path)) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(BadInput, match="in use by another process"), run.lock():
                pass
        finally:
            other.kill()
    with run.lock():
        pass


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced"])
def test_a_run_that_is_no_longer_there_is_noticed_and_a_strangers_left_alone(what: str, run: Run) -> None:
    with run.lock(), MetricsWriter(run) as metrics:
        metrics.write(0, {"a": 1})
        run.save_checkpoint(1, state(1), {})
        run.path.rename(run.path.parent / "elsewhere")
        if what == "deleted":
            shutil.rmtree(run.path.parent / "elsewhere")
        if what == "replaced":
            Run.create(run.path, CONFIG)
        writes = (
            lambda: metrics.write(1, {"a": 2}),
            lambda: run.save_checkpoint(2, state(2), {}),
        )
        for write in writes:
            with pytest.raises(BadInput, match=r"run was moved, deleted or replaced while it was in use: stopped"):
                write()
    assert run.path.exists() == (what == "replaced")
    assert what != "replaced" or os.listdir(run.path) == ["config.json"]


@pytest.mark.parametrize("what", ["ours", "moved", "deleted", "replaced", "replaced by an empty one"])
def test_a_run_that_fails_is_removed_unless_a_strangers_took_its_place(what: str, tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "new" / "run", tmp_path / "elsewhere"

    def fail() -> None:
        with new_run(path, CONFIG) as run, MetricsWriter(run) as metrics:
            metrics.write(0, {"a": 1})
            if what != "ours":
                path.rename(elsewhere)
            if what == "deleted":
                shutil.rmtree(elsewhere)
            if what.startswith("replaced"):
                path.mkdir()
            if what == "replaced":
                (path / "thesis.tex").write_text("mine")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.exists() == what.startswith("replaced")
    assert what != "replaced" or (path / "thesis.tex").read_text() == "mine"
    assert (tmp_path / "new").exists() == (what != "ours")
    assert elsewhere.exists() == (what not in ("ours", "deleted"))


def test_a_new_run_is_locked_until_it_is_whole(tmp_path: Path) -> None:
    with new_run(tmp_path / "run", CONFIG) as run:
        assert is_locked(run.path)
        with pytest.raises(BadInput, match="in use"), Run.open(run.path).lock():
            pass
    with run.lock():
        pass


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "metrics.jsonl", ".lock", "logs"])
def test_symbolic_links_in_a_run_are_not_followed(name: str, run: Run, tmp_path: Path) -> None:
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    for file in ("epoch-000001.safetensors", ".a.0a0a0a0a.tmp"):
        (strangers / file).write_text("mine")
    target = strangers if name in ("checkpoints", "tensorboard", "logs") else strangers / "epoch-000001.safetensors"
    (run.path / name).symlink_to(target)

    def work() -> None:
        with run.lock(), MetricsWriter(run) as metrics:
            metrics.write(0, {"a": 1})
            for epoch in (5, 6, 7):
                run.save_checkpoint(epoch, state(epoch), {})
            with make_executor("local", "workloads:double", {"factor": 2}, 1, run.logs) as executor:
                executor.map([{"x": np.asarray(1)}])

    with pytest.raises(BadInput, match=rf"{name} is a symbolic link|cannot be written: Too many levels of symbolic"):
        work()
    assert {path.name: path.read_text() for path in strangers.iterdir()} == {
        "epoch-000001.safetensors": "mine",
        ".a.0a0a0a0a.tmp": "mine",
    }


def test_the_lock_clears_what_a_killed_writer_left(run: Run) -> None:
    run.save_checkpoint(1, state(1), {})
    leftover = run.checkpoints / ".epoch-000002.safetensors.0a0a0a0a.tmp"
    leftover.touch()
    with run.lock():
        assert not leftover.exists()
        with pytest.raises(BadInput, match="in use"), run.lock():
            pass
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.epoch == 1


# Checkpoints.


def test_a_checkpoint_comes_back_bit_for_bit(run: Run) -> None:
    assert run.load_checkpoint() is None
    info = {"best": 0.1 + 0.2, "curve": [1.5, float("nan")], "name": "é"}
    path = run.save_checkpoint(12, state(12), info)
    assert path == run.checkpoints / "epoch-000012.safetensors"
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.epoch, checkpoint.skipped) == (12, ())
    assert checkpoint.info == {"best": 0.1 + 0.2, "curve": [1.5, None], "name": "é"}
    assert checkpoint.tensors.keys() == state(12).keys()
    for name, array in state(12).items():
        np.testing.assert_array_equal(checkpoint.tensors[name], array, strict=True)


def test_the_newest_two_are_kept_in_the_order_of_epochs(run: Run) -> None:
    for epoch in (0, 9, 10, 999_999, 1_000_000):
        run.save_checkpoint(epoch, state(epoch), {})
    assert sorted(os.listdir(run.checkpoints)) == ["epoch-1000000.safetensors", "epoch-999999.safetensors"]
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.epoch == 1_000_000


def test_a_damaged_newest_one_is_named_and_the_previous_used(run: Run) -> None:
    run.save_checkpoint(1, state(1), {})
    damaged = run.save_checkpoint(2, state(2), {})
    damaged.write_bytes(damaged.read_bytes()[:-1])
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.epoch == 1
    assert len(checkpoint.skipped) == 1
    assert checkpoint.skipped[0].startswith(f"{damaged} is damaged: ")
    run.save_checkpoint(1, state(1), {})  # the run goes on from there: the damaged future is gone
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.skipped == ()


def test_only_damaged_ones_are_refused_by_name(run: Run) -> None:
    for epoch in (1, 2):
        run.save_checkpoint(epoch, state(epoch), {}).write_bytes(b"x" * 100)
    with pytest.raises(BadInput, match=r"no whole checkpoint, start a new run: .*epoch-000002.*epoch-000001"):
        run.load_checkpoint()


def test_flipped_bits_and_truncations_are_refused(run: Run) -> None:
    path = run.save_checkpoint(5, state(5), {"a": 1})
    data = path.read_bytes()
    for place in range(0, len(data), 37):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        with pytest.raises(BadInput, match="epoch-000005"):
            run.load_checkpoint()
        path.write_bytes(data[:place])
        with pytest.raises(BadInput, match="epoch-000005"):
            run.load_checkpoint()


def test_a_renamed_checkpoint_is_refused(run: Run) -> None:
    path = run.save_checkpoint(5, state(5), {})
    path.rename(run.checkpoints / "epoch-000006.safetensors")
    with pytest.raises(BadInput, match="of another epoch than its name"):
        run.load_checkpoint()


def test_a_checkpoint_made_with_other_settings_is_refused_by_name(tmp_path: Path) -> None:
    config = {"format": RUN_FORMAT, "settings": {"seed": 1, "evolution": {"epochs": 3, "sigma": 0.1}}}
    run = Run.create(tmp_path / "run", config)
    run.save_checkpoint(4, state(4), {})
    path = run.save_checkpoint(5, state(5), {})
    longer = {"seed": 1, "evolution": {"epochs": 9, "sigma": 0.1}}
    write_json(run.path / "config.json", {**config, "settings": longer})
    assert Run.open(run.path).load_checkpoint() is not None  # a run may be asked for more epochs
    edited = {"seed": 1, "evolution": {"epochs": 3, "sigma": 0.2}}
    write_json(run.path / "config.json", {**config, "settings": edited})
    with pytest.raises(BadInput, match=r"epoch-000005\.safetensors does not belong to .*config\.json: that was edited"):
        Run.open(run.path).load_checkpoint()
    other = Run.create(tmp_path / "other", {**config, "settings": {"seed": 2}})
    other.save_checkpoint(4, state(4), {})
    shutil.copy(path, other.checkpoints)  # newer than its own
    with pytest.raises(BadInput, match=r"other/checkpoints/epoch-000005\.safetensors does not belong to"):
        other.load_checkpoint()


@pytest.mark.parametrize("info", ["[]", "{", '"a"'])
def test_a_checkpoint_without_sound_info_is_refused(run: Run, info: str) -> None:
    path = run.save_checkpoint(5, state(5), {})
    path.write_bytes(encode_tensors(state(5), {"format": str(CHECKPOINT_FORMAT), "epoch": "5", "info": info}))
    with pytest.raises(BadInput, match=r"epoch-000005\.safetensors is damaged"):
        run.load_checkpoint()


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"format": "1"}, r"has format 1, older than this epg reads \(3\): make it again"),
        ({"format": "two"}, "is damaged: its format is no number"),
        ({}, "is damaged: its format is no number"),
    ],
)
def test_a_checkpoint_of_another_format_is_refused_in_a_sentence(
    run: Run, metadata: dict[str, str], reason: str
) -> None:
    path = run.save_checkpoint(5, state(5), {})
    path.write_bytes(encode_tensors(state(5), {"epoch": "5", "info": "{}", **metadata}))
    with pytest.raises(BadInput, match=rf"start a new run: .*epoch-000005\.safetensors {reason}\.$"):
        run.load_checkpoint()


def test_checkpoints_written_in_a_thread_are_in_order_and_their_errors_are_raised(run: Run) -> None:
    with CheckpointWriter(run) as writer:
        for epoch in (1, 2, 3):
            writer.save(epoch, state(epoch), {"epoch": epoch})
        writer.wait()
        checkpoint = run.load_checkpoint()
        assert checkpoint is not None
        assert (checkpoint.epoch, checkpoint.info) == (3, {"epoch": 3})
        assert len(os.listdir(run.checkpoints)) == 2
        for path in run.checkpoints.iterdir():
            path.unlink()
        run.checkpoints.rmdir()
        run.checkpoints.touch()  # a file where the directory was
        writer.save(4, state(4), {})
        with pytest.raises(BadInput, match="checkpoints cannot be made"):
            writer.wait()
        writer.wait()  # an error is raised once


def test_other_files_among_the_checkpoints_are_left_alone(run: Run) -> None:
    run.checkpoints.mkdir()
    (run.checkpoints / "epoch-000009.safetensors.bak").touch()
    for epoch in (1, 2, 3):
        run.save_checkpoint(epoch, state(epoch), {})
    assert len(os.listdir(run.checkpoints)) == 3


SAVING = """
import sys, numpy as np
from epg.storage.run import Run
run = Run.open(sys.argv[1])
for epoch in range(1, 10**6):
    run.save_checkpoint(epoch, {"x": np.full(20000, epoch, np.float32)}, {"epoch": epoch})
"""


def test_a_run_killed_while_saving_has_a_whole_checkpoint(run: Run) -> None:
    for pause in (0.03, 0.07):
        with python(SAVING, str(run.path)) as process:
            try:
                while run.load_checkpoint() is None:
                    assert process.poll() is None
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(pause)
            finally:
                process.kill()
            process.communicate()
        checkpoint = run.load_checkpoint()
        assert checkpoint is not None
        assert checkpoint.skipped == ()
        assert (checkpoint.tensors["x"] == checkpoint.epoch).all()
        assert checkpoint.info == {"epoch": checkpoint.epoch}


# Losses.


def rewrite(directory: Path, change: dict[str, Any], drop: str = "", sign: bool = True) -> None:
    """Change a manifest; `sign` gives it the manifest_sha256 of its new content, unless that is what changes."""
    path = directory / "loss.json"
    manifest = {**json.loads(path.read_text()), **change}
    manifest.pop(drop, None)
    if sign and "manifest_sha256" not in (drop, *change):
        manifest["manifest_sha256"] = _manifest_digest(manifest)
    path.write_text(json.dumps(manifest))


def replace_phi(directory: Path, tensors: dict[str, np.ndarray]) -> None:
    """Put other tensors under a manifest whose digests match them."""
    data = encode_tensors(tensors, {})
    (directory / "loss.safetensors").write_bytes(data)
    rewrite(directory, {"sha256": hashlib.sha256(data).hexdigest()})


def save(directory: Path, phi: np.ndarray = PHI, **change: Any) -> str:
    return save_loss(directory, {"phi": phi}, {**MANIFEST, **change})


def test_a_loss_comes_back_from_each_of_its_names(tmp_path: Path) -> None:
    digest = save(tmp_path / "loss")
    assert digest == hashlib.sha256((tmp_path / "loss" / "loss.safetensors").read_bytes()).hexdigest()
    for name in ("", "loss.json", "loss.safetensors"):
        loss = load_loss(tmp_path / "loss" / name)
        np.testing.assert_array_equal(loss.phi, PHI, strict=True)
        assert loss.manifest == {
            **MANIFEST,
            "curve": [0.5, None, 2],
            "format": 2,
            "kind": "epg-loss",
            "parameters": 257,
            "licence": None,
            "sha256": digest,
            "manifest_sha256": _manifest_digest(loss.manifest),
            "epg": epg.__version__,
        }


def test_fixed_observation_statistics_come_back_with_the_loss(tmp_path: Path) -> None:
    tensors = {"phi": PHI, "obs_mean": np.arange(4, dtype=np.float32), "obs_std": np.ones(4, np.float32)}
    save_loss(tmp_path, tensors, MANIFEST)
    loss = load_loss(tmp_path)
    assert loss.tensors.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(loss.tensors[name], array, strict=True)
    replace_phi(tmp_path, {**tensors, "obs_std": np.full(4, np.nan, np.float32)})
    with pytest.raises(BadInput, match=r"loss\.safetensors is damaged: obs_std holds a number that is not finite"):
        load_loss(tmp_path)


def test_the_same_loss_gives_the_same_file_wherever_it_came_from(tmp_path: Path) -> None:
    one = save(tmp_path / "one")
    assert save(tmp_path / "two", seed=4) == one
    assert save(tmp_path / "two", PHI + 1) != one


@pytest.mark.parametrize(
    ("phi", "reason"),
    [
        (PHI.astype(np.float64), "float32 vector, not float64"),
        (PHI.reshape(1, -1), r"not float32 of shape \(1, 257\)"),
        (np.asarray([1, np.nan], np.float32), "not finite"),
        (np.asarray([np.inf], np.float32), "not finite"),
    ],
)
def test_a_bad_phi_is_neither_saved_nor_loaded(tmp_path: Path, phi: np.ndarray, reason: str) -> None:
    with pytest.raises(BadInput, match=f"loss.safetensors .*{reason}"):
        save(tmp_path / "new", phi)
    assert os.listdir(tmp_path) == []
    save(tmp_path)
    replace_phi(tmp_path, {"phi": phi})
    rewrite(tmp_path, {"parameters": phi.size})
    with pytest.raises(BadInput, match=f"loss.safetensors .*{reason}"):
        load_loss(tmp_path)


@pytest.mark.parametrize(
    "key",
    [
        "format",
        "kind",
        "family",
        "family_version",
        "spaces",
        "parameters",
        "settings",
        "seed",
        "epochs",
        "env_steps",
        "curve",
        "licence",
        "sha256",
        "manifest_sha256",
        "epg",
    ],
)
def test_every_key_of_the_manifest_is_needed_with_its_type(tmp_path: Path, key: str) -> None:
    save(tmp_path)
    whole = (tmp_path / "loss.json").read_bytes()
    rewrite(tmp_path, {}, drop=key)
    with pytest.raises(BadInput, match=rf"loss\.json .*({key}|manifest of a loss)"):
        load_loss(tmp_path)
    for wrong in (1.5, True) if key == "licence" else (None, 1.5, True):  # none may be stated
        (tmp_path / "loss.json").write_bytes(whole)
        rewrite(tmp_path, {key: wrong})
        with pytest.raises(BadInput, match=rf"loss\.json .*({key}|manifest of a loss)"):
            load_loss(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 3}, r"format 3, newer than this epg reads \(2\): upgrade epg"),
        ({"format": 1}, r"format 1, older than this epg reads \(2\): make it again"),
        ({"format": 0}, "format 0"),
        ({"kind": "epg-policy"}, "not the manifest of a loss"),
        ({"spaces": {"observation": 4, "action": 2, "discrete": False}}, "lacks 'features'"),
        ({"spaces": {**MANIFEST["spaces"], "discrete": 0}}, "'discrete' must be bool"),  # type: ignore[dict-item]
        ({"epochs": -1}, "'epochs' must not be negative"),
        ({"curve": [1, "2"]}, "curve must be a list of numbers"),
        ({"sha256": "../../etc/passwd"}, "sha256 is not a digest"),
        ({"manifest_sha256": "../../etc/passwd"}, "manifest_sha256 is not a digest"),
        ({"manifest_sha256": "0" * 64}, "damaged: its content does not match its manifest_sha256"),
        ({"warm_start": "a loss"}, "warm_start must be null, or say of what kind the start was"),
        ({"warm_start": {"kind": 1}}, "warm_start must be null, or say of what kind the start was"),
    ],
)
def test_each_bad_manifest_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    save(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(BadInput, match=rf"loss\.json.*{reason}"):
        load_loss(tmp_path)


def test_a_manifest_without_its_start_is_refused(tmp_path: Path) -> None:
    save(tmp_path, warm_start={"kind": "loss", "sha256": "0" * 64})
    assert load_loss(tmp_path).manifest["warm_start"] == {"kind": "loss", "sha256": "0" * 64}
    rewrite(tmp_path, {}, drop="warm_start")
    with pytest.raises(BadInput, match=r"loss\.json is damaged: it lacks 'warm_start'\.$"):
        load_loss(tmp_path)


@pytest.mark.parametrize("change", [{"seed": 4}, {"curve": [0.5, None, 3]}, {"family": "other"}, {"note": "new"}])
def test_a_manifest_changed_after_it_was_signed_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    save(tmp_path)
    rewrite(tmp_path, change, sign=False)
    with pytest.raises(BadInput, match=r"loss\.json is damaged: its content does not match its manifest_sha256\.$"):
        load_loss(tmp_path)


def test_an_incomplete_manifest_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="lacks 'family'"):
        save_loss(tmp_path, {"phi": PHI}, {key: value for key, value in MANIFEST.items() if key != "family"})
    assert os.listdir(tmp_path) == []


def test_tensors_that_are_not_the_manifests_are_refused(tmp_path: Path) -> None:
    save(tmp_path)
    rewrite(tmp_path, {"parameters": 256})
    with pytest.raises(BadInput, match=r"loss\.safetensors .*phi has length 257, not 256"):
        load_loss(tmp_path)
    rewrite(tmp_path, {"parameters": 257, "sha256": "0" * 64})
    with pytest.raises(BadInput, match=r"loss\.safetensors is damaged: its sha256"):
        load_loss(tmp_path)
    replace_phi(tmp_path, {"phi": PHI, "extra": PHI})
    with pytest.raises(BadInput, match="it must hold the tensor phi, and beside it only obs_mean, obs_std"):
        load_loss(tmp_path)


def test_a_loss_read_while_its_run_writes_it_is_the_new_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = np.zeros(3, np.float32), np.ones(3, np.float32)
    save(run.path, phi=new)
    manifest = (run.path / "loss.json").read_bytes()
    save(run.path, phi=old)
    (run.path / "loss.safetensors").write_bytes(encode_tensors({"phi": new}, {}))  # the manifest is still the old one's
    with pytest.raises(BadInput, match="is damaged: its sha256"):  # nobody writes it
        load_loss(run.path)
    monkeypatch.setattr(artefact.time, "sleep", lambda seconds: (run.path / "loss.json").write_bytes(manifest))
    with run.lock():
        np.testing.assert_array_equal(load_loss(run.path).phi, new)


def test_flipped_bits_of_a_loss_are_refused(tmp_path: Path) -> None:
    save(tmp_path)
    path = tmp_path / "loss.safetensors"
    data = path.read_bytes()
    for place in range(0, len(data), 37):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(BadInput, match=r"loss\.safetensors is damaged"):
            load_loss(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none does not exist"):
        load_loss(tmp_path / "none")
    with pytest.raises(BadInput, match=r"is not a loss: .*loss\.json is missing"):
        load_loss(tmp_path)
    save(tmp_path)
    (tmp_path / "loss.safetensors").unlink()
    with pytest.raises(BadInput, match=r"loss\.safetensors cannot be read"):
        load_loss(tmp_path)
    (tmp_path / "loss.json").write_text('["a"]')
    with pytest.raises(BadInput, match=r"loss\.json is damaged: it is not an object"):
        load_loss(tmp_path)


# Policies.


def test_a_policy_comes_back_and_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    tensors = {"weights": np.eye(2, 5, dtype=np.float32), "obs_mean": np.zeros(4), "obs_std": np.ones(4)}
    manifest = {name: MANIFEST[name] for name in ("family", "family_version", "spaces", "env_steps")}
    manifest |= {"policy": {"type": "linear"}, "trained_by": "search"}
    save_policy(tmp_path, tensors, manifest)
    for name in ("", "policy.json", "policy.safetensors"):
        policy = load_policy(tmp_path / name)
        assert policy.manifest.items() >= manifest.items()
        assert policy.manifest["kind"] == "epg-policy"
        for key, array in tensors.items():
            np.testing.assert_array_equal(policy.tensors[key], array, strict=True)
    with pytest.raises(BadInput, match=r"is not a loss: .*loss\.json is missing"):
        load_loss(tmp_path)
    path = tmp_path / "policy.json"
    path.write_text(path.read_text().replace('"linear"', '"mlp"'))
    with pytest.raises(BadInput, match=r"policy\.json is damaged: its content does not match its manifest_sha256"):
        load_policy(tmp_path)
    save_policy(tmp_path, {**tensors, "weights": np.full((2, 5), np.inf, np.float32)}, manifest)
    with pytest.raises(BadInput, match=r"its training diverged: weights holds a number that is not finite"):
        load_policy(tmp_path)
