"""The host driver: equal to the scan driver, true counts, both ends of an episode carried, explosions survived."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outside import Outside, Slowly, outside
from samples import small_settings

from epg.lifetime.host_driver import HostDriver, Stage
from epg.learners import Control, Learned, hand_made
from epg.lifetime.scan_driver import run_lifetime
from epg.evolution import worker as shards
from epg.evolution.loop import Evolution
from epg.evolution.worker import build, make_plan
from epg.families import load_family
from epg.families.base import unstack
from epg.families.mujoco.hopper import RANDOM_HOPPER
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.core.runtime import COMPILER
from epg.settings import (
    EvolutionSettings,
    to_dict,
)

SETTINGS = small_settings("random-hopper", 5, EvolutionSettings(epochs=2, noise_vectors=2, lifetimes=2, shard=2))
M, UPDATES, ROWS = SETTINGS.lifetime.steps_per_update, SETTINGS.lifetime.updates, 3


def lifetimes(family, number: int = ROWS):
    """Return keys and tasks of lifetimes."""
    keys = jnp.stack([lifetime_key(0, Split.TRAIN, 0, index) for index in range(number)])
    return keys, jax.vmap(lambda key: family.sample(stream_key(key, Stream.TASK)))(keys)


# Gaussian actions and time limits only; discrete actions, terminations and time limits both.
CASES = {"point-goal": ("learned", 20), "random-cart-pole": ("ppo", 12)}


def case(name: str):
    """Return plan, family and the control of all rows."""
    learner, horizon = CASES[name]
    family = replace(load_family(name), horizon=horizon)
    if learner == "learned":
        learner = Learned(SETTINGS.loss, SETTINGS.policy, family.spaces)
        phi = learner.initial_phi(jax.random.key(0))
    else:
        learner, phi = hand_made(learner, SETTINGS, family.spaces), jnp.zeros(0)
    return make_plan(SETTINGS, learner, family), family, Control(jnp.tile(phi, (ROWS, 1)), jnp.zeros(()))


@pytest.mark.parametrize("together", [1, 2, 5])
def test_groups_of_lifetimes_are_one_batch(monkeypatch, together):
    # Six lifetimes with losses of their own, in groups of 1, 2 and 3 (5 does not divide 6), and all at once.
    family = replace(load_family("point-goal"), horizon=20)
    learned = Learned(SETTINGS.loss, SETTINGS.policy, family.spaces)
    phi = jnp.stack([learned.initial_phi(jax.random.key(index)) for index in range(6)])
    keys, tasks = lifetimes(family, 6)

    def trained(size):
        monkeypatch.setattr("epg.lifetime.host_driver.TOGETHER", size)
        driver = HostDriver(make_plan(SETTINGS, learned, family), outside(family))
        return driver.run(keys, tasks, Control(phi, jnp.zeros(())))

    ours, theirs = trained(together), trained(6)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert len(np.unique(np.asarray(theirs.kl)[:, 0])) == 6  # no two lifetimes are alike


@pytest.mark.parametrize("name", CASES)
def test_host_driver_is_the_scan_driver(name):
    plan, family, control = case(name)
    plan = replace(plan, correlations=True)
    keys, tasks = lifetimes(family)
    axes = (0, Control(0, None), 0)
    scan = jax.jit(jax.vmap(partial(run_lifetime, plan, family), axes), compiler_options=COMPILER)
    theirs = scan(tasks, control, keys)
    ours = HostDriver(plan, outside(family)).run(keys, tasks, control)
    np.testing.assert_array_equal(np.isnan(ours.episode_return), np.isnan(theirs.episode_return))
    np.testing.assert_allclose(ours.episode_return, theirs.episode_return, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.kl, theirs.kl, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(ours.correlations, theirs.correlations, rtol=1e-3, atol=1e-4)
    assert ours.correlations.shape == (ROWS, UPDATES, family.spaces.observation + family.spaces.action)
    np.testing.assert_allclose(ours.final_return, theirs.final_return, rtol=1e-3, atol=1e-3)
    for a, b in zip(jax.tree.leaves(ours.policy), jax.tree.leaves(theirs.policy), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    for a, b in zip(jax.tree.leaves(ours.normaliser), jax.tree.leaves(theirs.normaliser), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert np.isfinite(ours.episode_return).any()
    assert not np.any(ours.nonfinite)
    assert not np.any(ours.exploded)


def test_env_steps_are_those_simulated(monkeypatch):
    # A pole that falls is not simulated to the horizon; the scan driver cannot stop, and counts what it simulates.
    plan, family, control = case("random-cart-pole")
    family = replace(family, horizon=60)
    keys, tasks = lifetimes(family)
    simulators = []
    host, simulate = outside(family), Outside.simulate
    repeat = Slowly.repeat
    monkeypatch.setattr(Outside, "simulate", lambda *args: simulators.append(simulate(*args)) or simulators[-1])
    monkeypatch.setattr(Slowly, "repeat", lambda *args: simulators.append(repeat(*args)) or simulators[-1])
    steps = np.asarray(HostDriver(plan, host).run(keys, tasks, control).env_steps)
    assert steps.sum() == sum(it.moved for it in simulators)
    assert simulators[0].moved == ROWS * M * UPDATES
    assert simulators[1].moved < ROWS * 2 * family.horizon
    assert (steps > M * UPDATES).all()


def test_rollout_carries_both_ends_of_an_episode():
    # Poles fall or reach the limit of 12 steps: each end is what the family's own step says, never both.
    plan, family, _ = case("random-cart-pole")
    keys, tasks = lifetimes(family)
    driver, host = HostDriver(plan, outside(family)), outside(family)
    stage = Stage(host.simulate(unstack(tasks, ROWS)), tasks, keys)
    packed, seen = driver._start(stage, 0), []
    actor = driver.actors(driver.programs.begin(keys))
    for index in range(6):
        rows = driver._simulate(stage, actor, packed, index)
        packed = rows[-1]
        seen.append(jax.vmap(driver.packing.rollout, 1, 1)(jnp.asarray(rows)))
    rollout = jax.tree.map(lambda *parts: np.concatenate(parts), *seen)  # [6 M, ROWS, ...]
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    assert not (rollout.terminated & rollout.truncated).any()
    step = jax.jit(jax.vmap(family.step))
    end = rollout.terminated | rollout.truncated
    for t in range(6 * M):
        after, reward, terminated = step(rollout.observation[t], rollout.action[t], tasks)  # it sees its state
        np.testing.assert_array_equal(terminated, rollout.terminated[t])
        np.testing.assert_allclose(after, rollout.next_observation[t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(reward, rollout.reward[t])
        if t + 1 < 6 * M:  # goes on from there, or from a fresh state
            same = (rollout.observation[t + 1] == rollout.next_observation[t]).all(axis=1)
            np.testing.assert_array_equal(same, ~end[t])
    for row in range(ROWS):
        ages = np.diff(np.flatnonzero(end[:, row]), prepend=-1)
        fell = rollout.terminated[end[:, row], row]
        np.testing.assert_array_equal(~fell, (ages == family.horizon) & ~fell)


# --- explosions -----------------------------------------------------------------------------------------------------


def shouting(driver: HostDriver, size: float) -> HostDriver:
    """Let the policy of the second lifetime begin with actions of this size."""

    def begin(keys, quiet=driver.programs.begin):
        def last(students):
            return students.trained.policy.mlp.biases[-1]

        students = quiet(keys)
        return eqx.tree_at(last, students, last(students).at[1].set(size))

    driver.programs = driver.programs._replace(begin=begin)
    return driver


def hopper_outcome(family, bad=None, size: float = 0.0):
    """Run hopper lifetimes under PPO; `bad` changes the tasks, `size` is that of the second one's first actions."""
    family = replace(family, horizon=20)
    plan = make_plan(SETTINGS, hand_made("ppo", SETTINGS, family.spaces), family)
    keys, tasks = lifetimes(family)
    tasks, driver = bad(tasks) if bad else tasks, HostDriver(plan, family)
    driver = shouting(driver, size) if size else driver
    return driver.run(keys, tasks, Control(jnp.zeros((ROWS, 0)), jnp.zeros(())))


def whole(outcome, row: int):
    """Return every number of one lifetime."""
    return [np.asarray(leaf[row]) for leaf in jax.tree.leaves(outcome)]


def assert_neighbours_alike(one, other):
    """Compare every bit of what the first and the third lifetime leave behind."""
    for row in (0, 2):
        for a, b in zip(whole(one, row), whole(other, row), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def sound():
    """Return what lifetimes of random-hopper leave behind."""
    return hopper_outcome(RANDOM_HOPPER)


def test_sound_physics_never_explodes(sound):
    assert not np.any(sound.exploded)
    assert np.isfinite(sound.final_return).all()


def on_a_heavy_planet(tasks):
    """Give the second hopper a billionth of its mass, and a planet where it falls 32 km in the first step."""
    return tasks._replace(mass=tasks.mass.at[1].set(1e-9), gravity=tasks.gravity.at[1].set(1e9))


def of_unlike_parts(tasks):
    """Let the second hopper's thigh be 1e60 times as heavy as its torso, its foot as its leg."""
    return tasks._replace(mass=tasks.mass.at[1].set(jnp.array([1e-30, 1e30, 1e-30, 1e30])))


@pytest.mark.parametrize("absurd", [on_a_heavy_planet, of_unlike_parts])
def test_absurd_physics_is_counted_and_leaves_neighbours_alone(sound, absurd):
    outcome = hopper_outcome(RANDOM_HOPPER, absurd)
    np.testing.assert_array_equal(np.asarray(outcome.exploded) > 0, [False, True, False])
    assert np.isfinite(outcome.final_return).all()
    assert not np.any(outcome.nonfinite)
    assert np.isfinite(outcome.episode_return[1]).any()  # episodes went on ending and beginning
    assert_neighbours_alike(sound, outcome)


@pytest.mark.parametrize(
    ("size", "exploded", "nonfinite"),
    [(1e6, 0, 0), (1e30, 0, 0), (np.inf, UPDATES * M + 2, UPDATES)],  # each step, and both scoring episodes
)
def test_huge_actions_are_clipped_or_counted_and_leave_neighbours_alone(sound, size, exploded, nonfinite):
    outcome = hopper_outcome(RANDOM_HOPPER, size=size)
    np.testing.assert_array_equal(outcome.exploded, [0, exploded, 0])
    np.testing.assert_array_equal(outcome.nonfinite, [0, nonfinite, 0])
    np.testing.assert_array_equal(np.isnan(outcome.final_return), [False, nonfinite > 0, False])
    assert_neighbours_alike(sound, outcome)


def unlimited(spec) -> None:
    """Let the motors take any control."""
    for actuator in spec.actuators:
        actuator.ctrllimited = False


UNBRIDLED = replace(RANDOM_HOPPER, steer_with=lambda body, action, task: action, adapt=unlimited)


def test_huge_actions_that_nothing_clips_are_counted_and_leave_neighbours_alone():
    quiet = hopper_outcome(UNBRIDLED)
    np.testing.assert_array_equal(quiet.exploded, 0)
    for size in (1e9, 1e30):  # the latter MuJoCo itself would take for zero
        outcome = hopper_outcome(UNBRIDLED, size=size)
        np.testing.assert_array_equal(outcome.exploded, [0, UPDATES * M + 2, 0])
        np.testing.assert_array_equal(outcome.final_return[1], 0.0)
        assert not np.any(outcome.nonfinite)
        assert_neighbours_alike(quiet, outcome)


def test_a_policy_gone_mad_ends_its_episodes():
    # Steered by not-a-number from the 2nd task on, every step is an explosion, and the lifetime goes on to its end.
    mad = replace(RANDOM_HOPPER, observe=lambda body, task: RANDOM_HOPPER.observe(body, task) * (1 + 0 * task.gravity))
    outcome = hopper_outcome(mad, lambda tasks: tasks._replace(gravity=tasks.gravity.at[1].set(jnp.nan)))
    assert outcome.exploded[1] == UPDATES * M + 2  # each step of the lifetime, and both scoring trajectories
    np.testing.assert_array_equal(outcome.env_steps[1], UPDATES * M + 2)
    assert np.isnan(outcome.final_return[1])  # a lifetime that met NaN ranks worst
    assert outcome.nonfinite[1] > 0
    assert np.isfinite(outcome.final_return[jnp.array([0, 2])]).all()


def evolve_twice():
    """Return what two epochs of random-hopper tell, and the results of their shards."""
    evolution, evaluate, told, results = Evolution(SETTINGS), build(to_dict(SETTINGS)), [], []
    for _ in range(2):
        population = evolution.ask()
        results.append([evaluate(it) for it in evolution.requests(population)])
        told.append(evolution.tell(population, results[-1], 1.0))
    return told, results


def test_evolution_goes_on_after_explosions(monkeypatch):
    family = replace(RANDOM_HOPPER, horizon=8, sample=lambda key: absurd_task(RANDOM_HOPPER.sample(key)))
    monkeypatch.setattr(shards, "load_family", lambda name: family)
    for told in evolve_twice()[0]:
        assert told.nonfinite == 0
        assert told.exploded > 0
        assert np.isfinite(told.fitness_mean)


def absurd_task(task):
    """Leave a billionth of the mass, on a planet where it falls 32 km in the first step."""
    return task._replace(mass=jnp.full(4, 1e-9), gravity=jnp.float32(1e9))


@pytest.mark.parametrize(("size", "ruined"), [(1e30, False), (np.inf, True)])
def test_evolution_goes_on_after_huge_actions(monkeypatch, size, ruined):
    # The second lifetime of each shard acts hugely; clipped, its actions harm nobody, and infinite ones only itself.
    family = replace(RANDOM_HOPPER, horizon=8)
    monkeypatch.setattr(shards, "load_family", lambda name: family)
    _, (quiet, _) = evolve_twice()
    monkeypatch.setattr(shards, "HostDriver", lambda plan, family: shouting(HostDriver(plan, family), size))
    told, (loud, _) = evolve_twice()
    for before, after in zip(quiet, loud, strict=True):
        assert (after["nonfinite"][1] > 0) == (after["exploded"][1] > 0) == np.isnan(after["fitness"][1]) == ruined
        assert after["fitness"][1] != before["fitness"][1]
        for name, values in before.items():
            np.testing.assert_array_equal(values[0], after[name][0])
    for epoch in told:
        assert epoch.nonfinite == ruined * len(loud)
        assert (epoch.exploded > 0) == ruined
        assert np.isfinite(epoch.fitness_mean)
