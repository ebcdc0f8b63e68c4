"""The command line: wrong calls end in one sentence and leave the disk as it was; right ones say what they promise."""

import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import epg
from epg.bench import bench_settings, one_core, summary
from epg.bench.timed_lifetimes import make_timed
from epg.cli import VERBS, _parse, main
from epg.cli import demo as demonstration
from epg.cli.progress import evolve_with_bar
from epg.evaluation.fitting import fitting_learner, obs_stats_of, settings_of
from epg.families.registry import is_registered
from epg.recipes import PRESETS, PresetName
from epg.settings import MamlSettings, PolicySettings, RL2Settings, flat
from epg.storage.artefact import _manifest_digest
from epg.storage.files import read_json, write_json
from epg.storage.loss_artefact import load_loss
from epg.storage.metrics import read_metrics
from epg.storage.policy_artefact import load_policy
from epg.storage.run import Run
from epg.zoo import HELD_OUT, ZOO, zoo_names

EVOLVE = ("evolve", "point-goal", "--preset", "smoke", "--executor", "inline", "--json", "--run")
NO_FEATURES = "probe_families:ACTION"


@dataclass(frozen=True)
class Done:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Return what a call with --json printed: one line, and nothing else on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)


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
    return Evolved(path, call(*EVOLVE, path, "--licence", "CC0-1.0"))


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
    """Return what changes one value in a JSON file; a loss is signed again, as who changed it could."""

    def damage(run: Path) -> None:
        whole = read_json(run / name)
        inner = whole
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        if name == "loss.json":
            whole["manifest_sha256"] = _manifest_digest(whole)
        write_json(run / name, whole)

    return damage


def replace_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Return what replaces some text in a file."""

    def damage(run: Path) -> None:
        text = (run / name).read_text()
        assert text.count(old) == 1
        (run / name).write_text(text.replace(old, new))

    return damage


def cut_first_line(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[20:])


# What is called ({run}: a copy of the evolved run; {file}: a file), what the sentence says, what was done to the run.
SMOKE = "evolve point-goal --preset smoke --run new"
RESUME = "evolve point-goal --run {run} --resume"
COMPARE = "compare {run} --tasks 2 --run new"
WRONG: dict[str, tuple[str, str] | tuple[str, str, Callable[[Path], object]]] = {
    "unknown command": (
        "evolv point-goal",
        "unknown command 'evolv' .did you mean evolve.*: choose one of demo, tasks, evolve",
    ),
    "evolve an unknown family": (
        "evolve point-gaol --run new",
        "unknown family 'point-gaol' .did you mean point-goal.*: choose one of point-goal",
    ),
    "learn in an unknown family": ("learn {run} --family x --run new", "unknown family 'x'"),
    "compare in an unknown family": ("compare {run} --family x --run new", "unknown family 'x'"),
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
        "evolve point-reach --preset smoke --run new --loss.modulation reward",
        "loss.modulation reward needs reward",
    ),
    "more mixes than statistics": (
        "evolve point-goal --preset smoke --run new --loss.modulation lasting-reward --loss.mixes 9",
        "loss.mixes must be at most 6 here",
    ),
    "negative bonus": (f"{SMOKE} --evolution.survival -1", "evolution.survival must be finite and not negative"),
    "endless bonus": (f"{SMOKE} --evolution.survival inf", "evolution.survival must be finite and not negative"),
    "a half beta": (f"{SMOKE} --evolution.betas 0.9 1", "The second of evolution.betas must lie between 0 and 1"),
    "no target action": (
        "evolve random-walker --preset smoke --run new --evolution.evolves target --loss.init random",
        "evolution.evolves target needs loss.init target-action",
    ),
    "features of a family without": (
        f"evolve {NO_FEATURES} --run new --loss.inputs task-features",
        "loss.inputs names task-features, but the family has no task features",
    ),
    "an input twice": (f"{SMOKE} --loss.inputs reward reward", "loss.inputs must not name an input twice"),
    "pairs without pairs": (
        f"{SMOKE} --evolution.rule ars --evolution.task-sharing none",
        "evolution.rule ars needs evolution.task_sharing pair or all",
    ),
    "head too small": (f"{SMOKE} --loss.hidden 2", "loss.hidden must be at least 5"),
    "window shorter than the convolutions": (
        f"{SMOKE} --loss.temporal policy --loss.window 16 --lifetime.steps_per_update 16 --lifetime.minibatch 16",
        "loss.window of 16 is too short for its convolutions",
    ),
    "negative seed": (f"{SMOKE} --seed -1", r"seed must lie in \[0, 2\^32\), not -1"),
    "no processes": (f"{SMOKE} --processes 0", "processes must be above zero, not 0"),
    # places
    "run in the way": ("evolve point-goal --run {run}", "already holds a run: choose another --run, or .* --resume"),
    "run that is a file": ("evolve point-goal --run {file}", "is not a directory: choose another --run"),
    "run below a file": ("evolve point-goal --run {file}/a/run", "file is not a directory, choose another --run"),
    "run where nothing can be made": ("evolve point-goal --run /proc/epg/run", "/proc/epg/run cannot be made"),
    "comparison over a run": ("compare {run} --run {run}", "already holds a run: choose another --run"),
    "learning below a file": ("learn {run} --run {file}/run", "is not a directory, choose another --run"),
    "baseline into a file": ("baseline ppo point-goal --run {file}", "is not a directory: choose another --run"),
    "search into a run": (
        "baseline fixed point-goal --env-steps 1 --run {run}",
        "already holds a run: choose another --run",
    ),
    # losses
    "no such loss": ("compare nothing --run new", r"no loss at nothing: give a run directory, or .* in the zoo \(.*\)"),
    "loss in a directory without one": ("learn . --run new", "is not a loss: loss.json is missing"),
    "damaged loss": (COMPARE, r"loss.safetensors is damaged: its sha256", cut("loss.safetensors")),
    "damaged manifest": (COMPARE, r"loss.json is damaged", cut("loss.json")),
    "manifest changed by hand": (
        COMPARE,
        "loss.json is damaged: its content does not match its manifest_sha256",
        replace_text("loss.json", '"env_steps": ', '"env_steps": 1'),
    ),
    "loss of an older format": (
        COMPARE,
        r"loss.json has format 1, older than this epg reads \(2\): make it again",
        change("loss.json", "format", to=1),
    ),
    "manifest with a wrong type": (
        COMPARE,
        "loss.json is damaged: 'epochs' must be int",
        change("loss.json", "epochs", to="9"),
    ),
    "loss of another family": (
        "compare {run} --family random-pendulum --run new",
        "does not fit random-pendulum, it was evolved for point-goal: observation 4 instead of 3, action 2 instead",
    ),
    "loss of other dimensions": (
        COMPARE,
        "does not fit point-goal, it was evolved for point-goal: observation 6 instead of 4",
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
        change("loss.json", "settings", "loss", "hidden", to=15),
    ),
    "loss of impossible settings": (
        COMPARE,
        "the loss's settings.evolution has no setting named 'sgima'",
        change("loss.json", "settings", "evolution", "sgima", to=1),
    ),
    "no tasks": ("compare {run} --tasks 0 --run new", "tasks must be above zero, not 0"),
    "tasks without end": ("learn {run} --tasks 1000000000000 --run new", "tasks must be at most 1,048,576"),
    "lifetimes without end": ("learn {run} --lifetimes 10000000 --run new", "lifetimes must be at most 1,048,576"),
    "probing tasks without end": ("probe {run} --tasks 1000000000000 --run new", "tasks must be at most 1,048,576"),
    "no lifetimes of a search": (
        "baseline fixed point-goal --env-steps 9 --lifetimes 0 --run new",
        "lifetimes must be above zero, not 0",
    ),
    "no steps for PPO": ("compare {run} --tasks 1 --ppo-steps 0 --run new", "PPO's steps must be above zero, not 0"),
    "negative steps for PPO": ("compare {run} --ppo-steps 64 -1 --run new", "PPO's steps must be above zero, not -1"),
    "negative tasks": ("baseline ppo point-goal --tasks -3 --run new", "tasks must be above zero, not -3"),
    "learning with a negative seed": (
        "learn {run} --seed -1 --run new",
        r"seed must lie in \[0, 2\^32\), not -1",
    ),
    "learning without updates": ("learn {run} --updates 0 --run new", "updates must be above zero, not 0"),
    # fixed policies
    "search without a budget": ("baseline fixed point-goal --run new", "baseline fixed needs --env-steps: its budget"),
    "search with no budget": (
        "baseline fixed point-goal --env-steps 0 --run new",
        "env_steps must be above zero, not 0",
    ),
    "search with updates": (
        "baseline fixed point-goal --env-steps 9 --updates 3",
        "--updates is for ppo and reinforce, not for fixed",
    ),
    "search without tasks": (
        "baseline fixed point-goal --env-steps 9 --tasks 0 --run new",
        "tasks must be above zero, not 0",
    ),
    "search with discrete actions": (
        "baseline fixed random-cart-pole --env-steps 9 --run new",
        "a fixed linear policy needs continuous actions, not random-cart-pole's",
    ),
    "PPO with a budget of search": (
        "baseline ppo point-goal --env-steps 9 --run new",
        "--env-steps is for fixed, fixed-ppo, maml and rl2, not for ppo",
    ),
    "PPO resumed": (
        "baseline ppo point-goal --resume --run {run}",
        "--resume is for fixed, fixed-ppo, maml and rl2, not for ppo",
    ),
    "search resumed without a run": ("baseline fixed point-goal --resume", "--resume needs --run"),
    "search resumed in an evolution": (
        "baseline fixed point-goal --resume --run {run}",
        "is not a search for a fixed policy",
    ),
    "search resumed with a budget": (
        "baseline fixed point-goal --resume --run {run} --env-steps 9",
        "keeps its budget and its seed when resumed: drop them",
    ),
    "MAML without a budget": ("baseline maml point-goal --run new", "baseline maml needs --env-steps: its budget"),
    "RL2 resumed in an evolution": ("baseline rl2 point-goal --resume --run {run}", "is not an RL² training"),
    "comparison with a baseline that was not trained": (
        "compare {run} --with ppo maml --run new",
        "no run below runs/ has trained maml for point-goal: `epg baseline maml point-goal --env-steps N` trains one",
    ),
    "comparison with a policy of a loss": (
        "compare {run} --with nothing --run new",
        "unknown method 'nothing': compare with ppo",
    ),
    # warm starts
    "start from nothing": (f"{SMOKE} --start nothing", "no loss and no policy at nothing: give the directory of one"),
    "start from a loss of another family": (
        "evolve point-reach --preset smoke --start {run} --run new",
        "the loss to start from has other inputs or sizes: set --loss.inputs reward",
    ),
    "start from a damaged loss": (f"{SMOKE} --start {{run}}", "loss.safetensors is damaged", cut("loss.safetensors")),
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
        "is a run for point-goal, not for point-reach",
    ),
    "resume a comparison": (
        RESUME,
        "is not an evolution: nothing to resume",
        change("config.json", "kind", to="compare"),
    ),
    "resume a run of an older format": (
        RESUME,
        r"config.json has format 1, older than this epg reads \(2\): make it again",
        change("config.json", "format", to=1),
    ),
    "resume a run that lost its warm start": (
        RESUME,
        "lost its warm start: begin a new run",
        lambda run: (change("config.json", "warm_start", to={"kind": "loss"})(run), shutil.rmtree(run / "checkpoints")),
    ),
    "resume with an impossible warm start": (
        RESUME,
        "config.json: warm_start must be null, or say of what kind the start was",
        change("config.json", "warm_start", to="a loss"),
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
        r"epoch-000004.safetensors does not belong to .*config.json: that was edited",
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
        ("evolve point-goal --loss.init ones", "target-action"),
        ("evolve point-goal --loss.inputs rewards", "observation-products"),
        ("evolve point-goal --search.steps 3", "--search.steps"),
        ("evolve point-goal --loss.init_switch reward", "--loss.init_switch"),
        ("evolve point-goal --evolution.objective last", "--evolution.objective"),
        ("evolve point-goal --guidance.mode mix", "--guidance.mode"),
        ("evolve point-goal point-reach", "point-reach"),
        ("evolve", "FAMILY"),
        ("compare", "LOSS"),
        ("learn --family point-goal", "LOSS"),
        ("learn x --tasks 2.5", "--tasks"),
        ("compare x --ppo-steps many", "--ppo-steps"),
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


def test_python_resumes_with_the_settings_of_the_run(evolved: Evolved, tmp_path: Path) -> None:
    run = shutil.copytree(evolved.path, tmp_path / "run")
    resumed = epg.evolve("point-goal", run=run, resume=True, executor="inline")  # the preset is not asked again
    assert (resumed.epoch, resumed.loss_sha256) == (4, evolved.done.json["loss_sha256"])
    with pytest.raises(epg.BadInput, match="is a run for point-goal, not for point-reach"):
        epg.evolve("point-reach", run=run, resume=True)
    with pytest.raises(epg.BadInput, match="keeps its seed when resumed"):
        epg.evolve("point-goal", run=run, resume=True, seed=7)


def test_check_fails_what_is_not_a_family() -> None:
    problem = "must be a JaxFamily or a HostFamily (MujocoFamily, GymFamily), not str"
    done = call("check", "os:sep", "--json")
    assert done.code == 1
    assert done.json == [{"name": "is a family record", "passed": False, "problem": problem}]
    done = call("check", "os:sep")
    assert (done.code, done.out) == (1, f"FAIL is a family record: {problem}\n")


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
    assert f"epg compare {evolved.path}\n" in done.err


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
    whole = call(*EVOLVE, tmp_path / "whole", "--evolution.epochs", 6, "--licence", "CC0-1.0").json
    assert longer["epoch"] == whole["epoch"] == 6
    assert longer["loss_sha256"] == whole["loss_sha256"] != evolved.done.json["loss_sha256"]
    assert read_json(run / "config.json") == read_json(tmp_path / "whole" / "config.json")


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_an_option_overrides_its_preset(preset: PresetName) -> None:
    arguments = f"evolve point-reach --preset={preset} --evolution.sigma 0.125 --loss.inputs task-features --seed=7"
    expected = epg.preset("point-reach", preset)
    assert _parse(arguments.split()).settings == replace(
        expected,
        seed=7,
        loss=replace(expected.loss, inputs=("task-features",)),
        evolution=replace(expected.evolution, sigma=0.125),
    )


def shown_defaults(text: str) -> dict[str, str]:
    """Return the default of every option in a help text, by its dotted name."""
    flat_text = " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())
    options = re.split(r" --(?!no-|[a-z]+\.no-)(?=[a-z])", flat_text)
    found = {}
    for option in options:
        name, default = re.match(r"[a-z0-9_.-]+", option), re.search(r"\(default: ?(.*?)\)", option)
        if name and default:
            found[name[0].replace("-", "_")] = default[1]
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("family", ["point-goal", "random-hopper", "directional-half-cheetah", "goal-ant-left"])
def test_help_shows_the_values_of_the_family_and_its_preset(family: str, preset: PresetName) -> None:
    done = call("evolve", family, "--preset", preset, "--help")
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("usage: epg evolve FAMILY ")
    shown = shown_defaults(done.out)
    assert shown["preset"] == preset
    for name, value in flat(epg.preset(family, preset)).items():
        if name != "family":  # it was typed
            assert shown[name] == (" ".join(map(str, value)) if isinstance(value, tuple) else str(value)), name


def test_help_without_a_family_asks_for_one() -> None:
    done = call("evolve", "--help")
    assert done.code == 0
    assert "FAMILY" in done.out
    assert shown_defaults(call("evolve", "point-goal", "-h").out)["preset"] == "laptop"


TASKS = 10  # the same number in all comparisons: what one has compiled, the others find


def test_learn_takes_the_family_from_the_loss(evolved: Evolved) -> None:
    done = call("learn", evolved.path, "--tasks", TASKS, "--json")
    assert done.code == 0
    assert (done.json["family"], done.json["tasks"], done.json["steps"]) == ("point-goal", TASKS, 128)
    assert list(done.json["methods"]) == ["epg"]
    assert set(done.json["methods"]["epg"]["interval"]) == {"value", "low", "high"}
    assert_drawn(Path(done.json["run"]), "learning_curves")
    assert Path(done.json["run"]).parent == Path("runs")


def test_another_family_policy_and_length_are_called_transfer(evolved: Evolved) -> None:
    Path("other.py").write_text(
        "from dataclasses import replace\nfrom epg.families.native.point import POINT_GOAL\n"
        "OTHER = replace(POINT_GOAL, name='other')\n"
    )
    other = ("--family", "other:OTHER", "--updates", 2, "--policy.hidden", 5, 6, "--policy.activation", "relu")
    done = call("learn", evolved.path / "first", *other, "--tasks", 2, "--lifetimes", 1, "--run", "out")
    assert done.code == 0
    phrases = ["family other:OTHER instead of point-goal", "policy.hidden 5 6 instead of 64 64"]
    phrases += ["policy.activation relu instead of tanh", "2 updates instead of 4, step sizes as evolved"]
    method = read_json(Path("out/results.json"))["methods"]["epg"]
    assert method["label"] == "loss before evolution (transfer)"
    assert method["transfer"] == phrases
    assert f"transfer  {'; '.join(phrases)}\n" in done.out
    assert "; ".join(phrases) in Path("out/report.html").read_text()
    policy = load_policy("out")
    assert (policy.manifest["policy"]["hidden"], policy.manifest["policy"]["activation"]) == ([5, 6], "relu")
    assert policy.manifest["trained_by"] == method["label"]


PPOS = ("ppo", "ppo-256")


def test_compare_prints_a_table_and_keeps_the_intervals_of_the_paired_differences(evolved: Evolved) -> None:
    done = call("compare", evolved.path, "--tasks", TASKS, "--ppo-steps", 256, "--run", "out")
    assert done.code == 0
    kept = read_json(Path("out/results.json"))
    assert (kept["family"], kept["tasks"]) == ("point-goal", TASKS)
    methods = kept["methods"]
    assert {name: it["steps"] for name, it in methods.items()} == {"epg": 128, "ppo": 128, "ppo-256": 256}
    assert "difference" not in methods["epg"]
    for interval in (*(it["interval"] for it in methods.values()), *(methods[it]["difference"] for it in PPOS)):
        assert set(interval) == {"value", "low", "high"}
        assert interval["low"] <= interval["value"] <= interval["high"]
    assert done.out.splitlines()[0].strip() == "point-goal: 10 held-out tasks"
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in done.out.splitlines()]
    cells = {row[0]: row[1:] for row in rows if row}
    assert {name: row[1:3] for name, row in cells.items()} == {
        "learner": ["steps", "updates"],
        "evolved loss": ["128", "4"],
        "PPO": ["128", "1"],
        "PPO, 256 steps": ["256", "2"],
    }
    assert cells["PPO"][0] == "0"  # steps before
    assert cells["learner"][3:] == ["return (IQM)", "95 % interval", "paired difference (mean)"]
    number = r"[+-]\d+\.\d\d"
    for name in ("PPO", "PPO, 256 steps"):
        assert re.fullmatch(rf"{number} \({number} to {number}\)", cells[name][5])
    assert done.out.splitlines()[-1] == "report    out/report.html"
    assert "│" not in done.err
    page = Path("out/report.html").read_text()
    assert "PPO, 256 steps (256 steps, 2 updates, tuned for this family)" in page
    assert_drawn(Path("out"), "learning_curves")


@pytest.mark.slow
def test_compare_without_other_steps_gives_ppo_those_of_the_loss(evolved: Evolved) -> None:
    done = call("compare", evolved.path, "--tasks", TASKS, "--ppo-steps", "--run", "out", "--json")
    assert {name: it["steps"] for name, it in done.json["methods"].items()} == {"epg": 128, "ppo": 128}


@pytest.mark.slow
def test_evolve_starts_from_a_loss_and_says_so(evolved: Evolved) -> None:
    done = call("evolve", "point-goal", "--preset", "smoke", "--start", evolved.path, "--run", "out", "--json")
    assert done.code == 0
    spent, digest = evolved.done.json["env_steps"], evolved.done.json["loss_sha256"]
    assert done.json["env_steps"] == 2 * spent
    assert done.json["loss_sha256"] != digest
    start = {"kind": "loss", "family": "point-goal", "sha256": digest, "env_steps": spent}
    assert load_loss("out").manifest["warm_start"] == read_json(Path("out/config.json"))["warm_start"] == start
    assert f"a loss ({digest[:12]})" in Path("out/report.html").read_text()
    (listed,) = [it for it in call("losses", "--runs", ".", "--json").json if it["name"] == "out"]
    assert listed["warm_start"] == start
    assert "a loss" in call("losses", "--runs", ".").out
    refused = call("evolve", "point-goal", "--run", "out", "--resume", "--start", evolved.path)
    assert refused.code == 2
    assert "drop start" in refused.err
    assert load_loss(evolved.path).manifest["warm_start"] is None


@pytest.mark.slow
def test_a_fixed_policy_is_searched_resumed_and_starts_a_loss() -> None:
    search = ("baseline", "fixed", "point-reach", "--tasks", 4, "--processes", 1, "--run", "policy", "--json")
    done = call(*search, "--env-steps", 20_000, "--seed", 3)
    assert done.code == 0
    assert (done.json["kind"], done.json["family"], done.json["seed"]) == ("learn", "point-reach", 3)
    assert done.json["tasks"] == 4
    policy, (method,) = load_policy("policy"), done.json["methods"].values()
    assert method["meta_steps"] == policy.manifest["env_steps"] >= 20_000
    assert set(policy.tensors) == {"weights", "obs_mean", "obs_std"}
    assert call(*search, "--resume").json == done.json  # nothing left to search: the same policy on the same tasks
    assert call("report", "policy").code == 0
    smoke = ("evolve", "point-reach", "--preset", "smoke", "--executor", "inline", "--start", "policy")
    assert "needs --policy.obs_stats fixed" in call(*smoke, "--run", "out").err
    evolved = call(*smoke, "--policy.obs_stats", "fixed", "--run", "out", "--json")
    assert evolved.code == 0
    assert load_loss("out").manifest["warm_start"] == {
        "kind": "policy",
        "family": "point-reach",
        "sha256": policy.manifest["sha256"],
        "env_steps": policy.manifest["env_steps"],
    }
    assert evolved.json["env_steps"] > policy.manifest["env_steps"]


ONE = ("--tasks", 1, "--lifetimes", 1)


@pytest.mark.slow
def test_meta_learners_are_trained_and_compared(evolved: Evolved) -> None:
    policy = PolicySettings(hidden=(4,), obs_stats="fixed")
    # As many steps as the loss takes: training's score and the comparison are then the same programs.
    few = {"maml": MamlSettings(tasks=2, batch_steps=128, policy=policy), "rl2": RL2Settings(2, 2, 128, policy=policy)}
    for name, options in few.items():
        place = {"run": f"runs/{name}", "tasks": 1, "lifetimes": 1}
        result = epg.train_baseline(name, "point-goal", env_steps=1, options=options, **place)
        assert result.methods[name].meta_steps == load_policy(f"runs/{name}").manifest["env_steps"] > 1
    compared = call("compare", evolved.path, "--with", "maml", "runs/rl2", *ONE, "--json", "--run", "out")
    assert list(compared.json["methods"]) == ["epg", "maml", "maml-10", "rl2"]
    steps = {name: it["steps"] for name, it in compared.json["methods"].items()}
    assert steps == {"epg": steps["epg"], "maml": steps["epg"], "maml-10": 10 * steps["epg"], "rl2": steps["epg"]}


def test_baseline_trains_by_hand() -> None:
    done = call("baseline", "reinforce", "point-goal", "--tasks", 2, "--updates", 4, "--run", "out", "--json")
    assert done.code == 0
    assert (done.json["tasks"], list(done.json["methods"])) == (2, ["reinforce"])
    assert done.json["methods"]["reinforce"]["tuned"] is False  # its settings are PPO's
    assert "REINFORCE reaches a final return" in Path("out/report.html").read_text()


def test_losses_lists_whole_ones(evolved: Evolved, tmp_path: Path) -> None:
    for name in ("whole", "damaged"):
        shutil.copytree(evolved.path, tmp_path / "runs" / name)
    cut("loss.safetensors")(tmp_path / "runs" / "damaged")
    done = call("losses", "--runs", tmp_path / "runs", "--json")
    found = [it for it in done.json if it["name"] == str(tmp_path / "runs" / "whole")]
    assert found == [
        {"name": str(tmp_path / "runs" / "whole"), "family": "point-goal", "epochs": 4}
        | {"env_steps": evolved.done.json["env_steps"], "sha256": evolved.done.json["loss_sha256"]}
        | {"licence": "CC0-1.0"}
        | {"reward": True, "fitness": found[0]["fitness"], "held_out": None, "warm_start": None, "card": None}
    ]
    epochs = [json.loads(line) for line in (evolved.path / "metrics.jsonl").read_text().splitlines()]
    assert found[0]["fitness"] == pytest.approx(sum(it["fitness_mean"] for it in epochs) / 4, rel=1e-6)
    assert "damaged" not in done.out


@pytest.mark.parametrize("returns", [None, [], "x", {"value": None, "low": "[/x]", "high": 1}, {"value": 1e300}])
def test_held_out_returns_that_nobody_measured_are_left_out(
    returns: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ZOO / "point-goal", tmp_path / "point-goal")
    monkeypatch.setattr("epg.zoo.ZOO", tmp_path)
    assert "28.4 (" in call("losses").out
    held_out = json.loads((tmp_path / "point-goal" / "held_out.json").read_text())
    (tmp_path / "point-goal" / "held_out.json").write_text(json.dumps(held_out | {"return": returns}))
    done = call("losses")
    assert (done.code, "point-goal" in done.out) == (0, True)
    assert "28.4 (" not in done.out


def test_every_loss_of_the_zoo_loads_fits_its_family_and_says_what_it_is() -> None:
    assert {path.parent.name for path in ZOO.glob("*/loss.*")} == set(zoo_names())
    listed = {it["name"]: it for it in call("losses", "--json").json}
    assert list(listed) == zoo_names(), "a loss that is left out does not load"
    for name in zoo_names():
        loss = epg.load_loss(name)
        family = loss.manifest["family"]
        assert is_registered(family), name
        fitting_learner(loss, family)  # refuses another version, other spaces, another number of parameters
        fixed = settings_of(loss).policy.obs_stats == "fixed"
        assert (obs_stats_of(loss) is not None) == fixed, name
        assert loss.manifest["licence"] == "MIT", f"{name} comes with the package: evolve it with --licence MIT"
        start = loss.manifest["warm_start"]
        assert start is None or {"kind", "sha256", "env_steps"} <= set(start), f"{name} must say what it started from"
        assert start is None or start["env_steps"] <= loss.manifest["env_steps"], name
        if (ZOO / name / HELD_OUT).exists():
            assert_measured(name, listed[name]["held_out"], loss.manifest["sha256"])


def assert_measured(name: str, measured: dict[str, Any], digest: str) -> None:
    """Check the form of held_out.json; what it says is nobody's business here."""
    assert measured["sha256"] == digest, f"{name} was measured before it was evolved again: run tools/results.py {name}"
    assert measured["tasks"] >= 20
    assert measured["seed"] >= 0
    assert set(measured["steps"]) == {"loss", "ppo", "ppo_long"}
    for learner in ("return", "ppo", "ppo_with_more_steps"):
        interval = measured[learner]
        assert interval["low"] <= interval["value"] <= interval["high"]


def test_report_is_drawn_anew(evolved: Evolved, tmp_path: Path) -> None:
    run = shutil.copytree(evolved.path, tmp_path / "run")
    shutil.rmtree(run / "figures")
    (run / "report.html").unlink()
    done = call("report", run)
    assert (done.code, done.out) == (0, f"{run / 'report.html'}\n")
    assert_drawn(run, "fitness")


@pytest.mark.slow
def test_check_passes_a_family() -> None:
    done = call("check", "point-reach", "--json")
    assert done.code == 0
    assert len(done.json) > 5
    assert all(it["passed"] for it in done.json)
    shown = call("check", "point-reach")
    assert shown.code == 0
    assert [line[:4] for line in shown.out.splitlines()] == ["ok  "] * len(done.json)


def test_tasks_lists_families_and_shows_one() -> None:
    names = [it["name"] for it in call("tasks", "--json").json]
    assert names[:4] == ["point-goal", "point-reach", "random-pendulum", "random-cart-pole"]
    shown = call("tasks", "point-goal")
    assert shown.code == 0
    assert shown.out.rstrip() == epg.find_family("point-goal").specification.rstrip()
    assert "Reward:" in shown.out


@pytest.mark.slow
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


def test_bench_measures_the_loss_of_its_preset() -> None:
    paper, laptop = (bench_settings("random-hopper", name=name).loss for name in ("paper", "laptop"))
    assert paper == replace(epg.preset("random-hopper", "paper").loss, window=512)
    assert (paper.temporal, laptop.temporal) == ("policy", "none")


def test_bench_stays_on_one_core_and_gives_the_others_back() -> None:
    before = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


@pytest.mark.slow
def test_bench_of_a_jax_family_has_no_physics_to_compare_with() -> None:
    settings = epg.preset("point-goal", "smoke")
    numbers = make_timed(settings).run()
    assert list(numbers) == ["lifetime"]
    assert numbers["lifetime"] > 0
    result = summary(settings, [numbers] * 3, [1.5, 1.7, 1.9])
    assert result["lifetime_steps_per_s"] == pytest.approx(1e6 / numbers["lifetime"])
    assert result["two_process_speedup"] == 1.7
    assert result["time_over_raw"] is None


def test_the_demonstration_evolves_compares_and_gives_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "FAMILIES", {"point-goal": "smaller, for a test"})
    monkeypatch.setattr(demonstration, "TASKS", TASKS)
    monkeypatch.setattr(demonstration.api, "settings_for", lambda family, name, seed: epg.preset(family, "smoke"))
    inline = lambda run, settings, executor, processes: evolve_with_bar(run, settings, "inline", None)  # noqa: E731
    monkeypatch.setattr(demonstration, "evolve_with_bar", inline)
    assert inspect.signature(epg.compare).parameters["ppo_steps"].default == (8192,)
    monkeypatch.setattr(demonstration.api, "compare", partial(epg.compare, ppo_steps=(256,)))  # sooner done
    compared = Path("out/point-goal/compare/results.json")
    ended = SimpleNamespace(communicate=lambda: (json.dumps({**read_json(compared), "run": "out"}), ""), returncode=0)
    monkeypatch.setattr(demonstration, "compare_beside", lambda run: contextlib.nullcontext(ended))
    monkeypatch.setattr(demonstration.api, "render", lambda loss, out, video: None)
    done = call("demo", "--run", "out")
    assert done.code == 0
    assert "point-goal: smaller, for a test" in done.err
    assert list(read_json(compared)["methods"]) == ["epg", "ppo", "ppo-256"]
    *_, first, second = done.out.splitlines()
    assert "PPO (128 steps, 1 updates, tuned for this family)" in first
    assert "PPO, 256 steps (256 steps, 2 updates, tuned for this family)" in second


@pytest.mark.slow
def test_the_demonstration_shows_half_cheetahs_and_prints_json_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "FAMILIES", {})
    short = ("--tasks", "1", "--lifetimes", "1", "--updates", "2", "--with")
    monkeypatch.setattr(demonstration, "SHIPPED_OPTIONS", short)
    monkeypatch.setattr(demonstration.api, "render", partial(epg.render, updates=2, stages=2))
    (result,) = call("demo", "--run", "out", "--json").json
    assert (result["family"], result["tasks"], list(result["methods"])) == ("directional-half-cheetah", 1, ["epg"])
    shown = Path("out/directional-half-cheetah")
    assert {path.suffix for path in (shown / "film").iterdir()} >= {".png", ".json"}
    assert (shown / "compare" / "report.html").is_file()


def test_a_comparison_beside_the_demonstration_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "FAMILIES", {})
    monkeypatch.setattr(demonstration, "SHIPPED_OPTIONS", ("--tasks", "0"))
    done = call("demo", "--run", "out")
    assert (done.code, done.out) == (2, "")
    assert "the comparison of directional-half-cheetah failed: epg: tasks must be above zero, not 0." in done.err


def test_a_comparison_beside_the_demonstration_stops_with_it() -> None:
    def stopped() -> None:
        with demonstration.compare_beside(Path("out")) as process:
            processes.append(process)
            raise KeyboardInterrupt

    processes: list[subprocess.Popen[str]] = []
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert processes[0].returncode != 0


def test_version_and_help() -> None:
    assert call("--version") == Done(0, f"epg {epg.__version__}\n", "")
    for arguments in ((), ("--help",), ("-h",)):
        assert all(f"\n  {verb} " in call(*arguments).out for verb in VERBS)
    for verb in VERBS:
        done = call(verb, "--help")
        assert done.code == 0
        assert f"epg {verb}" in done.out


# Ctrl-C, a cluster's SIGTERM, a terminal that is closed


def interrupt(command: list[str], run: Path, lines: int, number: int = signal.SIGINT) -> Done:
    """Start a command, stop it by a signal once the run has so many lines of metrics, and wait for its end."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_lines(started, run, lines)
    started.send_signal(number)
    out, err = started.communicate(timeout=120)
    return Done(started.returncode, out, err)


def wait_for_lines(started: subprocess.Popen[Any], run: Path, lines: int) -> None:
    """Wait until a run has so many lines of metrics."""
    deadline = time.monotonic() + 300
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline, "no epoch in five minutes"
        time.sleep(0.05)


def hang_up(command: list[str], run: Path, lines: int) -> int:
    """Start a command in a terminal of its own, close that once there are so many lines; return the exit code."""
    ours, its = os.openpty()
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    terminal = [sys.executable, "-c", take, *command]
    started = subprocess.Popen(terminal, stdin=its, stdout=its, stderr=its, start_new_session=True)
    os.close(its)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    wait_for_lines(started, run, lines)
    os.close(ours)
    return started.wait(120)


def drain(descriptor: int) -> None:
    """Read what a terminal shows until it is closed."""
    with contextlib.suppress(OSError):
        while os.read(descriptor, 65536):
            pass


@pytest.mark.parametrize(
    "sent", [signal.SIGTERM, *(pytest.param(it, marks=pytest.mark.slow) for it in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_to_stop_saves_and_says_how_to_go_on(sent: signal.Signals, tmp_path: Path) -> None:
    run, program = tmp_path / "a run", [sys.executable, "-m", "epg"]
    evolve = "evolve point-goal --preset smoke --evolution.epochs 500 --processes 1 --run"
    first = interrupt([*program, *evolve.split(), str(run)], run, 2, sent)
    done = assert_saved(run, first, 128 + sent)
    assert done >= 2
    (command,) = re.findall(r"Continue with: epg (.*)", first.err)
    assert command.endswith("--resume --processes 1")
    assert (_parse(shlex.split(command)).run, _parse(shlex.split(command)).resume) == (run, True)


@pytest.mark.slow
def test_a_resumed_run_stops_and_says_how_to_go_on_as_the_first(tmp_path: Path) -> None:
    run, program = tmp_path / "a run", [sys.executable, "-m", "epg"]
    evolve = "evolve point-goal --preset smoke --evolution.epochs 500 --processes 1 --run"
    done = assert_saved(run, interrupt([*program, *evolve.split(), str(run)], run, lines=2))
    resume = [*program, "evolve", "point-goal", "--run", str(run), "--resume", "--processes", "1"]
    again = assert_saved(run, interrupt(resume, run, done + 2, signal.SIGTERM), 128 + signal.SIGTERM)
    assert again >= done + 2


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


def test_a_terminal_that_is_closed_ends_in_order(tmp_path: Path) -> None:
    evolve = "-m epg evolve point-goal --preset smoke --evolution.epochs 500 --executor inline --run"
    assert hang_up([sys.executable, *evolve.split(), str(tmp_path / "run")], tmp_path / "run", 1) == 129
    assert_whole(tmp_path / "run")


def assert_saved(run: Path, stopped: Done, code: int = 130) -> int:
    """Check that a stopped run said so, and that what it left is whole; return its epoch."""
    assert (stopped.code, stopped.out) == (code, "")
    assert "Traceback" not in stopped.err
    assert "epg: stopped; every finished epoch is saved." in stopped.err
    return assert_whole(run)


def assert_whole(run: Path) -> int:
    """Check that all a run left is of one epoch; return that epoch."""
    epochs = [record["epoch"] for record in read_metrics(run / "metrics.jsonl")]
    assert epochs == list(range(len(epochs)))
    checkpoint = Run.open(run).load_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.epoch, checkpoint.skipped) == (len(epochs), ())
    assert load_loss(run).manifest["epochs"] == len(epochs)
    return len(epochs)
