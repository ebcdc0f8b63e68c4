"""Gradients of a loss in a lifetime: ranks, sensitivity by finite differences, and measuring that changes nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from jax.flatten_util import ravel_pytree
from samples import CONTINUOUS, fresh_loss, small_loss, small_settings, some_experience

from epg.core.types import InnerParams, MetaParams
from epg.evaluation.gradients import MeasuredLoss, measure_gradients, sensitivity, spearman
from epg.learners.base import InnerState
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.loss.network import cache_inputs, evaluate
from epg.policies.base import distribution
from epg.policies.distributions import Gaussian
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings, PolicySettings, PPOSettings

POLICY = MlpPolicy(PolicySettings(hidden=(5,)), CONTINUOUS)
WINDOW, ROWS = 24, 8


def make(settings, rng, replay=False):
    """Return a loss, something to evaluate it on, and parameters."""
    learned = LearnedLoss(settings, POLICY, CONTINUOUS, replay)
    phi = jnp.asarray(rng.normal(0, 0.3, learned.dimension), jnp.float32)
    params = InnerParams(POLICY.init(jax.random.key(1)), learned.init(jax.random.key(2)))
    experience = some_experience(rng, CONTINUOUS, WINDOW, ROWS, pushes=3)
    return learned, params, experience, MetaParams(phi, jnp.zeros(()), jnp.zeros(0))


@pytest.mark.parametrize("ties", [False, True])
def test_spearman_is_scipys(rng, ties):
    x, y = rng.normal(size=(2, 200))
    y = np.round(x + y) if ties else x + y
    found = spearman(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    assert float(found) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-4)


def test_spearman_of_a_constant_is_zero():
    assert float(spearman(jnp.zeros(5), jnp.arange(5.0))) == 0.0


@pytest.mark.parametrize(
    ("settings", "replay"),
    [
        pytest.param(small_loss("reward"), False, marks=pytest.mark.slow),
        (small_loss("reward", modulation="reward", mixes=3, temporal="none"), True),
        pytest.param(small_loss(temporal="experience"), False, marks=pytest.mark.slow),
    ],
    ids=["paper", "modulated", "experience"],
)
def test_sensitivity_is_that_of_finite_differences(rng, settings, replay):
    learned, params, experience, meta = make(settings, rng, replay)
    found = sensitivity(learned, params, experience, meta)
    loss, outputs = learned.unravel(meta.phi), distribution(POLICY, params.policy, experience.window.observation).mean

    @jax.jit
    def value(window, outputs):
        seen = replace(experience, window=window)
        cached = cache_inputs(loss, settings, CONTINUOUS, seen, replay)
        size = WINDOW if replay else ROWS
        row = jnp.array([size - ROWS + ROWS // 2])
        asked = outputs if settings.temporal == "policy" else outputs[-size:][row]
        emitted = Gaussian(asked, params.policy.log_std)
        return evaluate(loss, settings, cached, lambda _: emitted, params, seen, row)

    def norm(name, position):
        total, width = 0.0, 1e-2
        array = outputs if name == "policy" else getattr(experience.window, name)
        for index in np.ndindex(array.shape[1:]):
            moved = [array.at[(position, *index)].add(sign * width) for sign in (1.0, -1.0)]
            ends = [
                value(experience.window, it)
                if name == "policy"
                else value(replace(experience.window, **{name: it}), outputs)
                for it in moved
            ]
            total += float((ends[0] - ends[1]) / (2 * width)) ** 2
        return total**0.5

    for name in ("observation", "done", "reward", "policy"):  # actions also count through their trace
        for position in (3, WINDOW - ROWS // 2, WINDOW - 1):
            np.testing.assert_allclose(getattr(found, name)[position], norm(name, position), rtol=0.1, atol=1e-3)
    if "reward" not in settings.inputs:
        assert not np.any(found.reward)


@pytest.mark.slow
def test_measuring_changes_nothing_and_compares_with_ppo(rng):
    learned, params, experience, meta = make(small_loss("reward"), rng)
    ppo = PPO(PPOSettings(), POLICY, CONTINUOUS)
    measured, value = MeasuredLoss(learned, ppo), ppo.init(jax.random.key(3))
    both, adam = InnerParams(params.policy, (params.learner, value)), optax.adam(1e-2)
    batches, rows = jnp.arange(ROWS).reshape(2, 4), jnp.arange(ROWS)
    alone = learned.update(InnerState(params, adam.init(params)), experience, meta, batches, adam, None).params
    beside = measured.update(InnerState(both, adam.init(both)), experience, meta, batches, adam, None).params
    for a, b in zip(
        jax.tree.leaves((alone.policy, alone.learner)), jax.tree.leaves((beside.policy, beside.learner[0])), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    slopes = [
        learner.gradient(it, experience, learner.prepare(it, experience, meta), rows, meta).policy
        for learner, it in ((learned, params), (ppo, InnerParams(params.policy, value)))
    ]
    expected = scipy.stats.spearmanr(*(ravel_pytree(it)[0] for it in slopes)).statistic
    assert float(measured.measure(both, experience, meta).correlation) == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
def test_gradients_are_measured_at_every_update():
    settings = small_settings("point-goal", 3, EvolutionSettings(noise_vectors=2, lifetimes=2, shard=2))
    found = measure_gradients(fresh_loss(settings), "point-goal", tasks=2, seed=0)
    assert found.correlation.shape == (2, 3)
    assert (np.abs(found.correlation) <= 1).all()
    assert set(found.sensitivity) == {"observation", "action", "done", "policy", "reward"}
    assert all(it.shape == (2, 24) and np.isfinite(it).all() for it in found.sensitivity.values())
    assert found.position == 24 - 16 + 8
