"""EPG+I and PPO+I: the policy's initial parameters inside the evolved vector."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from samples import run_epoch, small_settings

import epg
from epg.cli import main
from epg.core.errors import BadInput
from epg.core.rng import Stream, run_key
from epg.evaluation.protocol import loss_method
from epg.evolution.loop import Evolution, EvolutionResult, evolve_run
from epg.evolution.runs import create_run, extend, open_run
from epg.evolution.worker import build, work_config
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.policies.mlp import MlpPolicy
from epg.recipes import preset
from epg.settings import EvolutionSettings, LifetimeSettings, PolicySettings, Settings
from epg.storage.loss_artefact import LossArtefact, load_loss
from epg.warm_starts import load_warm_start

EVOLUTION = EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=8, shard=4)
PLAIN = small_settings("point-goal", 2, EVOLUTION)
EPG_I = replace(PLAIN, evolve_init="epg")
PPO_I = replace(PLAIN, evolve_init="ppo")
SETTINGS = {"epg": EPG_I, "ppo": PPO_I}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EvolutionResult]:
    """An evolution of each kind, in one process and in one go."""
    place = tmp_path_factory.mktemp("init")
    return {name: evolve_run(create_run(it, place / name), it, "inline") for name, it in SETTINGS.items()}


def test_the_vector_is_phi_and_then_the_policy() -> None:
    plain, both, alone = (Evolution(it) for it in (PLAIN, EPG_I, PPO_I))
    policy = MlpPolicy(PLAIN.policy, both.family.spaces)
    init = np.asarray(ravel_pytree(policy.init(run_key(0, Stream.POLICY)))[0])
    np.testing.assert_array_equal(both.evolved["phi"], plain.strategy.phi)
    np.testing.assert_array_equal(both.evolved["policy_init"], init)
    np.testing.assert_array_equal(alone.strategy.phi, init)
    population = both.ask()
    requests = both.requests(population)
    rows = np.concatenate([np.concatenate([it.phi, it.policy_init], axis=1) for it in requests])
    np.testing.assert_array_equal(rows, np.repeat(population, 2, axis=0))  # two tasks for each
    assert (population.std(axis=0) > 0).all()  # all of it evolves
    np.testing.assert_array_equal(both.vector.blocks["initial policy"], len(plain.strategy.phi) + np.arange(len(init)))
    assert list(alone.vector.blocks) == ["initial policy"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_neither_processes_nor_a_pause_change_it(name: str, runs: dict[str, EvolutionResult], tmp_path: Path) -> None:
    settings = SETTINGS[name]
    half = replace(settings, evolution=replace(settings.evolution, epochs=1))
    evolve_run(create_run(half, tmp_path / "run"), half, "local", 2)
    again = evolve_run(*extend(*open_run(tmp_path / "run"), settings), "inline")
    assert again.loss_sha256 == runs[name].loss_sha256
    first, last = (load_loss(it) for it in (again.run / "first", again.run))
    assert not np.array_equal(first.policy_init, last.policy_init)
    assert (len(first.phi) > 0) == (name == "epg")


@pytest.mark.parametrize("name", SETTINGS)
def test_at_test_time_its_learner_starts_from_it(name: str, runs: dict[str, EvolutionResult]) -> None:
    loss = load_loss(runs[name].run)
    method = loss_method(loss, "point-goal")
    np.testing.assert_array_equal(method.policy_init, loss.policy_init)  # tests/test_lifetime.py: what that does
    assert type(method.learner) is {"epg": LearnedLoss, "ppo": PPO}[name]
    assert (method.name, method.label) == {"epg": ("epg-i", "evolved loss+I"), "ppo": ("ppo-i", "PPO+I")}[name]
    assert method.meta_steps == runs[name].env_steps > 0


def test_evolution_finds_the_best_initial_policy() -> None:
    """Without learning (a step size of 1e-9) only the initial policy counts: its action must become 0.5."""
    evolution = EvolutionSettings(noise_vectors=16, lifetimes=16, shard=16, sigma=0.1, step_size=0.05)
    settings = Settings(
        "probe_families:ACTION",
        evolve_init="ppo",
        policy=PolicySettings(hidden=(4,), log_std=-3.0),
        lifetime=LifetimeSettings(8, updates=1, minibatch=8, learning_rate=1e-9),
        evolution=evolution,
    )
    state, evaluate = Evolution(settings), build(work_config(settings, None))
    first, *_, last = (run_epoch(state, evaluate)[0].fitness_mean for _ in range(30))
    assert first < -0.2  # of -(a - 0.5)^2
    assert last > -0.05


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Return the exit code and what was printed: of a good call on standard output, of a bad one on standard error."""
    try:
        main([str(it) for it in arguments])
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().out


@pytest.mark.slow
def test_compare_tells_them_apart(
    runs: dict[str, EvolutionResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epg_i, ppo_i = (runs[name].run for name in ("epg", "ppo"))
    small = ("--tasks", 2, "--lifetimes", 1, "--run", tmp_path / "out", "--json")
    code, out = call(capsys, "compare", epg_i, "--with", ppo_i, epg_i, *small)
    assert code == 0
    methods = json.loads(out)["methods"]
    labels = {"epg-i": "evolved loss+I", "ppo-i": "PPO+I", "epg-i-2": f"evolved loss+I, {epg_i.parent.name}/epg"}
    assert {name: it["label"] for name, it in methods.items()} == labels
    assert methods["epg-i-2"]["interval"] == methods["epg-i"]["interval"]
    assert methods["epg-i-2"]["difference"]["value"] == 0.0
    assert methods["ppo-i"]["difference"]["value"] != 0.0


def test_what_does_not_fit_is_refused(
    runs: dict[str, EvolutionResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epg_i, ppo_i = (runs[name].run for name in ("epg", "ppo"))
    wrong = {
        ("evolve", "point-goal", "--evolve-init", "yes"): "yes",
        ("evolve", "point-goal", "--evolve-init", "ppo", "--guidance.learner", "ppo"): "needs guidance.learner none",
        ("learn", epg_i, "--policy.hidden", 3): "an evolved initial policy fits no other policy than its own",
        ("probe", ppo_i): "there is no loss in it, only an initial policy that was evolved for PPO",
    }
    for arguments, says in wrong.items():
        code, said = call(capsys, *arguments, "--run", tmp_path / "new")
        assert (code, says in said) == (2, True), said
    assert not (tmp_path / "new").exists()
    with pytest.raises(BadInput, match="has an evolved initial policy: add --evolve-init epg"):
        load_warm_start(epg_i, PLAIN)
    with pytest.raises(BadInput, match="evolved with --evolve-init ppo, not epg"):
        load_warm_start(ppo_i, EPG_I)
    with pytest.raises(BadInput, match="no loss in it"):
        epg.load_loss(ppo_i).window()
    loss = load_loss(epg_i)
    cut = {**loss.tensors, "policy_init": loss.policy_init[:-1]}
    with pytest.raises(BadInput, match=r"has \d+ parameters of its initial policy where its settings need \d+"):
        loss_method(LossArtefact(loss.phi, cut, loss.manifest), "point-goal")


def test_a_warm_start_brings_its_initial_policy_or_none(runs: dict[str, EvolutionResult], tmp_path: Path) -> None:
    loss = load_loss(runs["epg"].run)
    run = create_run(EPG_I, tmp_path / "run", runs["epg"].run)
    checkpoint, state = run.load_checkpoint(), Evolution(EPG_I)
    assert checkpoint is not None
    state.restore(checkpoint, run.path)
    np.testing.assert_array_equal(state.evolved["policy_init"], loss.policy_init)
    fresh = Evolution(EPG_I, loss.phi)
    np.testing.assert_array_equal(fresh.evolved["phi"], loss.phi)
    np.testing.assert_array_equal(fresh.evolved["policy_init"], Evolution(EPG_I).evolved["policy_init"])


def test_the_preset_of_ppo_is_its_tuned_one() -> None:
    tuned, laptop = preset("random-walker", evolve_init="ppo"), preset("random-walker")
    assert (tuned.evolve_init, tuned.evolution) == ("ppo", laptop.evolution)
    assert tuned.lifetime.steps == laptop.lifetime.steps
    assert tuned.lifetime.update_epochs == 10
    assert preset("random-walker", "paper", evolve_init="ppo").guidance.learner == "none"
