"""MAML: its meta-gradient against finite differences and an unrolled computation, its data, runs, and test time."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from outside import outside
from samples import small_settings

from epg.baselines import registry
from epg.baselines.maml import Batch, Maml, MamlStep, MamlTraining, TaskData, advantages, split_batch
from epg.core.errors import BadInput
from epg.core.rng import Split
from epg.core.spaces import Spaces
from epg.evaluation.protocol import record
from epg.evaluation.trained_policies import policy_methods
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family
from epg.lifetime.env_step import Actor
from epg.lifetime.sampling import trajectory_sampler
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import load_policy
from epg.settings import EvolutionSettings, MamlSettings, PolicySettings, PPOSettings
from epg.storage.metrics import read_metrics
from epg.storage.run import Run

SPACES = Spaces(observation=3, action=2)
POLICY = PolicySettings(hidden=(4,), log_std=-0.5, obs_stats="fixed")
SETTINGS = small_settings("point-goal", 2, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4))
STEPS = 3
OPTIONS = MamlSettings(env_steps=STEPS * 2 * 2 * 64, tasks=2, batch_steps=64, outer_epochs=2, policy=POLICY)


# --- the meta-gradient ---------------------------------------------------------------------------------------------


def learner(**changes) -> Maml:
    """Return MAML on a network of a few weights, with two inner updates."""
    settings = MamlSettings(inner_step_size=0.1, inner_updates=2, policy=POLICY, **changes)
    return Maml(settings, PPOSettings(kl_weight=0.1), MlpPolicy(POLICY, SPACES))


def some_data(rng: np.random.Generator, maml: Maml) -> tuple[object, TaskData]:
    """Make up parameters, and the data of one task; the policy that acted is near the adapted one."""

    def batch() -> Batch:
        return Batch(*(jnp.asarray(rng.normal(size=shape)) for shape in ((16, 3), (16, 2), (16,))))

    fresh = maml.policy.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: jnp.asarray(0.4 * rng.normal(size=leaf.shape)), fresh)
    inner, outer = (batch(), batch()), batch()
    acting = params
    for one in inner:
        acting = maml.step(acting, one)
    return params, TaskData(inner, outer, jax.tree.map(lambda leaf: leaf + 0.02 * rng.normal(size=leaf.shape), acting))


@pytest.fixture
def in_double():
    """Compute in float64: finite differences of float32 would say little."""
    with jax.enable_x64(True):
        yield


def test_the_meta_gradient_is_the_slope_of_the_outer_loss(in_double, rng):
    """Central differences of step 1e-6 in float64, every parameter, to 1e-6 of the largest."""
    maml = learner()
    params, data = some_data(rng, maml)
    flat, unravel = ravel_pytree(params)
    slope = np.asarray(ravel_pytree(jax.grad(maml.outer_loss)(params, data))[0])
    loss = jax.jit(lambda it: maml.outer_loss(unravel(it), data))
    numeric = [(loss(flat.at[i].add(1e-6)) - loss(flat.at[i].add(-1e-6))) / 2e-6 for i in range(len(flat))]
    np.testing.assert_allclose(slope, numeric, atol=1e-6 * np.abs(slope).max())


def test_the_meta_gradient_is_the_unrolled_one(in_double, rng):
    """Chain rule by hand: (I - step H_1)(I - step H_2) grad of the outer loss, with Hessians of the inner losses."""
    maml = learner()
    params, data = some_data(rng, maml)
    flat, unravel = ravel_pytree(params)
    step = maml.settings.inner_step_size

    def inner_loss(theta, batch):
        new = maml.policy.apply(unravel(theta), (), batch.observation)[0]
        return -jnp.mean(batch.advantage * new.log_prob(batch.action))

    first = flat - step * jax.grad(inner_loss)(flat, data.inner[0])
    second = first - step * jax.grad(inner_loss)(first, data.inner[1])
    no_inner = data._replace(inner=())
    slope = jax.grad(lambda it: maml.outer_loss(unravel(it), no_inner))(second)
    for theta, batch in ((first, data.inner[1]), (flat, data.inner[0])):
        slope = slope - step * jax.jacrev(jax.grad(inner_loss))(theta, batch) @ slope
    found = ravel_pytree(jax.grad(maml.outer_loss)(params, data))[0]
    np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-12)


def test_first_order_takes_the_gradient_at_the_adapted_policy(in_double, rng):
    maml = learner(first_order=True)
    params, data = some_data(rng, maml)
    adapted = maml.step(maml.step(params, data.inner[0]), data.inner[1])
    expected = ravel_pytree(jax.grad(maml.outer_loss)(adapted, data._replace(inner=())))[0]
    found = ravel_pytree(jax.grad(maml.outer_loss)(params, data))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    second = ravel_pytree(jax.grad(learner().outer_loss)(params, data))[0]
    assert np.abs(second - expected).max() > 0.01 * np.abs(expected).max()  # at this step size the difference matters
    tiny = replace(learner(), settings=replace(learner().settings, inner_step_size=1e-9))
    one = replace(tiny, settings=replace(tiny.settings, first_order=True))
    limits = [ravel_pytree(jax.grad(it.outer_loss)(params, data))[0] for it in (tiny, one)]
    np.testing.assert_allclose(*limits, rtol=1e-6, atol=1e-9)  # where the inner step vanishes, both are the same


# --- its data ------------------------------------------------------------------------------------------------------


def test_advantages_are_returns_less_a_linear_fit(rng):
    observation, reward = rng.normal(size=(2, 30, 3)), rng.normal(size=(2, 30))
    done = rng.random((2, 30)) < 0.1
    returns, features = np.zeros((2, 30)), []
    for row in range(2):
        total, age = 0.0, 0
        for t in reversed(range(30)):
            total = reward[row, t] + (0.0 if done[row, t] else 0.9 * total)
            returns[row, t] = total
        for t in range(30):
            seen = observation[row, t]
            features.append([*seen, *seen**2, age / 100, (age / 100) ** 2, (age / 100) ** 3, 1.0])
            age = 0 if done[row, t] else age + 1
    x = np.array(features)
    x = x / np.sqrt((x**2).mean(axis=0))
    weights = np.linalg.solve(x.T @ x / 60 + 1e-4 * np.eye(10), x.T @ returns.ravel() / 60)
    rest = returns.ravel() - x @ weights
    expected = (rest - rest.mean()) / rest.std()
    given = (jnp.asarray(it, jnp.float32) for it in (observation, reward))
    np.testing.assert_allclose(advantages(*given, jnp.asarray(done), 0.9).ravel(), expected, atol=2e-3)


@pytest.mark.parametrize(
    ("steps", "horizon", "rows"), [(4000, 200, 20), (8192, 200, 32), (2048, 32, 64), (100, 200, 1), (7, 2, 1)]
)
def test_a_batch_is_divided_into_rows_of_whole_episodes(steps, horizon, rows):
    assert split_batch(steps, horizon) == (rows, steps // rows)


def test_both_drivers_sample_the_same_trajectories():
    family = find_family("point-goal")
    policy = MlpPolicy(POLICY, family.spaces)
    keys = jax.random.split(jax.random.key(1), 3)
    tasks = jax.vmap(family.sample)(keys)
    actor = Actor(jax.vmap(policy.init)(keys), jnp.zeros((3, 4)), jnp.ones((3, 4)))
    scan, host = (trajectory_sampler(policy, it, 40)(keys, tasks, actor) for it in (family, outside(family)))
    for one, other in zip(jax.tree.leaves(scan), jax.tree.leaves(host), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)  # rewards are differences of distances
    assert np.isfinite(scan.episode_return).sum() == 3  # the horizon is 32


# --- runs ----------------------------------------------------------------------------------------------------------


def finished(path: Path, options: MamlSettings = OPTIONS) -> Path:
    """Train in a new run directory."""
    run = registry.start("maml", SETTINGS, options, path)
    registry.finish("maml", run, None, "inline", None)
    return path


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was never stopped."""
    return finished(tmp_path_factory.mktemp("maml") / "run")


def test_the_budget_counts_every_step(reference):
    records = read_metrics(reference / "metrics.jsonl")
    assert [it["epoch"] for it in records] == list(range(STEPS))
    assert {it["env_steps"] for it in records} == {2 * 2 * 64}  # two tasks, before and after the update
    manifest = load_policy(reference).manifest
    assert (manifest["env_steps"], manifest["baseline"]) == (OPTIONS.env_steps, "maml")


@pytest.mark.parametrize("every", [1, 5])
def test_stopped_and_resumed_it_ends_the_same(every, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(MamlTraining, "checkpoint_every", every)
    run = registry.start("maml", SETTINGS, OPTIONS, tmp_path / "run")

    def stop(step: MamlStep) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            registry.finish("maml", Run.open(run.path), stop, "inline", None)
    registry.finish("maml", Run.open(run.path), None, "inline", None)
    for name in ("policy.safetensors", "metrics.jsonl"):
        assert (run.path / name).read_bytes() == (reference / name).read_bytes()


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    run = registry.start("maml", SETTINGS, OPTIONS, tmp_path / "run")
    run.save_checkpoint(1, {"state/params": np.zeros(3, np.float32)}, {"env_steps": 1})
    with pytest.raises(BadInput, match="does not fit a MAML training: state differs in"):
        registry.finish("maml", run, None, "inline", None)


def test_it_trains_with_discrete_actions(tmp_path):
    settings = replace(SETTINGS, family="random-cart-pole")
    training = MamlTraining(settings, replace(OPTIONS, outer_epochs=1))
    before = training.state.params
    step = training.close(training.work())
    assert step.env_steps == 2 * 2 * 64
    assert not np.array_equal(training.state.params.mlp.weights[0], before.mlp.weights[0])


# --- test time -----------------------------------------------------------------------------------------------------


def test_an_update_at_test_time_is_the_inner_step_of_training(reference):
    trained = load_policy(reference)
    once, ten = policy_methods(trained, SETTINGS, 48)
    assert [(it.name, it.settings.lifetime.steps) for it in (once, ten)] == [("maml", 48), ("maml-10", 480)]
    result = record(once, 2, seed=3)
    assert (result.steps, result.updates, result.meta_steps) == (48, 1, OPTIONS.env_steps)
    family = find_family("point-goal")
    learner = Maml(OPTIONS, SETTINGS.ppo, trained.policy)
    for index in range(2):
        task, key = task_sampler(family, 3, Split.HELD_OUT)(jnp.int32(index), jnp.int32(0))
        actor = Actor(trained.params, jnp.asarray(trained.mean), jnp.asarray(trained.std))
        batched = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (task, actor))
        taken = trajectory_sampler(trained.policy, family, 48)(key[None], *batched).rollout
        seen = (taken.observation - trained.mean) / trained.std
        done = taken.terminated | taken.truncated
        batch = Batch(seen[0], taken.action[0], advantages(seen, taken.reward, done, SETTINGS.ppo.discount)[0])
        expected = learner.step(trained.params, batch)
        for one, other in zip(jax.tree.leaves(result.policies[index].params), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tasks": 0}, "maml.tasks must be above zero"),
        ({"batch_steps": 0}, "maml.batch_steps must be above zero"),
        ({"inner_step_size": -1.0}, "maml.inner_step_size must be above zero"),
    ],
)
def test_bad_settings_are_refused(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        replace(OPTIONS, **change)
