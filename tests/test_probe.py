"""The loss card: a clone must look like a clone, PPO like a learner, and each probe changes what it says it does."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from samples import CONTINUOUS, fresh_loss, small_loss, some_experience

import epg
from epg.core.types import InnerParams
from epg.evaluation import probe as probing
from epg.evaluation.batches import BATCH
from epg.evaluation.interventions import FlippedReward, fix_mixes, flip_actuators, hide_history, negate_reward
from epg.evaluation.probe import LossCard, Probe, TargetPolicy
from epg.evaluation.protocol import meta_params
from epg.evaluation.statistics import paired_difference
from epg.families.native.point import POINT_GOAL, POINT_REACH
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.loss.init import shift_targets
from epg.loss.inputs import constant_columns, head_columns, width_of
from epg.loss.modulation import mix
from epg.policies.mlp import MlpPolicy
from epg.recipes import ppo_settings, preset, recipe_of
from epg.settings import LifetimeSettings, LossSettings, PolicySettings, Settings
from epg.storage.loss_artefact import save_loss
from epg.storage.metrics import read_metrics
from epg.zoo import list_losses

TASKS = 24

# Towards the goal, less the velocity: a linear policy that reaches well with any rotation of the actuators up to 60°.
REACHING = jnp.array([[2.0, 0.0, -0.5, 0.0, 0.0], [0.0, 2.0, 0.0, -0.5, 0.0]])


def clone_probe() -> Probe:
    """Return the probes of a loss that is a distance to that linear policy and nothing else."""
    settings = Settings(
        "point-reach",
        policy=PolicySettings(log_std=-1.0),
        loss=LossSettings(window=64, temporal="none", memory=0),
        lifetime=LifetimeSettings(32, updates=24, update_epochs=8, learning_rate=1e-2, scoring_episodes=8),
    )
    learner = LearnedLoss(settings.loss, MlpPolicy(settings.policy, POINT_REACH.spaces), POINT_REACH.spaces)
    fresh = learner.unravel(learner.initial_phi(jax.random.key(0)))
    clone = shift_targets(fresh, REACHING, settings.loss, POINT_REACH.spaces)
    return Probe(settings, learner, np.asarray(ravel_pytree(clone)[0]), None, TASKS, seed=5)


@pytest.mark.slow
def test_a_clone_looks_like_a_clone():
    # 24 held-out tasks. The target already does what the policy is taught; history adds nothing; flipped, it flees.
    probe = clone_probe()
    trained, target = probe.train(), probe.target_returns()
    blind = probe.train(hide_history(probe.learner, probe.phi))
    flipped = probe.train(family=flip_actuators(POINT_REACH))
    assert trained.mean() > 5.0
    assert target.mean() > trained.mean() - 2.0
    np.testing.assert_allclose(blind, trained, atol=1e-4)  # there is no history to hide
    assert paired_difference(flipped, trained).high < -10.0


@pytest.mark.slow
def test_ppo_looks_like_a_learner():
    # The hidden goal is found by the reward alone: flipped actuators change nothing but the random numbers.
    settings = ppo_settings(preset("point-goal"), recipe_of("point-goal").tuned_ppo(2048), 2048, False)
    spaces = POINT_GOAL.spaces
    learner = PPO(settings.ppo, MlpPolicy(settings.policy, spaces), spaces)
    probe = Probe(settings, learner, np.zeros(0, np.float32), None, TASKS, seed=5)  # type: ignore[arg-type]
    trained, flipped = probe.train(), probe.train(family=flip_actuators(POINT_GOAL))
    negated = -probe.train(family=negate_reward(POINT_GOAL))
    assert trained.mean() > 4.0
    assert flipped.mean() > 0.5 * trained.mean()
    assert negated.mean() < -4.0  # it learned to flee, as it was told


def test_the_target_of_a_clone_is_its_linear_policy(rng):
    probe = clone_probe()
    seen = jnp.asarray(rng.normal(0, 0.4, (20, 4)), jnp.float32)
    policy = TargetPolicy(probe.learner, log_std=-1.0)
    means = jax.vmap(lambda it: policy.apply(jnp.asarray(probe.phi), (), it)[0].mean)(seen)
    # The random weights of a fresh target (0.02) remain beside the policy that was written in.
    np.testing.assert_allclose(means, seen @ REACHING[:, :-1].T + REACHING[:, -1], atol=0.15)


@pytest.mark.parametrize(
    "settings",
    [
        small_loss(),
        small_loss(inputs=("reward",), modulation="reward", mixes=3),
        small_loss(modulation="transitions", mixes=2, temporal="none"),
        small_loss(memory=0, temporal="experience"),
    ],
)
def test_hiding_history_clears_context_memory_and_mixes_only(settings, rng):
    learner = LearnedLoss(settings, MlpPolicy(PolicySettings(), CONTINUOUS), CONTINUOUS)
    phi = rng.normal(1.0, 0.1, learner.dimension).astype(np.float32)
    before, after = (learner.unravel(jnp.asarray(it)) for it in (phi, hide_history(learner, phi)))
    columns, width = head_columns(settings, CONTINUOUS), width_of(head_columns(settings, CONTINUOUS))
    hidden = set(range(width, width + settings.memory))
    hidden |= set(range(len(before.head) - settings.context_size, len(before.head)))
    for name in ("mixes x observation", "mixes"):
        hidden |= set(range(columns[name].start, columns[name].stop)) if name in columns else set()
    cleared = np.flatnonzero((np.asarray(after.head) == 0).all(axis=1))
    assert set(cleared.tolist()) == hidden
    kept = sorted(set(range(len(before.head))) - hidden)
    np.testing.assert_array_equal(after.head[np.array(kept)], before.head[np.array(kept)])
    assert constant_columns(settings, CONTINUOUS)["memory"].stop == settings.memory


@pytest.mark.parametrize("family", [POINT_GOAL, POINT_REACH])
def test_flipped_and_negated_families_do_what_they_say(family):
    task = family.sample(jax.random.key(0))
    state, action = family.reset(jax.random.key(1), task), jnp.array([0.3, -0.7])
    after, reward, _ = family.step(state, action, task)
    flipped = flip_actuators(family).step(state, -action, task)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(flipped[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(negate_reward(family).step(state, action, task)[1], -reward)


@pytest.mark.slow
def test_the_card_has_differences_to_the_unchanged_loss():
    probe = clone_probe()
    results = []
    for result in probe.results():
        results.append(result)
        if len(results) == 3:
            break
    summary = LossCard(Path("run"), "point-reach", 5, "digest", tuple(results), SimpleNamespace(to_dict=dict)).to_dict()
    names = [it["name"] for it in summary["probes"]]
    assert names == ["trained by the loss", "its target acting, no learning", "blind to history"]
    assert summary["probes"][0]["difference"] is None
    assert summary["tasks"] == TASKS
    gap = summary["probes"][1]["difference"]["value"]
    assert gap == pytest.approx(float(results[1].returns.mean() - results[0].returns.mean()), abs=1e-4)


MODULATED = Settings(
    "point-goal",
    policy=PolicySettings(hidden=(5,)),
    loss=small_loss(inputs=("reward",), modulation="reward", mixes=3, temporal="none", memory=0, window=32),
    lifetime=LifetimeSettings(8, updates=4, minibatch=8, learning_rate=1e-2, scoring_episodes=1),
)


def modulated_probe(rng: np.random.Generator, settings: Settings = MODULATED) -> Probe:
    """Return the probes of a random loss that sees the reward."""
    learner = LearnedLoss(settings.loss, MlpPolicy(settings.policy, POINT_GOAL.spaces), POINT_GOAL.spaces)
    phi = learner.initial_phi(jax.random.key(0)) + rng.normal(0, 0.3, learner.dimension)
    return Probe(settings, learner, np.asarray(phi, np.float32), None, 4, seed=5)


def test_every_loss_whose_mixes_see_the_window_is_probed_with_another_tasks_history(rng, monkeypatch):
    reward = {"inputs": ("reward",), "mixes": 3}
    for kind in ("reward", "lasting-reward", "transitions"):
        assert small_loss(modulation=kind, **reward).mixes_history
    assert not small_loss().mixes_history
    assert not small_loss(inputs=("task-features",), modulation="task-features").mixes_history
    monkeypatch.setattr(Probe, "train", lambda self, *_, **__: np.zeros(4))
    monkeypatch.setattr(Probe, "target_returns", lambda self: np.zeros(4))
    monkeypatch.setattr(Probe, "with_foreign_history", lambda self: np.ones(4))
    settings = replace(MODULATED, loss=replace(MODULATED.loss, modulation="lasting-reward"))
    first = [it.name for _, it in zip(range(4), modulated_probe(rng, settings).results(), strict=False)]
    assert first[3] == "another task's history"


def test_fixed_mixes_do_not_depend_on_the_window(rng):
    probe, mixes = modulated_probe(rng), jnp.array([0.9, -0.2, 1.0])
    loss = probe.learner.unravel(fix_mixes(probe.learner, jnp.asarray(probe.phi), mixes))
    for _ in range(2):
        experience = some_experience(rng, POINT_GOAL.spaces, 32, 8)
        np.testing.assert_allclose(mix(loss.mixes, loss.mix_bias, MODULATED.loss, experience), mixes, atol=1e-5)


@pytest.mark.slow
def test_the_history_of_another_task_matters_to_a_loss_with_history_only(rng):
    probe = modulated_probe(rng)
    trained, foreign = probe.train(), probe.with_foreign_history()
    assert np.abs(foreign - trained).max() > 0.1
    blind = replace(probe, phi=hide_history(probe.learner, probe.phi))
    np.testing.assert_allclose(blind.with_foreign_history(), blind.train(), atol=1e-3)


def test_the_reward_is_flipped_since_the_change_and_kept_before_it(rng):
    experience = some_experience(rng, POINT_GOAL.spaces, 32, 8)
    learner = FlippedReward(modulated_probe(rng).learner, after=2)
    for made, opposite in ((0, 0), (1, 0), (2, 8), (3, 16), (9, 32)):  # updates made before this one; rows since
        shown = learner.shown(InnerParams((), ((), jnp.float32(made))), experience)
        sign = np.where(np.arange(32) >= 32 - opposite, -1.0, 1.0)
        np.testing.assert_array_equal(shown.window.reward, experience.window.reward * sign)
        np.testing.assert_array_equal(shown.reward, experience.reward * sign[-8:])


@pytest.mark.slow
def test_a_reward_flipped_from_the_start_is_the_negated_one_and_never_is_none(rng):
    probe, run = modulated_probe(rng), {}
    for after in (0, MODULATED.lifetime.updates):
        batch = probe.batch(FlippedReward(probe.learner, after), MODULATED, POINT_GOAL)
        run[after] = np.asarray(batch(meta_params(probe.phi), jnp.arange(BATCH), jnp.int32(0)).final_return)[:4]
    np.testing.assert_allclose(run[MODULATED.lifetime.updates], probe.train(), atol=1e-3)
    np.testing.assert_allclose(-run[0], probe.train(family=negate_reward(POINT_GOAL)), atol=1e-3)
    assert np.abs(probe.with_flipped_reward() + run[0]).max() > 1e-3  # half-way is neither


def test_a_card_is_a_run_with_a_page_and_stands_beside_its_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "ARCHITECTURES", {})
    monkeypatch.setattr(probing, "LENGTHS", ())
    settings = replace(MODULATED, loss=small_loss(), lifetime=LifetimeSettings(8, updates=2, minibatch=8))
    loss = fresh_loss(settings)
    spent = {"epochs": 1, "env_steps": 1, "curve": [0.0], "seed": 0, "warm_start": None, "licence": None}
    save_loss(tmp_path / "run", loss.tensors, loss.manifest | spent)
    card = epg.probe(tmp_path / "run", tasks=2, run=tmp_path / "probe")
    names = ["trained by the loss", "its target acting, no learning", "blind to history", "actuators flipped"]
    assert [it.name for it in card.probes] == names
    assert "Loss card: point-goal" in (tmp_path / "probe" / "report.html").read_text()
    lines = read_metrics(tmp_path / "probe" / "metrics.jsonl")  # written as each probe ended
    assert [(it["curve"], it["env_steps"]) for it in lines] == [(it.name, it.steps) for it in card.probes]
    assert [it["final_return"] for it in lines] == [pytest.approx(it.interval.value) for it in card.probes]
    assert {it.name for it in (tmp_path / "probe" / "tensorboard").iterdir()} == set(names)
    (entry,) = (it for it in list_losses(tmp_path) if not it.shipped)
    assert entry.card_numbers == {it.name: pytest.approx(it.interval.value) for it in card.probes[1:]}
    (tmp_path / "run" / "card.json").write_text("{}")
    assert [it.card for it in list_losses(tmp_path) if not it.shipped] == [None]  # damaged: as if it were not there
