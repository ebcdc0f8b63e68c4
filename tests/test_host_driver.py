"""The host driver: equal to the scan driver, exact counts, both ends of an episode, divergence survived."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from outside import Outside, Slowly, outside, without_resets
from samples import run_epoch, small_settings

from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.core.runtime import jit
from epg.core.types import MetaParams
from epg.evolution import worker
from epg.evolution.loop import Evolution
from epg.families.mujoco.hopper import RANDOM_HOPPER
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.learners.registry import policy_gradient
from epg.learners.reinforce import Reinforce
from epg.lifetime import batch
from epg.lifetime.batch import META_AXES, inner_config
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.scan_driver import run_lifetime, score_policy
from epg.lifetime.update import InnerConfig
from epg.policies.linear import LinearPolicy
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings

SETTINGS = small_settings("random-hopper", 5, EvolutionSettings(epochs=2, noise_vectors=2, lifetimes=2, shard=2))
M, UPDATES, ROWS = SETTINGS.lifetime.steps_per_update, SETTINGS.lifetime.updates, 3


def lifetimes(family, number: int = ROWS):
    """Return keys and tasks of lifetimes."""
    keys = jnp.stack([lifetime_key(0, Split.TRAIN, 0, index) for index in range(number)])
    return keys, jax.vmap(lambda key: family.sample(stream_key(key, Stream.TASK)))(keys)


# Gaussian actions and time limits only; discrete actions, terminations and time limits both.
CASES = {"point-goal": ("learned", 20), "random-cart-pole": ("ppo", 12)}
NO_RESETS = "point-goal without resets"


def config_of(learner: str, family) -> InnerConfig:
    """Return the configuration of lifetimes of a family under a learner."""
    policy = MlpPolicy(SETTINGS.policy, family.spaces)
    if learner == "learned":
        chosen = LearnedLoss(SETTINGS.loss, policy, family.spaces)
    else:
        chosen = policy_gradient(learner, SETTINGS, family.spaces, policy)
    return inner_config(SETTINGS, chosen, policy, family, None)


def meta_of(phis) -> MetaParams:
    """Return meta-parameters of lifetimes with these losses [S, D] and fresh policies."""
    return MetaParams(phis, jnp.zeros(()), jnp.zeros((len(phis), 0)))


def case(name: str):
    """Return configuration, family and the meta-parameters of all rows."""
    learner, horizon = CASES[name.split()[0]]
    family = replace(find_family(name.split()[0]), horizon=horizon)
    family = without_resets(family) if name == NO_RESETS else family
    config = config_of(learner, family)
    phi = config.learner.initial_phi(jax.random.key(0)) if learner == "learned" else jnp.zeros(0)
    return config, family, meta_of(jnp.tile(phi, (ROWS, 1)))


@pytest.mark.parametrize("together", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_groups_of_lifetimes_are_one_batch(monkeypatch, together):
    # Six lifetimes with losses of their own, in groups of 1 and 3 (5 does not divide 6), and all at once.
    family = replace(find_family("point-goal"), horizon=20)
    config = config_of("learned", family)
    phi = jnp.stack([config.learner.initial_phi(jax.random.key(index)) for index in range(6)])
    keys, tasks = lifetimes(family, 6)

    def trained(size):
        monkeypatch.setattr("epg.lifetime.host_driver.GROUP", size)
        return HostDriver(config, outside(family)).run(keys, tasks, meta_of(phi))

    ours, theirs = trained(together), trained(6)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert len(np.unique(np.asarray(theirs.kl)[:, 0])) == 6  # no two lifetimes are alike


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("point-goal", "fresh"),
        pytest.param("random-cart-pole", "given", marks=pytest.mark.slow),
        pytest.param(NO_RESETS, "fresh", marks=pytest.mark.slow),
    ],
)
def test_host_driver_is_the_scan_driver(name, start):
    config, family, meta = case(name)
    keys, tasks = lifetimes(family)
    if start == "given":  # policies that evolution or a pool gives
        size = ravel_pytree(config.policy.init(keys[0]))[0].size
        meta = meta._replace(policy_init=0.2 * jax.random.normal(jax.random.key(9), (ROWS, size)))
    scan = jit(jax.vmap(partial(run_lifetime, config, family), (0, META_AXES, 0)))
    theirs = scan(tasks, meta, keys)
    ours = HostDriver(config, outside(family)).run(keys, tasks, meta)
    np.testing.assert_array_equal(np.isnan(ours.episode_return), np.isnan(theirs.episode_return))
    np.testing.assert_allclose(ours.episode_return, theirs.episode_return, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.kl, theirs.kl, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(ours.final_return, theirs.final_return, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours.survived, theirs.survived, rtol=1e-6)
    for part in ("policy", "normalizer", "window"):
        for a, b in zip(*(jax.tree.leaves(getattr(it, part)) for it in (ours, theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(ours.reached, theirs.reached)
    assert ours.reached.any() == (name != "point-goal")
    assert np.isfinite(ours.episode_return).any()
    assert not np.any(ours.nonfinite)
    assert not np.any(ours.diverged)


def test_both_drivers_score_given_policies_alike():
    # Linear policies that nobody trains, with fixed observation statistics.
    family = replace(find_family("point-goal"), horizon=20)
    policy = LinearPolicy(family.spaces, -0.5)
    stats = FixedStats(np.float32([0.3, -0.2, 0.1, 0.5]), np.float32([1.0, 2.0, 0.5, 1.5]))
    config = InnerConfig(Reinforce(SETTINGS.ppo, policy), policy, SETTINGS.lifetime, family.spaces, M, stats)
    keys, tasks = lifetimes(family)
    params = jax.random.normal(jax.random.key(0), (ROWS, family.spaces.action, policy.features + 1))
    theirs = jit(jax.vmap(partial(score_policy, config, family)))(tasks, params, keys)
    ours = HostDriver(config, outside(family)).score_policies(keys, tasks, params)
    assert ours.returns.shape == (ROWS, config.lifetime.scoring_episodes)
    np.testing.assert_allclose(ours.returns, theirs, rtol=1e-3, atol=1e-3)
    assert (ours.steps == config.lifetime.scoring_episodes * 20).all()
    assert not ours.diverged.any()


def test_on_update_gets_the_states_before_every_update_and_the_last_one():
    config, family, meta = case("point-goal")
    keys, tasks = lifetimes(family)
    seen = []
    result = HostDriver(config, outside(family)).run(keys, tasks, meta, lambda *it: seen.append(it))
    assert [index for index, _ in seen] == list(range(UPDATES + 1))
    np.testing.assert_array_equal([state.updates for _, state in seen], np.tile(np.arange(UPDATES + 1), (ROWS, 1)).T)
    for ours, theirs in zip(jax.tree.leaves(seen[-1][1].params.policy), jax.tree.leaves(result.policy), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_env_steps_are_those_simulated(monkeypatch):
    # A pole that falls is not simulated to the horizon; the scan driver cannot stop, and counts what it simulates.
    config, family, meta = case("random-cart-pole")
    family = replace(family, horizon=60)
    keys, tasks = lifetimes(family)
    simulators = []
    host, simulate = outside(family), Outside.simulate
    repeat = Slowly.repeat
    monkeypatch.setattr(Outside, "simulate", lambda *args: simulators.append(simulate(*args)) or simulators[-1])
    monkeypatch.setattr(Slowly, "repeat", lambda *args: simulators.append(repeat(*args)) or simulators[-1])
    steps = np.asarray(HostDriver(config, host).run(keys, tasks, meta).env_steps)
    assert steps.sum() == sum(it.moved for it in simulators)
    assert simulators[0].moved == ROWS * M * UPDATES
    assert simulators[1].moved < ROWS * 2 * family.horizon
    assert (steps > M * UPDATES).all()


def test_rollout_has_both_ends_of_an_episode():
    # Poles fall or reach the limit of 12 steps: each end is what the family's own step says, never both.
    config, family, meta = case("random-cart-pole")
    keys, tasks = lifetimes(family)
    driver = HostDriver(config, outside(family))
    stepper = driver.stepper
    running = stepper.batch(keys, tasks)
    packed, seen = stepper.begin(running, stepper.draw_states(running, 0, None)[0]), []
    actor = driver.actors(driver._begin(keys, meta.policy_init))
    for index in range(6):
        states = driver._act(running, actor, packed, index)
        packed = states[-1]
        seen.append(jax.vmap(stepper.packing.rollout, 1, 1)(jnp.asarray(states)))
    rollout = jax.tree.map(lambda *parts: np.concatenate(parts), *seen)  # [6 M, ROWS, ...]
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    assert not (rollout.terminated & rollout.truncated).any()
    step = jax.jit(jax.vmap(family.step))
    end = rollout.terminated | rollout.truncated
    for t in range(6 * M):
        after, reward, terminated = step(rollout.observation[t], rollout.action[t], tasks)  # it observes its state
        np.testing.assert_array_equal(terminated, rollout.terminated[t])
        np.testing.assert_allclose(after, rollout.next_observation[t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reward, rollout.reward[t])
        if t + 1 < 6 * M:  # continues there, or at a reset state
            same = (rollout.observation[t + 1] == rollout.next_observation[t]).all(axis=1)
            np.testing.assert_array_equal(same, ~end[t])
    for row in range(ROWS):
        ages = np.diff(np.flatnonzero(end[:, row]), prepend=-1)
        fell = rollout.terminated[end[:, row], row]
        np.testing.assert_array_equal(~fell, (ages == family.horizon) & ~fell)


# --- divergence -----------------------------------------------------------------------------------------------------


def with_large_actions(driver: HostDriver, size: float) -> HostDriver:
    """Let the policy of the second lifetime begin with actions of this size."""

    def begin(keys, policy_init, usual=driver._begin):
        def last(states):
            return states.params.policy.mlp.biases[-1]

        states = usual(keys, policy_init)
        return eqx.tree_at(last, states, last(states).at[1].set(size))

    driver._begin = begin
    return driver


def hopper_result(family, bad=None, size: float = 0.0):
    """Run hopper lifetimes under PPO; `bad` changes the tasks, `size` is that of the second one's first actions."""
    family = replace(family, horizon=20)
    keys, tasks = lifetimes(family)
    tasks, driver = bad(tasks) if bad else tasks, HostDriver(config_of("ppo", family), family)
    driver = with_large_actions(driver, size) if size else driver
    return driver.run(keys, tasks, meta_of(jnp.zeros((ROWS, 0))))


def numbers(result, row: int):
    """Return every number of one lifetime."""
    return [np.asarray(leaf[row]) for leaf in jax.tree.leaves(result)]


def assert_neighbours_alike(one, other):
    """Compare every bit of what the first and the third lifetime return."""
    for row in (0, 2):
        for a, b in zip(numbers(one, row), numbers(other, row), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def usual():
    """Return what lifetimes of random-hopper return."""
    return hopper_result(RANDOM_HOPPER)


def test_usual_physics_never_diverges(usual):
    assert not np.any(usual.diverged)
    assert np.isfinite(usual.final_return).all()


def on_a_heavy_planet(tasks):
    """Give the second hopper a billionth of its mass, and a planet where it falls 32 km in the first step."""
    return tasks._replace(mass=tasks.mass.at[1].set(1e-9), gravity=tasks.gravity.at[1].set(1e9))


def of_unlike_parts(tasks):
    """Let the second hopper's thigh be 1e60 times as heavy as its torso, its foot as its leg."""
    return tasks._replace(mass=tasks.mass.at[1].set(jnp.array([1e-30, 1e30, 1e-30, 1e30])))


@pytest.mark.parametrize("absurd", [on_a_heavy_planet, of_unlike_parts])
def test_absurd_physics_is_counted_and_leaves_neighbours_alone(usual, absurd):
    result = hopper_result(RANDOM_HOPPER, absurd)
    np.testing.assert_array_equal(np.asarray(result.diverged) > 0, [False, True, False])
    assert np.isfinite(result.final_return).all()
    assert not np.any(result.nonfinite)
    assert np.isfinite(result.episode_return[1]).any()  # episodes still end and begin
    assert_neighbours_alike(usual, result)


@pytest.mark.parametrize(
    ("size", "diverged", "nonfinite"),
    [(1e6, 0, 0), (1e30, 0, 0), (np.inf, UPDATES * M + 2, UPDATES)],  # each step, and both scoring episodes
)
def test_huge_actions_are_clipped_or_counted_and_leave_neighbours_alone(usual, size, diverged, nonfinite):
    result = hopper_result(RANDOM_HOPPER, size=size)
    np.testing.assert_array_equal(result.diverged, [0, diverged, 0])
    np.testing.assert_array_equal(result.nonfinite, [0, nonfinite, 0])
    np.testing.assert_array_equal(np.isnan(result.final_return), [False, nonfinite > 0, False])
    assert_neighbours_alike(usual, result)


def unlimited(spec) -> None:
    """Let the motors take any control."""
    for actuator in spec.actuators:
        actuator.ctrllimited = False


UNLIMITED = replace(RANDOM_HOPPER, action_to_ctrl=lambda state, action, task: action, adapt=unlimited)


def test_huge_actions_that_nothing_clips_are_counted_and_leave_neighbours_alone():
    quiet = hopper_result(UNLIMITED)
    np.testing.assert_array_equal(quiet.diverged, 0)
    for size in (1e9, 1e30):  # the latter MuJoCo itself would take for zero
        result = hopper_result(UNLIMITED, size=size)
        np.testing.assert_array_equal(result.diverged, [0, UPDATES * M + 2, 0])
        np.testing.assert_array_equal(result.final_return[1], 0.0)
        assert not np.any(result.nonfinite)
        assert_neighbours_alike(quiet, result)


def test_a_policy_with_non_finite_actions_ends_its_episodes():
    # In the second task actions are NaN: every step diverges, and the lifetime continues to its end.
    family = replace(RANDOM_HOPPER, observe=lambda it, task: RANDOM_HOPPER.observe(it, task) * (1 + 0 * task.gravity))
    result = hopper_result(family, lambda tasks: tasks._replace(gravity=tasks.gravity.at[1].set(jnp.nan)))
    assert result.diverged[1] == UPDATES * M + 2  # each step of the lifetime, and both scoring trajectories
    np.testing.assert_array_equal(result.env_steps[1], UPDATES * M + 2)
    assert np.isnan(result.final_return[1])  # a lifetime that met NaN ranks worst
    assert result.nonfinite[1] > 0
    assert np.isfinite(result.final_return[jnp.array([0, 2])]).all()


def evolve_twice():
    """Return the metrics of two epochs of random-hopper, and the results of their shards."""
    evolution, evaluate = Evolution(SETTINGS), worker.build(worker.work_config(SETTINGS, None))
    return zip(*(run_epoch(evolution, evaluate) for _ in range(2)), strict=True)


@pytest.mark.slow
def test_evolution_continues_after_divergence(monkeypatch):
    family = replace(RANDOM_HOPPER, horizon=8, sample=lambda key: absurd_task(RANDOM_HOPPER.sample(key)))
    monkeypatch.setattr(worker, "find_family", lambda name: family)
    for epoch in next(iter(evolve_twice())):
        assert epoch.nonfinite == 0
        assert epoch.diverged > 0
        assert np.isfinite(epoch.fitness_mean)


def absurd_task(task):
    """Leave a billionth of the mass, on a planet where it falls 32 km in the first step."""
    return task._replace(mass=jnp.full(4, 1e-9), gravity=jnp.float32(1e9))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "ruined"), [(1e30, False), (np.inf, True)])
def test_evolution_continues_after_huge_actions(monkeypatch, size, ruined):
    # The second lifetime of each shard acts hugely; clipped, its actions harm nobody, and infinite ones only itself.
    family = replace(RANDOM_HOPPER, horizon=8)
    monkeypatch.setattr(worker, "find_family", lambda name: family)
    _, (before, _) = evolve_twice()
    monkeypatch.setattr(batch, "HostDriver", lambda *args: with_large_actions(HostDriver(*args), size))
    epochs, (after, _) = evolve_twice()
    for quiet, loud in zip(before, after, strict=True):
        assert (loud.nonfinite[1] > 0) == (loud.diverged[1] > 0) == np.isnan(loud.fitness[1]) == ruined
        assert loud.fitness[1] != quiet.fitness[1]
        for name, values in quiet.to_arrays().items():
            np.testing.assert_array_equal(values[0], loud.to_arrays()[name][0])
    for epoch in epochs:
        assert epoch.nonfinite == ruined * len(after)
        assert (epoch.diverged > 0) == ruined
        assert np.isfinite(epoch.fitness_mean)
