"""Whatever lies on disk or is typed, a verb succeeds or ends in one sentence with exit code 2."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mutations import mutate

from epg.api import settings_for
from epg.cli import main
from epg.evaluation.protocol import MethodResult, curves, table
from epg.evolution.loop import evolve_run
from epg.evolution.runs import create_run
from epg.storage.artefact import _manifest_digest
from epg.storage.files import encode_tensors, write_json
from epg.storage.run import RUN_FORMAT, Run
from epg.zoo import ZOO

FAMILY = "point-goal"
ODD = ("x" * 5000, "[/b]:x", "$\\frac", "a\x1b[31mb", "[red]", "\udcff", "..", "", " ", "🦔:x", "-", "a\nb", ":smile:")
VERBS = {"losses": 8, "learn": 5, "render": 3, "report": 2, "resume": 1, "check": 1}
"""How often each is tried, in proportion."""
MUCH_MEMORY = 600 * 2**20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What is mutated: an evolution, a comparison and a loss of a MuJoCo family."""
    folder = tmp_path_factory.mktemp("whole")
    settings = settings_for(FAMILY, "smoke", 0)
    settings = replace(settings, evolution=replace(settings.evolution, epochs=1))
    evolve_run(create_run(settings, folder / "evolution"), settings, "inline")
    results = [
        MethodResult(name, name, 32, np.arange(3.0), np.full((3, 64), 1.5), np.ones((3, 2))) for name in ("epg", "ppo")
    ]
    compared = Run.create(folder / "comparison", {"format": RUN_FORMAT, "kind": "compare", "family": FAMILY})
    (compared.path / "curves.safetensors").write_bytes(encode_tensors(curves(results), {}))
    write_json(compared.path / "results.json", table(results, FAMILY, 0))
    loss = folder / "loss"
    loss.mkdir()
    for name in ("loss.json", "loss.safetensors"):
        shutil.copy(ZOO / "directional-half-cheetah" / name, loss)
    return {"evolution": folder / "evolution", "comparison": compared.path, "loss": loss}


def call(*arguments: str) -> tuple[int, str]:
    """Run a verb in this process; return its exit code and all that it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(list(arguments))
        except SystemExit as end:
            return (end.code if isinstance(end.code, int) else 0), said.getvalue()
        except BaseException:
            return -1, traceback.format_exc()
    return 0, said.getvalue()


def mutant(source: Path, names: tuple[str, ...], place: Path, draw: random.Random) -> Path:
    """Copy a directory with one or two of these files changed, sometimes under an odd name."""
    odd = draw.choice(ODD)
    name = odd if draw.random() < 0.1 and 0 < len(odd.encode("utf-8", "surrogateescape")) < 200 else "run"
    there = place / "runs" / ("run" if name == ".." else name)
    shutil.copytree(source, there)
    for name, data in mutate({it: (source / it).read_bytes() for it in names}, draw).items():
        (there / name).write_bytes(data)
    return there


def arguments(verb: str, whole: dict[str, Path], place: Path, draw: random.Random) -> list[str]:
    """Mutate what a verb reads; return the command. None of these trains: the last check of each refuses that."""
    typed, loss = draw.choice(ODD), ("loss.json", "loss.safetensors")
    if verb == "check":
        return ["check", typed, *(["--json"] if draw.random() < 0.5 else [])]
    if draw.random() < 0.1:
        return {
            "losses": ["losses", "--runs", typed],
            "learn": ["learn", typed, "--tasks", "0"],
            "render": ["render", typed, "--stages", "0"],
            "report": ["report", typed],
            "resume": ["evolve", FAMILY, "--run", typed, "--resume"],
        }[verb]
    if verb in ("learn", "render"):
        there = mutant(whole["loss"], loss, place, draw)
        return [verb, str(there), "--out", str(there / "film"), "--stages", "0"][: 2 if verb == "learn" else 6] + (
            ["--tasks", "0"] if verb == "learn" else []
        )
    if verb == "losses":
        mutant(whole["loss"], loss, place, draw)
        return ["losses", "--runs", str(place / "runs"), *(["--json"] if draw.random() < 0.3 else [])]
    if verb == "report" and draw.random() < 0.5:
        return ["report", str(mutant(whole["comparison"], ("results.json", "curves.safetensors"), place, draw))]
    names = ("config.json", "metrics.jsonl", *loss)
    if verb == "report":
        return ["report", str(mutant(whole["evolution"], names, place, draw))]
    names = ("config.json", "metrics.jsonl", "checkpoints/epoch-000001.safetensors")
    there = mutant(whole["evolution"], names, place, draw)
    return ["evolve", FAMILY, "--run", str(there), "--resume", "--executor", "inline"]


def fuzz(cases: int, seed: int, whole: dict[str, Path], place: Path) -> None:
    draw, outcomes = random.Random(seed), Counter[tuple[str, int]]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(cases):
        verb = draw.choices(list(VERBS), list(VERBS.values()))[0]
        given = arguments(verb, whole, place, draw)
        code, said = call(*given)
        assert code in (0, 2), f"case {number}, {[it[:99] for it in given]}: {code}\n{said[-999:]}"
        assert all(letter.isprintable() or letter == "\n" for letter in said), f"case {number}: {said[:999]!r}"
        assert code == 0 or said.count("epg: ") == 1 or verb == "check" or "--" in said, said
        outcomes[verb, code] += 1
        assert set(os.listdir(place)) <= {"runs"}, f"case {number} wrote elsewhere"
        shutil.rmtree(place / "runs", ignore_errors=True)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MUCH_MEMORY
    assert all(outcomes[verb, 2] > 0 for verb in VERBS), outcomes
    assert outcomes["losses", 0] > 0
    assert outcomes["report", 0] > 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_500_mutants_end_in_success_or_a_sentence(whole: dict[str, Path], place: Path) -> None:
    fuzz(500, 1, whole, place)


@pytest.mark.slow
def test_20000_mutants_end_in_success_or_a_sentence(whole: dict[str, Path], place: Path) -> None:
    fuzz(20_000, 2, whole, place)


# What an attack found, one by one.


def in_manifest(**values: object) -> Callable[[Path], None]:
    """Change entries of a manifest and sign it again, as whoever wants to be believed would."""

    def change(run: Path) -> None:
        manifest = json.loads((run / "loss.json").read_text())
        for name, value in values.items():
            section = manifest["settings"][name] if isinstance(value, dict) else manifest
            section.update(value) if isinstance(value, dict) else section.update({name: value})
        manifest["manifest_sha256"] = _manifest_digest(manifest)
        (run / "loss.json").write_text(json.dumps(manifest))

    return change


FOUND = {
    "markup in a licence": (in_manifest(licence="[/x]"), 0, "[/x]"),
    "escape codes in a family": (in_manifest(family="a\x1b[31mb"), 0, "a [31mb"),
    "a number of 400 digits": (in_manifest(env_steps=10**400), 0, "point-goal"),
    "a policy of 10^12 units": (in_manifest(policy={"hidden": [10**12]}), 0, "point-goal"),
}


@pytest.mark.parametrize("name", FOUND)
def test_losses_lists_beside_a_bad_one(name: str, whole: dict[str, Path], place: Path) -> None:
    change, code, shown = FOUND[name]
    shutil.copytree(whole["loss"], place / "runs" / "[/b]")
    change(place / "runs" / "[/b]")
    assert call("losses")[0] == code
    assert shown in call("losses")[1]


@pytest.mark.parametrize("width", [10**12, 10**18, 10**30])
def test_a_policy_that_no_machine_holds_is_refused(width: int, whole: dict[str, Path], place: Path) -> None:
    shutil.copytree(whole["loss"], place / "runs" / "loss")
    in_manifest(policy={"hidden": [width, width]})(place / "runs" / "loss")
    code, said = call("learn", "runs/loss", "--tasks", "1")
    assert code == 2
    assert "Traceback" not in said


def test_a_working_directory_that_is_gone_or_holds_a_colon(tmp_path: Path) -> None:
    gone, colon = tmp_path / "gone", tmp_path / "a:b"
    gone.mkdir()
    colon.mkdir()
    call = ["sh", "-c", 'rmdir "$PWD" && exec "$0" -m epg losses', sys.executable]
    done = subprocess.run(call, cwd=gone, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1][:34]) == (2, "epg: the working directory is gone")
    (colon / "mine.py").write_text("from workloads import double\n")
    code = """
import numpy as np, sys
sys.path.insert(0, "")
from epg.executors import make_executor
with make_executor("local", "mine:double", {"factor": 2}, 1) as executor:
    print(executor.map([{"x": np.asarray(2)}])[0]["y"])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=colon, capture_output=True, text=True, env=environment)
    assert done.stdout == "4\n", done.stderr
