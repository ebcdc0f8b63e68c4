"""The command line: wrong calls end in one sentence and leave the disk as it was; right ones say what they promise."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import epg
from epg.storage.files import read_json, write_json
from epg.storage.metrics import read_metrics
from epg.storage.run import Run, load_loss
from epg.bench import one_core
from epg.cli import VERBS, _parse, main
from epg.recipes import PresetName

EVOLVE = ("evolve", "point-goal", "--preset", "smoke", "--executor", "inline", "--json", "--run")
NO_FEATURES = "epg.families.native.probes:ACTION"


@dataclass(frozen=True)
class Done:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out.splitlines()[-1])


def call(*arguments: object) -> Done:
    """Call the command line in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(it) for it in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Evolved:
    """The one run that the tests of this file share, and what making it printed."""

    path: Path
    done: Done


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Evolved:
    path = tmp_path_factory.mktemp("evolved") / "run"
    return Evolved(path, call(*EVOLVE, path))


@pytest.fixture(autouse=True)
def fresh_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))


# Wrong calls


def cut(name: str) -> Callable[[Path], None]:
    """Return what leaves only the first half of a file, or of every file that matches."""

    def damage(run: Path) -> None:
        for path in run.glob(name):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def change(name: str, *keys: str, to: object) -> Callable[[Path], None]:
    """Return what changes one value in a JSON file."""

    def damage(run: Path) -> None:
        whole = read_json(run / name)
        inner = whole
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        write_json(run / name, whole)

    return damage


def cut_first_line(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[20:])


# What is called ({run}: a copy of the evolved run; {file}: a file), what the sentence says, what was done to the run.
SMOKE = "evolve point-goal --preset smoke --run new"
RESUME = "evolve point-goal --run {run} --resume"
COMPARE = "compare point-goal --loss {run} --tasks 2 --run new"
WRONG: dict[str, tuple[str, str] | tuple[str, str, Callable[[Path], None]]] = {
    "unknown command": ("evolv point-goal", "unknown command 'evolv': choose one of demo, tasks, evolve"),
    "evolve an unknown family": (
        "evolve point-gaol --run new",
        "unknown family 'point-gaol': choose one of point-goal",
    ),
    "learn in an unknown family": ("learn --loss {run} --family x --run new", "unknown family 'x'"),
    "compare in an unknown family": ("compare x --loss {run} --run new", "unknown family 'x'"),
    "baseline in an unknown family": ("baseline ppo x --run new", "unknown family 'x'"),
    "show an unknown family": ("tasks x", "unknown family 'x'"),
    "check an unknown family": ("check x", "unknown family 'x'"),
    "bench an unknown family": ("bench x", "unknown family 'x'"),
    "family in a missing module": ("evolve nowhere.at_all:F --run new", "no module named 'nowhere'"),
    "family that a module lacks": ("check epg.core.rng:F", "module 'epg.core.rng' has no 'F'"),
    "family without a module": ("check :F", "unknown family ':F'"),
    "evolve something that is no family": ("evolve os:path --run new", "'os:path' is a module, not a family"),
    "baseline of something that is no family": ("baseline ppo os:sep", "'os:sep' is a str, not a family"),
    "show something that is no family": ("tasks os:sep", "'os:sep' is a str, not a family"),
    "family after the options": ("evolve --preset smoke point-goal", "needs the family before its options"),
    "unknown preset": ("evolve point-goal --preset huge", "unknown preset 'huge': choose one of smoke, laptop, paper"),
    "preset without a name": ("evolve point-goal --preset", "unknown preset '': choose one of"),
    # settings
    "odd V": (f"{SMOKE} --evolution.noise_vectors 3", r"evolution.noise_vectors \(3\) must be even"),
    "one V": (f"{SMOKE} --evolution.noise_vectors 1", "evolution.noise_vectors must be at least 2"),
    "W no multiple of V": (
        f"{SMOKE} --evolution.lifetimes 10",
        r"lifetimes \(10\) must be a multiple of .*noise_vectors",
    ),
    "W no multiple of the shard": (f"{SMOKE} --evolution.shard 3", r"must be a multiple of evolution.shard \(3\)"),
    "M no multiple of the minibatch": (f"{SMOKE} --lifetime.minibatch 24", r"a multiple of lifetime.minibatch \(24\)"),
    "window below M": (f"{SMOKE} --lifetime.steps_per_update 128", r"loss.window \(64\) must be at least .*\(128\)"),
    "negative sigma": (f"{SMOKE} --evolution.sigma -0.1", "evolution.sigma must be above zero, not -0.1"),
    "sigma that is no number": (f"{SMOKE} --evolution.sigma nan", "evolution.sigma must be above zero, not nan"),
    "no epochs": (f"{SMOKE} --evolution.epochs 0", "evolution.epochs must be above zero, not 0"),
    "negative learning rate": (f"{SMOKE} --lifetime.learning_rate -1", "lifetime.learning_rate must be above zero"),
    "learning rate of zero": (f"{SMOKE} --lifetime.learning_rate 0", "lifetime.learning_rate must be above zero"),
    "products without reward": (
        "evolve point-reach --preset smoke --run new --loss.no-reward --loss.products",
        "loss.products needs loss.reward",
    ),
    "features of a family without": (
        f"evolve {NO_FEATURES} --run new --loss.task_features",
        "loss.task_features is set, but the family has no task features",
    ),
    "head too small": (f"{SMOKE} --loss.hidden 2", "loss.hidden must be at least 5"),
    "window shorter than the convolutions": (
        f"{SMOKE} --loss.window 16 --lifetime.steps_per_update 16 --lifetime.minibatch 16",
        "loss.window of 16 is too short for its convolutions",
    ),
    "objective that looks back too far": (
        f"{SMOKE} --evolution.objective last --evolution.objective_updates 5",
        "evolution.objective_updates must not exceed lifetime.updates",
    ),
    "negative seed": (f"{SMOKE} --seed -1", r"seed must lie in \[0, 2\^32\), not -1"),
    "no processes": (f"{SMOKE} --processes 0", "processes must be above zero, not 0"),
    # places
    "run in the way": ("evolve point-goal --run {run}", "already holds a run: choose another --run, or .* --resume"),
    "run that is a file": ("evolve point-goal --run {file}", "is not a directory: choose another --run"),
    "run below a file": ("evolve point-goal --run {file}/a/run", "file is not a directory, choose another --run"),
    "run where nothing can be made": ("evolve point-goal --run /proc/epg/run", "/proc/epg/run cannot be made"),
    "comparison over a run": (
        "compare point-goal --loss {run} --run {run}",
        "already holds a run: choose another --run",
    ),
    "learning below a file": ("learn --loss {run} --run {file}/run", "is not a directory, choose another --run"),
    "baseline into a file": ("baseline ppo point-goal --run {file}", "is not a directory: choose another --run"),
    # losses
    "no such loss": ("compare point-goal --loss nothing --run new", "no loss at nothing: give a run directory"),
    "loss in a directory without one": ("learn --loss . --run new", "is not a loss: loss.json is missing"),
    "damaged loss": (COMPARE, r"loss.safetensors is damaged: its sha256", cut("loss.safetensors")),
    "damaged manifest": (COMPARE, r"loss.json is damaged", cut("loss.json")),
    "manifest with a wrong type": (
        COMPARE,
        "loss.json is damaged: 'epochs' must be int",
        change("loss.json", "epochs", to="9"),
    ),
    "loss of another family": (
        "compare point-reach --loss {run} --run new",
        "the loss was evolved for point-goal, not point-reach: name the family it was evolved for",
    ),
    "loss of other dimensions": (
        COMPARE,
        "does not fit point-goal, it was evolved for observation 6 instead of 4",
        change("loss.json", "spaces", "observation", to=6),
    ),
    "loss of another version": (
        COMPARE,
        "evolved on version 99 of point-goal",
        change("loss.json", "family_version", to=99),
    ),
    "loss of other settings": (
        COMPARE,
        r"the loss has \d+ parameters where its settings need \d+",
        change("loss.json", "settings", "loss", "context", to=31),
    ),
    "loss of impossible settings": (
        COMPARE,
        "the loss's settings.evolution has no setting named 'sgima'",
        change("loss.json", "settings", "evolution", "sgima", to=1),
    ),
    "no tasks": ("compare point-goal --loss {run} --tasks 0 --run new", "tasks must be above zero, not 0"),
    "negative tasks": ("baseline ppo point-goal --tasks -3 --run new", "tasks must be above zero, not -3"),
    "learning with a negative seed": (
        "learn --loss {run} --seed -1 --run new",
        r"seed must lie in \[0, 2\^32\), not -1",
    ),
    "learning without updates": ("learn --loss {run} --updates 0 --run new", "updates must be above zero, not 0"),
    "no repeats": ("bench --repeats 0", "repeats must be above zero, not 0"),
    # resuming
    "resume without a run": ("evolve point-goal --resume", "--resume needs --run"),
    "resume what is not there": (
        "evolve point-goal --run nothing --resume",
        "nothing does not exist: name the directory",
    ),
    "resume what is no run": ("evolve point-goal --run . --resume", "is not a run: it has no config.json"),
    "resume with another sigma": (
        f"{RESUME} --evolution.sigma 0.5",
        "keeps its settings when resumed: drop --evolution.sigma, only",
    ),
    "resume with another seed": (f"{RESUME} --seed 5", "keeps its settings when resumed: drop --seed"),
    "resume with fewer epochs": (f"{RESUME} --evolution.epochs 2", "may only grow, not from 4 to 2"),
    "resume another family": (
        "evolve point-reach --run {run} --resume",
        "evolves a loss for point-goal, not for point-reach",
    ),
    "resume a comparison": (
        RESUME,
        "is not an evolution: nothing to resume",
        change("config.json", "kind", to="compare"),
    ),
    "resume with a damaged config": (RESUME, "config.json is damaged", cut("config.json")),
    "resume with an impossible config": (
        RESUME,
        "config.json: settings.evolution.sigma must be float, not 'big'",
        change("config.json", "settings", "evolution", "sigma", to="big"),
    ),
    "resume another version": (
        RESUME,
        "begun with version 99 .* start a new run",
        change("config.json", "family_version", to=99),
    ),
    "resume from damaged checkpoints": (
        f"{RESUME} --evolution.epochs 9",
        "no whole checkpoint, start a new run: .*epoch-000004.* is damaged.*epoch-000003.* is damaged",
        cut("checkpoints/*"),
    ),
    "resume with a checkpoint of other settings": (
        RESUME,
        "the checkpoint of .* does not fit its config.json",
        change("config.json", "settings", "loss", "context", to=31),
    ),
    "resume with damaged metrics": (RESUME, r"metrics.jsonl, line 1, is damaged", cut_first_line),
    # reports
    "report of nothing": ("report nothing", "nothing does not exist: name the directory of a run"),
    "report of no run": ("report .", "is not a run: it has no config.json"),
    "report of a file": ("report {file}", "file is not a directory: name the directory of a run"),
    "report of damaged metrics": ("report {run}", r"metrics.jsonl, line 1, is damaged", cut_first_line),
    "report without an epoch": (
        "report {run}",
        "metrics.jsonl holds no epoch",
        lambda run: (run / "metrics.jsonl").write_text(""),
    ),
    "report of a damaged config": ("report {run}", "config.json is damaged", cut("config.json")),
}


def listing(path: Path) -> dict[str, bytes | None]:
    """Return every file below a directory with its content, and every directory."""
    found = sorted(path.rglob("*"))
    return {str(it.relative_to(path)): it.read_bytes() if it.is_file() else None for it in found}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_ends_in_one_sentence_and_writes_nothing(name: str, evolved: Evolved, tmp_path: Path) -> None:
    arguments, says, *damage = WRONG[name]
    run = shutil.copytree(evolved.path, tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    for spoil in damage:
        spoil(run)
    before = listing(tmp_path)
    done = call(*shlex.split(arguments.format(run=run, file=tmp_path / "file")))
    assert done.code == 2, done
    assert done.out == ""
    sentence = done.err.strip()
    assert sentence.startswith("epg: ")
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    assert re.search(r"[a-z)\]'\d]\.$", sentence)
    assert not re.search(r"[.!?] [A-Z]", sentence), "more than one sentence"
    assert re.search(says, sentence), sentence
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("evolve point-goal --evolution.epoch 3", "--evolution.epoch"),
        ("evolve point-goal --evolution.epochs many", "epochs"),
        ("evolve point-goal --evolution.sigma big", "sigma"),
        ("evolve point-goal --executor cloud", "inline"),
        ("evolve point-goal --loss.init random", "target-action"),
        ("evolve point-goal point-reach", "point-reach"),
        ("evolve", "FAMILY"),
        ("compare point-goal", "--loss"),
        ("learn --family point-goal", "--loss"),
        ("learn --loss x --tasks 2.5", "--tasks"),
        ("baseline sarsa point-goal", "reinforce"),
        ("report", "RUN"),
    ],
)
def test_a_wrong_option_is_named_and_writes_nothing(arguments: str, says: str, tmp_path: Path) -> None:
    done = call(*arguments.split())
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert listing(tmp_path) == {"here": None}


def test_a_run_in_use_is_left_alone(evolved: Evolved, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(evolved.path, tmp_path / "run"))
    before = listing(run.path)
    with run.lock():
        done = call("evolve", "point-goal", "--run", run.path, "--resume", "--evolution.epochs", "9")
    assert (done.code, done.out) == (2, "")
    assert "is in use by another process: wait for it or stop it." in done.err
    assert listing(run.path) == before


@pytest.mark.parametrize("wrong", [{"executor": "cloud"}, {"processes": 0}, {"preset": "huge"}, {"seed": -1}])
def test_python_refuses_as_early(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(epg.BadInput, match=next(iter(wrong))):
        epg.evolve("point-goal", **{"preset": "smoke", "run": "new"} | wrong)
    assert listing(tmp_path) == {"here": None}


def test_check_fails_what_is_not_a_family() -> None:
    done = call("check", "os:sep", "--json")
    assert done.code == 1
    assert done.json == [
        {
            "name": "is a family record",
            "passed": False,
            "problem": "must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not str",
        }
    ]
    assert (
        done.err.strip()
        == "FAIL is a family record: must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not str"
    )


def test_a_family_that_fails_is_a_sentence_and_leaves_a_run_to_look_at(tmp_path: Path) -> None:
    Path("broken.py").write_text(
        "from dataclasses import replace\nfrom epg.families.native.point import POINT_GOAL\n"
        "BROKEN = replace(POINT_GOAL, step=lambda state, action, task: 1 / 0)\n"
    )
    done = call("evolve", "broken:BROKEN", "--preset", "smoke", "--executor", "inline", "--run", "run")
    assert done.code == 1
    assert "epg: epg.evolution.worker:build failed: ZeroDivisionError: division by zero." in done.err
    assert "Traceback" not in done.err


# Right calls


def test_evolve_ends_with_the_line_that_scripts_read(evolved: Evolved) -> None:
    done, manifest = evolved.done, load_loss(evolved.path).manifest
    assert done.code == 0
    assert done.json == {
        "run": str(evolved.path),
        "epoch": 4,
        "env_steps": 4 * 8 * (4 * 32 + 3 * 32),
        "loss_sha256": manifest["sha256"],
    }
    assert [record["epoch"] for record in read_metrics(evolved.path / "metrics.jsonl")] == [0, 1, 2, 3]
    assert f"epg compare point-goal --loss {evolved.path}" in done.err


def test_evolve_draws_its_figure_and_report(evolved: Evolved) -> None:
    assert_drawn(evolved.path, "fitness")


def assert_drawn(run: Path, name: str) -> None:
    assert (run / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (run / "figures" / f"{name}.svg").read_bytes()
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_resuming_a_finished_run_changes_nothing(evolved: Evolved, tmp_path: Path) -> None:
    run = shutil.copytree(evolved.path, tmp_path / "run")
    done = call(*EVOLVE, run, "--resume")
    assert done.code == 0
    assert done.json == evolved.done.json | {"run": str(run)}
    for name in ("metrics.jsonl", "config.json", "loss.safetensors", "loss.json", "report.html"):
        assert (run / name).read_bytes() == (evolved.path / name).read_bytes()


def test_resuming_for_more_epochs_ends_where_one_run_would(evolved: Evolved, tmp_path: Path) -> None:
    run = shutil.copytree(evolved.path, tmp_path / "run")
    longer = call(*EVOLVE, run, "--resume", "--evolution.epochs", 6).json
    whole = call(*EVOLVE, tmp_path / "whole", "--evolution.epochs", 6).json
    assert longer["epoch"] == whole["epoch"] == 6
    assert longer["loss_sha256"] == whole["loss_sha256"] != evolved.done.json["loss_sha256"]
    assert read_json(run / "config.json") == read_json(tmp_path / "whole" / "config.json")


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_an_option_overrides_its_preset(preset: PresetName) -> None:
    arguments = f"evolve point-reach --preset={preset} --evolution.sigma 0.125 --loss.progress --seed=7"
    expected = epg.preset("point-reach", preset)
    assert _parse(arguments.split()).settings == replace(
        expected,
        seed=7,
        loss=replace(expected.loss, progress=True),
        evolution=replace(expected.evolution, sigma=0.125),
    )


def test_learn_takes_the_family_from_the_loss(evolved: Evolved) -> None:
    done = call("learn", "--loss", evolved.path, "--tasks", 6, "--json")
    assert done.code == 0
    assert (done.json["family"], done.json["tasks"], done.json["steps"]) == ("point-goal", 6, 128)
    assert set(done.json["epg"]) == {"value", "low", "high"}
    assert_drawn(Path(done.json["run"]), "learning_curves")
    assert Path(done.json["run"]).parent == Path("runs")


def test_compare_prints_the_interval_of_the_paired_difference(evolved: Evolved, tmp_path: Path) -> None:
    done = call("compare", "point-goal", "--loss", evolved.path, "--tasks", 6, "--run", "out", "--json")
    assert done.code == 0
    assert (done.json["family"], done.json["tasks"], done.json["steps"]) == ("point-goal", 6, 128)
    for name in ("epg", "ppo", "difference"):
        interval = done.json[name]
        assert set(interval) == {"value", "low", "high"}
        assert interval["low"] <= interval["value"] <= interval["high"]
    assert "paired difference" in done.err
    assert_drawn(Path("out"), "learning_curves")


def test_compare_gives_ppo_other_steps(evolved: Evolved) -> None:
    arguments = ("compare", "point-goal", "--loss", evolved.path, "--tasks", 2, "--ppo-steps", 256, "--run", "out")
    done = call(*arguments, "--json")
    assert done.code == 0
    assert [it["steps"] for it in done.json["methods"].values()] == [128, 256]
    assert "with 256 steps instead of 128" in Path("out/report.html").read_text()
    assert_drawn(Path("out"), "learning_curves")


def test_evolve_starts_from_a_loss(evolved: Evolved) -> None:
    done = call("evolve", "point-goal", "--preset", "smoke", "--start", evolved.path, "--run", "out", "--json")
    assert done.code == 0
    assert done.json["env_steps"] == 2 * evolved.done.json["env_steps"]
    assert done.json["loss_sha256"] != evolved.done.json["loss_sha256"]
    refused = call("evolve", "point-goal", "--run", "out", "--resume", "--start", evolved.path)
    assert refused.code == 2
    assert "drop start" in refused.err


def test_baseline_trains_by_hand() -> None:
    done = call("baseline", "reinforce", "point-goal", "--tasks", 2, "--updates", 4, "--run", "out", "--json")
    assert done.code == 0
    assert (done.json["tasks"], list(done.json["methods"])) == (2, ["reinforce"])
    assert "REINFORCE reaches a final return" in Path("out/report.html").read_text()


def test_losses_lists_whole_ones(evolved: Evolved, tmp_path: Path) -> None:
    for name in ("whole", "damaged"):
        shutil.copytree(evolved.path, tmp_path / "runs" / name)
    cut("loss.safetensors")(tmp_path / "runs" / "damaged")
    done = call("losses", "--runs", tmp_path / "runs", "--json")
    found = [it for it in done.json if it["name"] == str(tmp_path / "runs" / "whole")]
    assert found == [
        {"name": str(tmp_path / "runs" / "whole"), "family": "point-goal", "epochs": 4}
        | {"env_steps": evolved.done.json["env_steps"], "sha256": evolved.done.json["loss_sha256"], "licence": "MIT"}
        | {"reward": True, "fitness": found[0]["fitness"], "held_out": None}
    ]
    epochs = [json.loads(line) for line in (evolved.path / "metrics.jsonl").read_text().splitlines()]
    assert found[0]["fitness"] == pytest.approx(sum(it["fitness_mean"] for it in epochs) / 4, rel=1e-6)
    assert "damaged" not in done.out


def test_shipped_losses_tell_what_was_measured() -> None:
    shipped = {it["name"]: it for it in call("losses", "--json").json}
    for name, loss in shipped.items():
        measured = loss["held_out"]
        assert measured, f"{name} is shipped without held_out.json: run tools/results.py {name}"
        assert measured["tasks"] >= 20
        assert measured["return"]["low"] <= measured["return"]["value"] <= measured["return"]["high"]
        assert measured["return"]["value"] > measured["ppo"]["value"]


def test_report_is_drawn_anew(evolved: Evolved, tmp_path: Path) -> None:
    run = shutil.copytree(evolved.path, tmp_path / "run")
    shutil.rmtree(run / "figures")
    (run / "report.html").unlink()
    done = call("report", run)
    assert (done.code, done.out) == (0, f"{run / 'report.html'}\n")
    assert_drawn(run, "fitness")


def test_check_passes_a_family() -> None:
    done = call("check", "point-reach", "--json")
    assert done.code == 0
    assert len(done.json) > 5
    assert all(it["passed"] for it in done.json)
    assert done.err.count("ok") == len(done.json)


def test_tasks_lists_families_and_shows_one() -> None:
    names = [it["name"] for it in call("tasks", "--json").json]
    assert names[:4] == ["point-goal", "point-reach", "random-pendulum", "random-cart-pole"]
    shown = call("tasks", "point-goal")
    assert shown.code == 0
    assert shown.out.rstrip() == epg.load_family("point-goal").specification.rstrip()
    assert "Reward:" in shown.out


def test_bench_takes_a_lifetime_apart() -> None:
    done = call("bench", "random-reacher", "--repeats", 1, "--updates", 1, "--json")
    assert done.code == 0
    assert done.json["family"] == "random-reacher"
    parts = done.json["microseconds_per_step"]
    assert sum(parts[name] for name in ("act", "physics", "update", "rest")) == pytest.approx(parts["lifetime"])
    assert done.json["lifetime_steps_per_s"] == pytest.approx(1e6 / parts["lifetime"])
    assert done.json["time_over_raw"] == pytest.approx(parts["lifetime"] / parts["raw"])
    assert done.json["rate_over_stock"] == pytest.approx(parts["stock"] / parts["lifetime"])
    assert done.json["raw_steps_per_s"] / done.json["stock_steps_per_s"] > 0.5
    assert done.json["two_process_speedup"] > 0


def test_bench_stays_on_one_core_and_gives_the_others_back() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_bench_of_a_jax_family_has_no_physics_to_compare_with() -> None:
    done = call("bench", "point-goal", "--repeats", 1, "--updates", 1, "--json")
    assert done.code == 0
    assert done.json["lifetime_steps_per_s"] > 0
    assert done.json["time_over_raw"] is None


def test_version_and_help() -> None:
    assert call("--version") == Done(0, f"epg {epg.__version__}\n", "")
    for arguments in ((), ("--help",), ("-h",)):
        assert all(f"\n  {verb} " in call(*arguments).out for verb in VERBS)
    for verb in VERBS:
        done = call(verb, "--help")
        assert done.code == 0
        assert f"epg {verb}" in done.out


# Ctrl-C


def interrupt(command: list[str], run: Path, lines: int) -> Done:
    """Start a command, press Ctrl-C once the run has so many lines of metrics, and wait for its end."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline, "no epoch in five minutes"
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=120)
    return Done(started.returncode, out, err)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    run, program = tmp_path / "a run", [sys.executable, "-m", "epg"]
    evolve = "evolve point-goal --preset smoke --evolution.epochs 500 --processes 1 --run"
    first = interrupt([*program, *evolve.split(), str(run)], run, lines=2)
    done = assert_saved(run, first)
    assert done >= 2
    (resume,) = re.findall(r"Go on with: epg (.*)", first.err)
    assert resume.endswith("--resume --processes 1")
    again = interrupt([*program, *shlex.split(resume)], run, lines=done + 2)
    assert assert_saved(run, again) >= done + 2


def test_a_stopped_command_leaves_at_once() -> None:
    # Taken down in the usual way, the interpreter would free what XLA still computes with.
    typed = """
import atexit, sys
from epg import cli
def verb(arguments):
    print("half a line", end="")
    raise KeyboardInterrupt
atexit.register(print, "taken down")
cli._parse = verb
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", typed], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "half a line")
    assert done.stderr == "\nepg: stopped.\n"


def assert_saved(run: Path, stopped: Done) -> int:
    """Check that all a stopped run left is whole and of one epoch; return that epoch."""
    assert (stopped.code, stopped.out) == (130, "")
    assert "Traceback" not in stopped.err
    assert "epg: stopped; every finished epoch and search step is saved." in stopped.err
    epochs = [record["epoch"] for record in read_metrics(run / "metrics.jsonl")]
    assert epochs == list(range(len(epochs)))
    checkpoint = Run.open(run).load_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.epoch, checkpoint.skipped) == (len(epochs), ())
    assert load_loss(run).manifest["epochs"] == len(epochs)
    return len(epochs)
