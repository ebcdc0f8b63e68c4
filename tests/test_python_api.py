"""The API in somebody else's process: families as objects, callbacks, and nothing changed that is not ours."""

import json
import os
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import QUICK_TO_COMPILE
from probe_families import ACTION
from samples import fresh_loss, small_settings

import epg
import epg.envs  # registers the environments, as `import epg` after Gymnasium does in the example
from epg.core.errors import BadInput, require_count
from epg.families.registry import find_family, load, name_of
from epg.settings import EvolutionSettings

EXAMPLES = Path(__file__).parents[1] / "examples"
OWN = replace(ACTION, name="of-this-module")
TINY = {"evolution.epochs": 1, "evolution.noise_vectors": 2, "evolution.lifetimes": 4, "evolution.shard": 4}


def test_a_family_has_a_name_that_finds_it_again() -> None:
    assert name_of("anything") == "anything"
    assert name_of(find_family("point-goal")) == "point-goal"
    assert name_of(OWN) == f"{__name__}:OWN"
    made = replace(ACTION, name="made-here")
    assert name_of(made) == "session:made-here"
    for family in (OWN, made):
        assert load(name_of(family)) is family


def test_a_class_is_a_family_without_arguments() -> None:
    class Own:
        def __new__(cls) -> Any:
            return replace(ACTION, name="by-class")

    assert find_family(name_of(Own)).name == "by-class"


def test_objects_are_taken_where_names_are(tmp_path: Path) -> None:
    made = replace(ACTION, name="made-in-a-cell")
    settings = epg.preset(made, "smoke", **TINY)
    assert settings.family == "session:made-in-a-cell"
    evolved = epg.evolve(settings=settings, run=tmp_path / "run", executor="inline")
    assert epg.load_loss(evolved.run).manifest["licence"] is None  # a user's loss is theirs
    result = epg.learn(evolved.run, made, tasks=2, updates=1, run=tmp_path / "learn")
    assert result.family == settings.family
    assert len(epg.baseline("reinforce", made, tasks=2, updates=1, run=tmp_path / "base").policies) == 2
    with pytest.raises(BadInput, match="name it as --family"):
        epg.learn(evolved.run, tasks=2)


def test_what_a_script_or_a_notebook_holds_is_of_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    made, main = replace(ACTION, name="made-in-a-cell"), sys.modules["__main__"]
    monkeypatch.setattr(main, "MADE", made, raising=False)
    monkeypatch.setitem(sys.modules, "__mp_main__", main)  # as multiprocessing does when it is imported
    assert name_of(made) == "session:made-in-a-cell"


def test_a_preset_of_no_family_is_refused() -> None:
    with pytest.raises(BadInput, match=r"unknown family 'random-hoper' \(did you mean random-hopper\?\)"):
        epg.preset("random-hoper")


def pendulum(seed: int) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1")


class NeedsArguments:
    def __init__(self, length: float) -> None: ...


POINT = gymnasium.spaces.Box(-np.inf, np.inf, (4,)), gymnasium.spaces.Box(-1, 1, (2,))
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a text as a number": (lambda: epg.learn("point-goal", tasks="3"), "tasks must be a whole number, not '3'"),
    "half a task": (lambda: epg.learn("point-goal", tasks=2.5), "tasks must be a whole number, not 2.5"),
    "a truth value": (lambda: epg.learn("point-goal", lifetimes=True), "lifetimes must be a whole number, not True"),
    "a seed": (lambda: epg.learn("point-goal", seed="a"), "seed must be a whole number, not 'a'"),
    "half an update": (lambda: epg.learn("point-goal", updates=2.5), "updates must be a whole number, not 2.5"),
    "no loss": (lambda: epg.learn(None), "not by None"),
    "an environment": (lambda: epg.evolve(pendulum(0)), "a TimeLimit is not a family: .*epg.gym_family"),
    "a factory": (lambda: epg.learn("point-goal", pendulum), "a function is not a family: .*epg.gym_family"),
    "a class": (lambda: epg.evolve(NeedsArguments), "the class NeedsArguments makes no family without arguments"),
    "settings as a path": (lambda: epg.evolve(settings="x.toml"), "settings must be those of epg.preset or epg.load"),
    "a licence": (lambda: epg.evolve("point-goal", preset="smoke", licence=3), "licence must be a text, not 3"),
    "processes": (lambda: epg.evolve("point-goal", processes=1.5), "processes must be a whole number, not 1.5"),
    "one method": (lambda: epg.compare("point-goal", others="maml"), r"list of methods: others=\['maml'\]"),
    "PPO's steps": (lambda: epg.compare("point-goal", ppo_steps=[6.5]), "PPO's steps must be a whole number, not 6.5"),
    "probes": (lambda: epg.probe("point-goal", tasks="3"), "tasks must be a whole number, not '3'"),
    "a learner's seed": (lambda: epg.Learner("point-goal", *POINT, seed=1.5), "seed must be a whole number, not 1.5"),
    "a horizon": (lambda: epg.gym_family("x", pendulum, horizon="3"), "its horizon must be a whole number, not '3'"),
    "a baseline": (
        lambda: epg.train_baseline("fixed-ppo", "point-goal", env_steps=9, tasks="3"),
        "tasks must be a whole number, not '3'",
    ),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_from_python_gets_one_sentence(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is trained or written; a whole number of NumPy is a whole number."""
    monkeypatch.chdir(tmp_path)
    wrong, sentence = WRONG[call]
    with pytest.raises(BadInput, match=sentence):
        wrong()
    assert [it for it in tmp_path.rglob("*") if it.is_file()] == []
    require_count("tasks", np.int64(3))  # type: ignore[arg-type]


def test_workers_cannot_have_what_only_this_session_has(tmp_path: Path) -> None:
    made = replace(ACTION, name="made-in-a-cell")
    with pytest.raises(BadInput, match=r"made-in-a-cell was made in this session, .* or choose executor='inline'"):
        epg.evolve(made, preset="smoke", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match="was made in another session"):
        load("session:nobody")


def test_the_callers_process_is_left_alone(tmp_path: Path) -> None:
    """A fresh process: environment variables, JAX's platform and its threads are those of the caller; phi is ours."""
    settings = epg.preset("point-goal", "smoke", **TINY)
    code = f"""
import json, os, signal
before = dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
import epg
settings = epg.preset("point-goal", "smoke", **{TINY!r})
evolved = epg.evolve(settings=settings, run={str(tmp_path / "there")!r}, executor="inline")
import jax
after = dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
new = sorted(name for name in after[0] if after[0][name] != before[0].get(name) and not name.startswith("TPU_"))
print(json.dumps([evolved.loss_sha256, new, before[1:] == after[1:], jax.config.jax_compilation_cache_dir]))
"""
    ours = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "JAX_COMPILATION_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment["XLA_FLAGS"] = QUICK_TO_COMPILE  # the caller's own
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    sha256, changed, same_signals, cache = json.loads(done.stdout)
    assert (changed, same_signals, cache) == ([], True, None)
    assert done.stderr == ""
    assert sha256 == epg.evolve(settings=settings, run=tmp_path / "here", executor="inline").loss_sha256


def test_the_example_logs_with_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    run = types.SimpleNamespace(log=logged.append, finish=lambda: logged.append({"end": {}}))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda project, config: run))
    monkeypatch.chdir(tmp_path)
    short = epg.preset("point-goal", "smoke", **TINY)

    def evolve(family: str, preset: str, on_epoch: Any) -> Any:
        return original(settings=short, executor="inline", on_epoch=on_epoch)

    original = epg.evolve
    monkeypatch.setattr(epg, "evolve", evolve, raising=False)
    runpy.run_path(str(EXAMPLES / "wandb_logging.py"), run_name="__main__")
    assert [next(iter(it)) for it in logged] == ["epoch", *["update"] * short.lifetime.updates, "end"]
    assert {"fitness_mean", "env_steps", "seconds"} <= logged[0]["epoch"].keys()
    assert [it["update"]["env_steps"] for it in logged[1:-1]] == [32, 64, 96, 128]
    assert all(it["update"]["kl"] >= 0 for it in logged[1:-1])


def test_learning_reports_its_updates_while_it_runs(tmp_path: Path) -> None:
    """The same numbers reach the callback, metrics.jsonl and the curves of the result; a failure leaves nothing."""
    loss = fresh_loss(small_settings(f"{__name__}:OWN", 2, EvolutionSettings()))
    told: list[Any] = []
    result = epg.learn(loss, OWN, tasks=3, lifetimes=2, run=tmp_path / "runs" / "a", on_update=told.append)
    assert [(it.curve, it.update) for it in told] == [
        (f"epg/lifetime-{lifetime}/tasks-0-2", update) for lifetime in (1, 2) for update in (1, 2)
    ]
    lines = [json.loads(line) for line in (result.run / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"curve": it.curve, "env_steps": it.env_steps, "episode_return": it.episode_return, "kl": it.kl} for it in told
    ]
    kl = np.mean([[told[0].kl, told[1].kl], [told[2].kl, told[3].kl]], axis=0)
    np.testing.assert_allclose(kl, result.first.kl.mean(axis=0), rtol=1e-5)
    returns = [np.nanmean(part) for part in np.split(result.first.episode_return.mean(axis=0), 2)]
    np.testing.assert_allclose([(told[i].episode_return + told[i + 2].episode_return) / 2 for i in (0, 1)], returns)

    def stop(update: Any) -> None:
        raise KeyboardInterrupt

    for place in (tmp_path / "new" / "b", tmp_path / "runs" / "b"):
        with pytest.raises(KeyboardInterrupt):
            epg.learn(loss, OWN, tasks=3, run=place, on_update=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_loss_may_be_tried_on_another_family(tmp_path: Path) -> None:
    loss = fresh_loss(small_settings(f"{__name__}:OWN", 1, EvolutionSettings()))
    result = epg.learn(loss, replace(ACTION, name="similar"), tasks=2, run=tmp_path / "run")
    assert result.family == "session:similar"
