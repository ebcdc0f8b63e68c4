"""Warm starts: a first phi from a saved loss, or from a linear policy whose mean action becomes the loss's target."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import small_settings, some_experience

from epg.core.errors import BadInput
from epg.core.rng import Stream, run_key
from epg.core.types import InnerParams
from epg.evolution.loop import Evolution, evolve_run
from epg.evolution.runs import create_run
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.loss.inputs import head_columns
from epg.loss.network import cache_inputs, evaluate
from epg.policies.base import distribution
from epg.policies.distributions import Gaussian
from epg.policies.linear import LinearPolicy
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings, Settings
from epg.storage.loss_artefact import load_loss
from epg.storage.policy_artefact import load_policy, save_policy
from epg.warm_starts import WarmStart, load_warm_start

FAMILY = "point-reach"
SPACES = find_family(FAMILY).spaces
STATS = {
    "obs_mean": np.float32([0.3, -0.2, 0.1, 0.5]),
    "obs_std": np.float32([1.0, 2.0, 0.5, 1.5]),
}


def settings_of(*inputs, obs_stats: str = "fixed", **loss) -> Settings:
    """Return settings of an evolution that starts from a policy."""
    settings = small_settings(
        FAMILY, 3, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4), *inputs, **loss
    )
    return replace(settings, policy=replace(settings.policy, obs_stats=obs_stats))


def save(directory: Path, products: bool = False, **changes) -> np.ndarray:
    """Save a linear policy and return its weights [A, F + 1]; `changes` are to its manifest."""
    policy = LinearPolicy(SPACES, -0.5, products)
    weights = np.random.default_rng(5).normal(0.0, 0.3, (2, policy.features + 1)).astype(np.float32)
    manifest = {
        "family": FAMILY,
        "family_version": 1,
        "spaces": {"observation": 4, "action": 2, "discrete": False, "features": 3},
        "env_steps": 1234,
        "trained_by": "nobody",
        "policy": {"type": "linear", "log_std": -0.5, "products": products},
    }
    save_policy(directory, {"weights": weights, **STATS}, manifest | changes)
    return weights


def learner_of(settings: Settings) -> LearnedLoss:
    """Return the learned loss of these settings."""
    return LearnedLoss(settings.loss, MlpPolicy(settings.policy, SPACES), SPACES)


def fresh_phi(settings: Settings) -> np.ndarray:
    """Return the phi that an evolution without a warm start begins with."""
    return np.asarray(learner_of(settings).initial_phi(run_key(settings.seed, Stream.LOSS)))


# --- from a policy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("products", [False, True])
def test_the_target_of_the_loss_is_the_mean_action_of_the_policy(products, tmp_path, rng, monkeypatch):
    # Without the tiny random target that is there beside it, L = 0.8 sum |mean - target| + what shrinks the log-std.
    monkeypatch.setattr("epg.loss.init.TARGET_SCALE", 0.0)
    settings = settings_of(*["observation-products"] * products)
    weights = save(tmp_path / "policy", products)
    learner = learner_of(settings)
    loss = learner.unravel(jnp.asarray(load_warm_start(tmp_path / "policy", settings).phi))
    experience = some_experience(rng, SPACES, settings.loss.window, 8, 3)
    params = InnerParams(learner.policy.init(jax.random.key(0)), learner.init(jax.random.key(1)))
    cached, newest = cache_inputs(loss, settings.loss, SPACES, experience), jnp.arange(8)

    @jax.jit
    def value(means):
        """Return the loss of a policy with these mean actions, [N, A]."""
        acting = Gaussian(means, params.policy.log_std)
        return evaluate(loss, settings.loss, cached, lambda _: acting, params, experience, newest)

    seen = distribution(LinearPolicy(SPACES, -0.5, products), jnp.asarray(weights), experience.window.observation)
    shrinking = 0.05 * 0.2 * float(params.policy.log_std.sum())
    assert np.abs(seen.mean[-8:]).mean() > 0.1
    np.testing.assert_allclose(value(seen.mean), shrinking, atol=1e-5)  # the least there is
    for scale in (0.01, 1.0):
        means = seen.mean + scale * jnp.asarray(rng.normal(size=seen.mean.shape), jnp.float32)
        distance = np.abs(np.asarray(means - seen.mean))[-8:].sum(axis=1).mean()
        np.testing.assert_allclose(value(means), 0.8 * distance + shrinking, rtol=1e-4, atol=1e-5)


def test_only_the_target_differs_from_a_fresh_loss(tmp_path):
    settings = settings_of()
    weights, learner = save(tmp_path / "policy"), learner_of(settings)
    warm = learner.unravel(jnp.asarray(load_warm_start(tmp_path / "policy", settings).phi))
    fresh = learner.unravel(jnp.asarray(fresh_phi(settings)))
    moved = np.array(warm.head - fresh.head)
    observation = head_columns(settings.loss, SPACES)["observation"]
    np.testing.assert_allclose(moved[observation, :4:2], -weights[:, :-1].T, atol=1e-6)
    np.testing.assert_allclose(moved[observation, 1:4:2], weights[:, :-1].T, atol=1e-6)
    moved[observation, :4] = 0.0
    assert not moved.any()
    bias = np.asarray(warm.head_bias - fresh.head_bias)
    np.testing.assert_allclose(bias[:4], np.stack([-weights[:, -1], weights[:, -1]], axis=1).ravel(), atol=1e-6)
    assert not bias[4:].any()
    for name in ("kernels", "kernel_biases", "context", "context_bias", "output"):
        for a, b in zip(*(jax.tree.leaves(getattr(it, name)) for it in (warm, fresh)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_policy_brings_its_statistics_and_its_cost(tmp_path):
    save(tmp_path / "policy")
    start = load_warm_start(tmp_path / "policy", settings_of())
    assert isinstance(start, WarmStart)
    assert set(start.tensors) == set(STATS)
    for name, value in STATS.items():
        np.testing.assert_array_equal(start.tensors[name], value)
    digest = load_policy(tmp_path / "policy").manifest["sha256"]
    assert start.source == {"kind": "policy", "family": FAMILY, "sha256": digest, "env_steps": 1234}
    assert start.env_steps == 1234


def test_an_evolution_from_a_policy_is_charged_and_says_so(tmp_path):
    settings = settings_of()
    save(tmp_path / "policy")
    run = create_run(settings, tmp_path / "run", tmp_path / "policy")
    result = evolve_run(run, settings, "inline")
    loss = load_loss(result.run)
    assert loss.manifest["warm_start"]["kind"] == "policy"
    steps = settings.lifetime.steps + settings.lifetime.scoring_episodes * find_family(FAMILY).horizon
    assert result.env_steps == loss.manifest["env_steps"] == 1234 + 2 * 4 * steps  # nothing was measured again
    np.testing.assert_array_equal(loss.tensors["obs_mean"], STATS["obs_mean"])
    assert not np.array_equal(result.phi, load_warm_start(tmp_path / "policy", settings).phi)


@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        (settings_of(), {"policy": {"type": "mlp"}}, "not a linear policy"),
        (settings_of(), {"family": "point-goal"}, "is a policy for point-goal, not point-reach"),
        (settings_of(init="random"), {}, "needs --loss.init target-action"),
        (settings_of(obs_stats="running"), {}, "needs --policy.obs_stats fixed"),
        (settings_of("observation-products"), {}, "a target needs 2 x 15 weights, not 2 x 5"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(settings, changes, sentence, tmp_path):
    save(tmp_path / "policy", **changes)
    with pytest.raises(BadInput, match=sentence):
        create_run(settings, tmp_path / "run", tmp_path / "policy")
    assert not (tmp_path / "run").exists()


# --- from a loss ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a finished evolution."""
    settings = settings_of()
    path = tmp_path_factory.mktemp("loss") / "run"
    return evolve_run(create_run(settings, path), settings, "inline").run


@pytest.mark.parametrize("name", ["", "loss.json", "loss.safetensors"])
def test_a_loss_brings_phi_statistics_and_its_cost(name, saved):
    loss, start = load_loss(saved), load_warm_start(saved / name, settings_of())
    np.testing.assert_array_equal(start.phi, loss.phi)
    assert set(start.tensors) == set(STATS)
    for stat in STATS:
        np.testing.assert_array_equal(start.tensors[stat], loss.tensors[stat])
    assert start.env_steps == loss.manifest["env_steps"] > 0
    expected = {"kind": "loss", "family": FAMILY, "sha256": loss.manifest["sha256"], "env_steps": start.env_steps}
    assert start.source == expected


def test_what_does_not_change_the_network_may_differ(saved):
    settings = settings_of(window=40, init="random")
    settings = replace(settings, seed=9, lifetime=replace(settings.lifetime, updates=5))
    start = load_warm_start(saved, settings)
    np.testing.assert_array_equal(Evolution(settings, start.phi).strategy.phi, load_loss(saved).phi)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (settings_of("task-features"), "other inputs or sizes: set --loss.inputs reward"),
        (settings_of(hidden=12), "set --loss.hidden 9"),
        (settings_of(kernels=(4, 3)), "set --loss.kernels 5 3"),
        (settings_of(obs_stats="running"), "needs --policy.obs_stats fixed, not running"),
        (replace(settings_of(), family="random-pendulum"), "does not fit random-pendulum"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(settings, sentence, saved, tmp_path):
    with pytest.raises(BadInput, match=sentence):
        create_run(settings, tmp_path / "run", saved)
    assert not (tmp_path / "run").exists()


def test_what_is_neither_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(BadInput, match="no loss and no policy"):
            load_warm_start(path, settings_of())
