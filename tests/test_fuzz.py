"""Mutated artefacts and checkpoints: each loads to a valid object or is refused in one sentence, quickly and in
little memory. Seeds are fixed, and so is every mutant."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import Files, mutate

import epg
from epg.core.errors import BadInput, require
from epg.evaluation.fitting import fitting_learner
from epg.evolution.loop import Evolution, evolve_run
from epg.evolution.runs import create_run, open_run
from epg.recipes import preset
from epg.settings import Settings, to_dict
from epg.storage.files import encode_tensors
from epg.storage.loss_artefact import load_loss, save_loss
from epg.storage.run import RUN_FORMAT, Run

MUTANTS = 2_000  # of losses, and as many of checkpoints
ALLOWANCE = 2**20  # beside twice the file: what Python and small JSON take; files.JSON_ALLOWANCE is part of it
FAMILY = "point-goal"


@dataclass
class Tally:
    """What became of the mutants."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: float = 0.0
    """Most memory taken, beyond twice the file."""


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = preset(FAMILY, "smoke")
    return evolve_run(create_run(settings, tmp_path_factory.mktemp("fuzz") / "run"), settings, "inline").run


def passes(load: Callable[[], object]) -> bool:
    """Tell whether it loads; a refusal must be one sentence, and any other exception fails the test."""
    try:
        load()
        return True
    except BadInput as refusal:
        text = str(refusal)
    assert 0 < len(text) < 2000, text
    assert text.isprintable(), text
    assert text.endswith("."), text
    assert "Traceback" not in text
    return False


def attempt(tally: Tally, size: int, load: Callable[[], object]) -> None:
    """Load once, and keep what became of it."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        tally.outcomes["loaded" if passes(load) else "refused"] += 1
        tally.slowest = max(tally.slowest, time.perf_counter() - began)
        tally.largest = max(tally.largest, tracemalloc.get_traced_memory()[1] - 2 * size)
    finally:
        tracemalloc.stop()


def write(folder: Path, files: Files) -> int:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return sum(map(len, files.values()))


def judge(tally: Tally) -> None:
    assert tally.outcomes.total() == MUTANTS
    assert tally.outcomes["refused"] > MUTANTS / 2
    assert tally.outcomes["loaded"] > MUTANTS / 100  # the mutations reach past the first check
    assert tally.largest < ALLOWANCE
    assert tally.slowest < 10


@pytest.mark.slow
def test_mutated_losses_load_or_are_refused(evolved: Path, tmp_path: Path) -> None:
    whole = {name: (evolved / name).read_bytes() for name in ("loss.json", "loss.safetensors")}
    signed, meaning = load_loss(evolved).manifest["manifest_sha256"], canonical(whole["loss.json"])
    draw, tally, usable = random.Random(1), Tally(), Counter[bool]()
    for _ in range(MUTANTS):
        size = write(tmp_path, mutate(whole, draw))
        loaded = []
        attempt(tally, size, lambda: loaded.append(load_loss(tmp_path)))  # noqa: B023 (called at once)
        for loss in loaded:
            assert loss.phi.dtype == np.float32
            assert loss.phi.shape == (loss.manifest["parameters"],)
            assert np.isfinite(loss.phi).all()
            if loss.manifest["manifest_sha256"] == signed:  # what was not signed again means what it did before
                assert canonical((tmp_path / "loss.json").read_bytes()) == meaning
                assert (tmp_path / "loss.safetensors").read_bytes() == whole["loss.safetensors"]
            if tally.outcomes["loaded"] % 10 == 0:  # what is asked of it here asks JAX, which takes its time
                usable[passes(lambda: fitting_learner(loss, FAMILY))] += 1  # noqa: B023 (called at once)
    assert min(usable[True], usable[False]) > 0
    judge(tally)


def canonical(text: bytes) -> str | None:
    """Return what a JSON text means, 1 and 1.0 told apart; None for what is not JSON."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def other_bytes(data: bytes, place: int, draw: random.Random) -> list[bytes]:
    """Return `data` with one byte flipped in one bit, replaced by another digit or letter, removed, and repeated."""
    before, byte, after = data[:place], data[place : place + 1], data[place + 1 :]
    flipped = bytes([byte[0] ^ 1 << draw.randrange(8)])
    letter = draw.choice([it for it in b"0123456789abcdefE+-., " if it != byte[0]])
    return [before + flipped + after, before + bytes([letter]) + after, before + after, before + byte + byte + after]


def test_every_byte_of_a_manifest_that_means_something_is_signed(evolved: Path, tmp_path: Path) -> None:
    whole = (evolved / "loss.json").read_bytes()
    write(tmp_path, {"loss.safetensors": (evolved / "loss.safetensors").read_bytes()})
    draw, meaning, outcomes = random.Random(4), canonical(whole), Counter[bool]()
    for place in range(len(whole)):
        for changed in other_bytes(whole, place, draw):
            write(tmp_path, {"loss.json": changed})
            if canonical(changed) == meaning:  # white space, or another way to write the same number
                assert passes(lambda: load_loss(tmp_path))
                outcomes[True] += 1
                continue
            with pytest.raises(BadInput, match=r"loss\.json"):
                load_loss(tmp_path)
            outcomes[False] += 1
    assert outcomes[False] > 2 * len(whole)
    assert outcomes[True] > 100


def test_every_byte_of_the_tensors_is_signed(evolved: Path, tmp_path: Path) -> None:
    whole = (evolved / "loss.safetensors").read_bytes()
    write(tmp_path, {"loss.json": (evolved / "loss.json").read_bytes(), "loss.safetensors": whole})
    assert passes(lambda: load_loss(tmp_path))
    path, draw = tmp_path / "loss.safetensors", random.Random(5)
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in [*range(header), *range(header, len(whole), 17), len(whole) - 1]:
        for changed in other_bytes(whole, place, draw):
            path.write_bytes(changed)
            with pytest.raises(BadInput, match=r"loss\.safetensors is damaged"):
                load_loss(tmp_path)


@pytest.mark.slow
def test_mutated_checkpoints_load_or_are_refused(evolved: Path, tmp_path: Path) -> None:
    name = "checkpoints/epoch-000004.safetensors"
    whole = {name: (evolved / name).read_bytes()}
    (tmp_path / "checkpoints").mkdir()
    write(tmp_path, {"config.json": (evolved / "config.json").read_bytes()})
    run, settings = open_run(tmp_path)
    draw, tally, state, usable = random.Random(2), Tally(), Evolution(settings), Counter[bool]()
    for _ in range(MUTANTS):
        size = write(tmp_path, mutate(whole, draw))
        loaded: list[Any] = []
        attempt(tally, size, lambda: loaded.append(run.load_checkpoint()))  # noqa: B023 (called at once)
        for checkpoint in loaded:
            if tally.outcomes["loaded"] % 5 == 0:
                usable[passes(lambda: state.restore(checkpoint, run.path))] += 1  # noqa: B023 (called at once)
            assert np.isfinite(state.strategy.phi).all()
    assert min(usable[True], usable[False]) > 0
    judge(tally)


def test_mutated_configs_open_or_are_refused(evolved: Path, tmp_path: Path) -> None:
    whole = {"config.json": (evolved / "config.json").read_bytes()}
    draw, outcomes = random.Random(3), Counter[bool]()
    for _ in range(500):
        write(tmp_path, mutate(whole, draw))
        outcomes[passes(lambda: open_run(tmp_path))] += 1
    assert min(outcomes.values()) > 5
    assert len(outcomes) == 2


@pytest.mark.parametrize("what", ["whole", "claims more", "cut", "not finite"])
def test_a_large_loss_takes_no_more_than_twice_its_size(what: str, evolved: Path, tmp_path: Path) -> None:
    phi = np.zeros(2_000_000, np.float32)
    save_loss(tmp_path, {"phi": phi}, load_loss(evolved).manifest)
    path, tally = tmp_path / "loss.safetensors", Tally()
    if what == "claims more":
        path.write_bytes(path.read_bytes().replace(b"[2000000]", b"[9000000]"))
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-4])
    elif what == "not finite":
        phi[-1] = np.nan
        path.write_bytes(encode_tensors({"phi": phi}, {}))
    attempt(tally, path.stat().st_size, lambda: load_loss(tmp_path))
    assert tally.outcomes == {"loaded" if what == "whole" else "refused": 1}
    assert tally.largest < 2**16


def test_the_measure_of_memory_would_have_noticed() -> None:
    tally = Tally()
    attempt(tally, 1000, lambda: require(len(bytes(3 * 2**20)) == 0, "refused after the fact."))
    assert tally.largest > ALLOWANCE


def test_a_file_of_a_newer_release_says_which(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"format": 3, "epg": "0.9.1"})
    with pytest.raises(
        BadInput, match=r"format 3, newer than this epg reads \(2\): upgrade epg to 0\.9\.1, which wrote"
    ):
        Run.open(run.path)
    run = Run.create(tmp_path / "other", {})
    run.save_checkpoint(2, {}, {})  # not an older one instead: the run would go on from it and delete the newer
    path = run.save_checkpoint(3, {}, {})
    path.write_bytes(encode_tensors({}, {"format": "7", "epg": "2.0", "epoch": "3", "info": "{}"}))
    with pytest.raises(
        BadInput, match=r"epoch-000003\.safetensors has format 7, .*upgrade epg to 2\.0, which wrote it\.$"
    ):
        run.load_checkpoint()


@pytest.mark.parametrize("verb", [epg.learn, epg.compare, epg.render])
def test_a_module_that_a_manifest_names_is_not_imported_unasked(
    verb: Callable[[Path], object], evolved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = load_loss(evolved)
    save_loss(tmp_path / "loss", loss.tensors, {**loss.manifest, "family": "named_by_a_manifest:family"})
    (tmp_path / "named_by_a_manifest.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=r"name it as --family to say that its code may run here\.$"):
        verb(tmp_path / "loss")


def test_a_module_that_a_run_names_is_not_imported_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"format": RUN_FORMAT, "kind": "evolve", "settings": to_dict(Settings(family="named_by_a_run:family"))}
    Run.create(tmp_path / "run", config)
    (tmp_path / "named_by_a_run.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match=r"name it as the family to say that its code may run here\.$"):
        epg.evolve(run=tmp_path / "run", resume=True)
    with pytest.raises(SystemExit, match="it was imported"):
        epg.evolve("named_by_a_run:family", run=tmp_path / "run", resume=True)
