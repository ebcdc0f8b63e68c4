"""Evaluation: held-out tasks, pairing, and what is made of lifetimes that were not finite."""

import math
import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import fresh_loss, small_loss

from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, run_key, stream_key
from epg.evaluation import protocol
from epg.evaluation.batches import batch_with, in_batches, of_lifetime
from epg.evaluation.fitting import fitting_learner
from epg.evaluation.protocol import Method, MethodResult, ranked_worst, record, table
from epg.evaluation.transfer import Transfer, differences, with_updates
from epg.evaluation.verdict import verdicts
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import REGISTRY, find_family
from epg.learners.learned import LearnedLoss
from epg.learners.registry import policy_gradient
from epg.lifetime.batch import inner_config
from epg.lifetime.update import begin
from epg.policies.mlp import MlpPolicy
from epg.recipes import PPOTuning, ppo_settings, preset, recipe_of
from epg.settings import LifetimeSettings, PolicySettings, Settings
from epg.zoo import load_loss, zoo_names

FAMILY = find_family("point-goal")
SETTINGS = preset("point-goal", "smoke")


def result_of(final: list[float], method: str = "epg", tuned: bool = True) -> MethodResult:
    count = len(final)
    return MethodResult(method, method, 32, np.array(final), np.zeros((count, 64)), np.zeros((count, 2)), tuned)


def learned_loss(settings: Settings) -> LearnedLoss:
    return LearnedLoss(settings.loss, MlpPolicy(settings.policy, FAMILY.spaces), FAMILY.spaces)


def tuned(settings: Settings, steps: int | None = None) -> Settings:
    """Return PPO's settings against a loss with these."""
    tuning = recipe_of(settings.family).tuned_ppo(steps or settings.lifetime.steps)
    return ppo_settings(settings, tuning, steps, has_stats=False)


def test_no_held_out_task_is_ever_trained_on():
    def goals(split: Split, epochs: range) -> set[tuple[float, ...]]:
        keys = [lifetime_key(0, split, epoch, task) for epoch in epochs for task in range(20)]
        drawn = [FAMILY.sample(stream_key(key, Stream.TASK)).goal for key in keys]
        return {tuple(np.asarray(goal).tolist()) for goal in drawn}

    trained, held_out = goals(Split.TRAIN, range(20)), goals(Split.HELD_OUT, range(1))
    assert len(trained) == 400
    assert len(held_out) == 20
    assert not trained & held_out


def test_both_methods_start_from_the_same_policies():
    """The pair shares (seed, split, epoch, task), so the policy's key is the same whatever the learner."""
    theirs = tuned(SETTINGS)
    key, policy = lifetime_key(0, Split.HELD_OUT, 0, 3), MlpPolicy(SETTINGS.policy, FAMILY.spaces)
    learners = learned_loss(SETTINGS), policy_gradient("ppo", theirs, FAMILY.spaces, policy)
    one, other = (
        begin(inner_config(settings, learner, policy, FAMILY, None), key, jnp.zeros(0)).params.policy
        for settings, learner in zip((SETTINGS, theirs), learners, strict=True)
    )
    for a, b in zip(one.mlp.weights, other.mlp.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert theirs.lifetime.steps == SETTINGS.lifetime.steps
    assert theirs.policy == SETTINGS.policy


@pytest.mark.slow
def test_recorded_lifetimes_are_the_batch_of_the_held_out_split():
    learned = learned_loss(SETTINGS)
    phi = np.asarray(learned.initial_phi(run_key(0, Stream.LOSS)))
    method = Method("epg", "evolved loss", SETTINGS, learned, phi)
    result = record(method, 3, 0)
    steps, updates = SETTINGS.lifetime.steps, SETTINGS.lifetime.updates
    assert result.episode_return.shape == (3, steps)
    assert result.kl.shape == (3, updates)
    assert (result.steps, result.updates) == (steps, updates)
    ended = np.isfinite(result.episode_return)
    np.testing.assert_array_equal(ended, np.tile((np.arange(steps) + 1) % FAMILY.horizon == 0, (3, 1)))
    other = record(method, 3, 0, Split.TRAIN)
    assert not np.array_equal(result.final, other.final)


# Company.


def test_a_task_gives_the_same_number_alone_among_20_and_among_200():
    def run(index):  # whose every row depends on its company, as rounding does
        return np.asarray(index) + np.sin(float(index.sum())) / len(index)

    alone, few, many = (in_batches(run, tasks) for tasks in (1, 20, 200))
    assert [len(it) for it in (alone, few, many)] == [1, 20, 200]
    np.testing.assert_array_equal(alone, many[:1])
    np.testing.assert_array_equal(few, many[:20])
    assert all(int(batch_with(task)[0][batch_with(task)[1]]) == task for task in (0, 9, 10, 123))


def test_tables_average_the_lifetimes_of_a_task():
    learned = learned_loss(SETTINGS)
    phi = np.asarray(learned.initial_phi(run_key(0, Stream.LOSS)))
    method = Method("epg", "evolved loss", SETTINGS, learned, phi)
    once, often = (record(method, 4, 0, lifetimes=number) for number in (1, 3))
    sampler = of_lifetime(task_sampler(FAMILY, 0, Split.HELD_OUT))
    (task, key), (again, other) = (sampler(jnp.int32(2), jnp.int32(lifetime)) for lifetime in (0, 2))
    np.testing.assert_array_equal(task.goal, again.goal)
    assert not np.array_equal(jax.random.key_data(key), jax.random.key_data(other))
    assert (once.spread, often.lifetimes) == (0.0, 3)
    assert often.spread > 0
    assert not np.array_equal(once.final, often.final)
    summary = table([often], "point-goal", 0)
    assert (summary["lifetimes"], summary["methods"]["epg"]["spread"]) == (3, often.spread)
    assert len(often.policies) == 4


def test_fixed_statistics_that_were_not_measured_are_missed():
    settings = replace(SETTINGS, policy=replace(SETTINGS.policy, obs_stats="fixed"))
    with pytest.raises(BadInput, match=r"policy\.obs_stats is fixed, and the statistics were not measured"):
        record(Method("epg", "evolved loss", settings, learned_loss(settings), np.zeros(1, np.float32)), 3, 0)


def test_a_lifetime_that_was_not_finite_counts_as_the_worst():
    np.testing.assert_array_equal(ranked_worst(np.array([3.0, np.nan, -1.0])), [3.0, -1.0, -1.0])
    with pytest.raises(BadInput, match="every lifetime met a non-finite number"):
        ranked_worst(np.array([np.nan, np.inf]))


def test_table_pairs_by_task():
    ours, theirs = result_of([1.0, 12.0, 3.0, 14.0]), result_of([0.0, 11.0, 2.0, 13.0], "ppo")
    result = table([ours, theirs, result_of([2.0, 13.0, 4.0, math.nan], "ppo-long", tuned=False)], "point-goal", 0)
    methods = result["methods"]
    assert list(methods) == ["epg", "ppo", "ppo-long"]
    assert "difference" not in methods["epg"]
    assert methods["ppo"]["difference"] == {"value": 1.0, "low": 1.0, "high": 1.0}  # exactly 1 on every task
    assert methods["ppo-long"]["difference"]["value"] == pytest.approx((-1 - 1 - 1 + 12) / 4)  # the worst is 2
    assert [it["nonfinite"] for it in methods.values()] == [0, 0, 1]
    assert [it["tuned"] for it in methods.values()] == [True, True, False]
    assert [(it["steps"], it["updates"], it["steps_per_update"]) for it in methods.values()] == [(64, 2, 32)] * 3
    assert methods["epg"]["interval"]["value"] == pytest.approx(7.5)  # mean of the middle two
    assert methods["epg"]["interval"]["low"] < 7.5 < methods["epg"]["interval"]["high"]
    assert (result["tasks"], result["steps"], result["kind"]) == (4, 64, "compare")
    assert table([ours], "point-goal", 0)["kind"] == "learn"


# Verdicts.


def summary(low: float, high: float, tasks: int = 10, tuned: bool = True, **changes: Any) -> dict[str, Any]:
    """Return a summary in which one method is compared with the evolved loss."""
    difference = {"value": (low + high) / 2, "low": low, "high": high}
    ppo = {"label": "PPO", "steps": 8192, "updates": 64, "tuned": tuned, "difference": difference, **changes}
    return {"tasks": tasks, "methods": {"epg": {"label": "evolved loss"}, "ppo": ppo}}


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.1, 2.0, r"^The evolved loss is better than PPO \(.*\): .*paired difference is above zero\.$"),
        (-2.0, -0.1, r"^The evolved loss is worse than PPO \(.*\): .*paired difference is below zero\.$"),
        (-0.1, 2.0, r"^The evolved loss and PPO \(.*\) cannot be told apart: .*paired difference includes zero\.$"),
        (0.0, 2.0, "cannot be told apart"),
        (-2.0, 0.0, "cannot be told apart"),
        (math.nan, math.nan, "cannot be told apart"),
    ],
)
def test_a_verdict_says_what_the_interval_allows(low: float, high: float, says: str):
    (sentence,) = verdicts(summary(low, high))
    assert re.search(says, sentence), sentence


def test_a_verdict_names_steps_updates_and_tuning():
    (sentence,) = verdicts(summary(0.1, 2.0))
    assert "PPO (8,192 steps, 64 updates, tuned for this family)" in sentence
    (sentence,) = verdicts(summary(0.1, 2.0, tuned=False, steps=256, updates=2))
    assert "PPO (256 steps, 2 updates, not tuned for this family)" in sentence


@pytest.mark.parametrize("tasks", [1, 9])
def test_few_tasks_give_no_verdict(tasks: int):
    assert verdicts(summary(0.1, 2.0, tasks)) == []
    assert len(verdicts(summary(0.1, 2.0, 10))) == 1


def test_each_compared_method_has_its_verdict_and_a_single_one_none():
    rising = [float(it) for it in range(10)]
    ours = result_of([it + 5.0 for it in rising])
    result = table([ours, result_of(rising, "ppo"), result_of([it + 9.0 for it in rising], "slow")], "point-goal", 0)
    better, worse = verdicts(result)
    assert "is better than ppo (64 steps, 2 updates, tuned for this family)" in better
    assert "is worse than slow" in worse
    assert verdicts(table([ours], "point-goal", 0)) == []


# PPO.


@pytest.mark.parametrize(("updates", "size"), [(32, 128), (3, 32), (5, 32)])
def test_ppo_takes_exactly_as_many_steps(updates: int, size: int):
    settings = replace(SETTINGS, lifetime=replace(SETTINGS.lifetime, updates=updates, minibatch=32))
    theirs = tuned(settings)
    assert theirs.lifetime.steps == settings.lifetime.steps
    assert theirs.lifetime.steps_per_update == size
    assert tuned(settings, steps=4096).lifetime.steps == 4096  # unless told otherwise
    with pytest.raises(BadInput, match="PPO's steps must be above zero"):
        ppo_settings(settings, PPOTuning(), -1, has_stats=False)


@pytest.mark.parametrize("family", REGISTRY)
def test_the_tuning_of_the_nearest_length_counts(family: str):
    recipe = recipe_of(family)
    for steps, tuning in recipe.ppo.items():
        assert recipe.tuned_ppo(steps) == recipe.tuned_ppo(int(1.1 * steps)) == tuning
    assert recipe.ppo or recipe.tuned_ppo(8192) == PPOTuning()


def test_fixed_statistics_are_for_ppo_only_where_the_loss_has_them():
    tuning = PPOTuning(obs_stats="fixed", log_std=0.25)
    assert ppo_settings(SETTINGS, tuning, None, has_stats=True).policy.obs_stats == "fixed"
    assert ppo_settings(SETTINGS, tuning, None, has_stats=False).policy.obs_stats == "running"
    assert ppo_settings(SETTINGS, tuning, None, has_stats=True).policy.log_std == 0.25


def test_losses_of_the_zoo_are_those_of_their_familys_recipe():
    """`epg evolve NAME --seed SEED` makes such a loss anew; bit for bit only with the same code and processor."""
    for name in zoo_names():
        artefact = load_loss(name)
        family = find_family(artefact.manifest["family"])
        settings, learned = fitting_learner(artefact, family.name)
        assert artefact.manifest["family_version"] == family.version
        assert learned.dimension == len(artefact.phi)
        if name == family.name:
            assert settings == replace(preset(family.name, "laptop"), seed=artefact.manifest["seed"])


def test_a_longer_lifetime_begins_as_the_evolved_one_and_then_keeps_the_last_step_size():
    lifetime = LifetimeSettings(8, updates=3, minibatch=8, learning_rate_end=0.0, scoring_episodes=1)
    settings = replace(SETTINGS, policy=PolicySettings(hidden=(5,)), loss=small_loss("reward"), lifetime=lifetime)
    loss = fresh_loss(settings)
    evolved, longer = (
        record(protocol.loss_method(loss, FAMILY.name, Transfer(updates)), 2, 0) for updates in (None, 5)
    )
    np.testing.assert_allclose(longer.kl[:, :3], evolved.kl, rtol=1e-4)
    assert (evolved.kl > 0).all()
    np.testing.assert_array_equal(longer.kl[:, 3:], 0.0)
    assert (evolved.transfer, evolved.label) == ((), "evolved loss")
    assert (longer.transfer, longer.label) == (
        ("5 updates instead of 3, step sizes as evolved",), "evolved loss (transfer)"
    )  # fmt: skip
    stretched = Transfer(6, stretch=True).apply(settings)
    assert stretched.lifetime == replace(lifetime, updates=6)
    assert differences(settings, stretched) == ("6 updates instead of 3, step sizes stretched",)
    assert (Transfer(6).apply(settings).lifetime.annealed, stretched.lifetime.annealed) == (lifetime.updates, 6)


def test_goals_are_counted_per_thousand_steps():
    plain = result_of([1.0, 2.0])
    reaching = replace(plain, reached=np.array([[1.0, 0.0], [2.0, 1.0]]))  # in 64 steps each
    assert (plain.goals, table([plain], "point-goal", 0)["methods"]["epg"]["goals"]) == (None, None)
    assert reaching.goals.value == pytest.approx(1000 * 2 / 64)
    assert (reaching.goals.low, reaching.goals.high) == pytest.approx((1000 / 64, 3000 / 64))
    assert table([reaching], "point-goal", 0)["methods"]["epg"]["goals"] == reaching.goals.to_dict()
    assert [set(protocol.curves([it])) - set(protocol.curves([plain])) for it in (plain, reaching)] == [
        set(), {"epg/reached"}
    ]  # fmt: skip


def test_settings_of_another_length_keep_the_rest():
    longer = with_updates(SETTINGS, 9, stretch=True)
    assert longer.lifetime == replace(SETTINGS.lifetime, updates=9)
    assert longer.loss == SETTINGS.loss
    assert with_updates(SETTINGS, None) == SETTINGS
