"""RL²: a GRU that remembers through the drivers, PPO over whole lifetimes, runs, and test time."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outside import outside
from samples import SPACES, small_settings

from epg.baselines import registry
from epg.baselines.rl2 import RL2Training, Steps, segment_length, unroll
from epg.core.errors import BadInput
from epg.core.spaces import Spaces
from epg.core.types import InnerParams, MetaParams
from epg.evaluation.protocol import record
from epg.evaluation.trained_policies import policy_methods
from epg.evolution.task_sampling import Split, task_sampler
from epg.families.registry import find_family
from epg.learners.frozen import Frozen
from epg.lifetime.batch import batch_of_lifetimes
from epg.lifetime.env_step import Actor
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.sampling import trajectory_sampler
from epg.lifetime.update import InnerConfig
from epg.policies.mlp import Mlp, MlpPolicy, MlpPolicyParams
from epg.policies.recurrent import RecurrentPolicy, apply_gru, init_gru
from epg.policies.trained import load_policy
from epg.settings import EvolutionSettings, LifetimeSettings, PolicySettings, RL2Settings
from epg.storage.metrics import read_metrics
from epg.storage.run import Run

POLICY = PolicySettings(hidden=(6,), log_std=-0.5, obs_stats="fixed")
UNITS = 5
SETTINGS = small_settings("point-goal", 2, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4))
STEPS = 3
OPTIONS = RL2Settings(
    env_steps=STEPS * 2 * 64, lifetimes=2, lifetime_steps=64, units=UNITS, bptt_steps=20, minibatches=2, policy=POLICY
)


def policy_for(spaces: Spaces) -> RecurrentPolicy:
    """Return a small recurrent policy."""
    return RecurrentPolicy(POLICY, spaces, UNITS)


def loud(params):
    """Enlarge the output layer, so that the action says something about the state."""
    return params._replace(mlp=params.mlp._replace(weights=(*params.mlp.weights[:-1], 100 * params.mlp.weights[-1])))


# --- the policy ----------------------------------------------------------------------------------------------------


def test_a_gated_recurrent_unit_follows_its_equations(rng):
    gru = jax.tree.map(
        lambda it: jnp.asarray(rng.normal(size=it.shape), jnp.float32), init_gru(jax.random.key(0), 3, 2)
    )
    h, x = rng.normal(size=2), rng.normal(size=3)
    a, b = x @ np.asarray(gru.inputs) + np.asarray(gru.bias), h @ np.asarray(gru.state)
    sigmoid = lambda it: 1 / (1 + np.exp(-it))  # noqa: E731
    reset, keep = sigmoid(a[:2] + b[:2]), sigmoid(a[2:4] + b[2:4])
    expected = keep * h + (1 - keep) * np.tanh(a[4:] + reset * b[4:])
    found = apply_gru(gru, jnp.asarray(h, jnp.float32), jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", SPACES)
def test_with_the_carry_cut_it_is_the_feed_forward_policy(kind, rng):
    """Without the weights from the GRU it is the MLP of the others, whatever it remembers."""
    spaces, observation = SPACES[kind], jnp.asarray(rng.normal(size=(7, 3)), jnp.float32)
    policy = policy_for(spaces)
    params = loud(policy.init(jax.random.key(1)))
    first, *rest = params.mlp.weights
    cut = params._replace(mlp=Mlp((first.at[spaces.observation :].set(0.0), *rest), params.mlp.biases))
    plain = MlpPolicyParams(Mlp((first[: spaces.observation], *rest), params.mlp.biases), params.log_std)
    expected = MlpPolicy(POLICY, spaces).apply(plain, (), observation)[0].loss_input()
    carry = jax.tree.map(lambda it: jnp.asarray(rng.normal(size=it.shape), jnp.float32), policy.carry())
    np.testing.assert_allclose(policy.apply(cut, carry, observation)[0].loss_input(), expected, rtol=1e-5, atol=1e-6)
    other = policy.apply(params, carry, observation)[0].loss_input()
    assert np.abs(other - expected).max() > 1e-3  # and with them the memory matters


@pytest.mark.parametrize("kind", SPACES)
def test_it_remembers_action_reward_and_end(kind):
    policy, key = policy_for(SPACES[kind]), jax.random.key(2)
    params, observation = loud(policy.init(key)), jnp.ones(3)
    _, seen = policy.apply(params, policy.carry(), observation)
    again = policy.apply(params, seen, observation)[1]
    jax.tree.map(np.testing.assert_array_equal, seen, again)  # choosing an action again changes nothing
    action = jnp.int32(1) if kind == "categorical" else jnp.array([0.3, -0.2])
    given = {"action": action, "reward": jnp.float32(2.0), "done": jnp.array(True)}
    base = policy.remember(seen, **given)
    np.testing.assert_array_equal(base.before, seen.after)
    others = {"action": jnp.int32(2) if kind == "categorical" else -action, "reward": -1.0, "done": jnp.array(False)}
    outputs = [policy.apply(params, base, observation)[0].loss_input()]
    for name, value in others.items():
        changed = policy.remember(seen, **(given | {name: jnp.asarray(value)}))
        outputs.append(policy.apply(params, changed, observation)[0].loss_input())
    assert len({tuple(np.round(it, 5).tolist()) for it in outputs}) == 4


# --- through the drivers -------------------------------------------------------------------------------------------


def config(steps: int, updates: int) -> InnerConfig:
    """Return lifetimes in which nothing is learned."""
    family = find_family("point-goal")
    stats = FixedStats(np.zeros(4, np.float32), np.ones(4, np.float32))
    lifetime = LifetimeSettings(steps, updates=updates, minibatch=steps, scoring_episodes=2)
    return InnerConfig(Frozen(), policy_for(family.spaces), lifetime, family.spaces, steps, stats)


def lived(config: InnerConfig, family, policy_init):
    """Run two lifetimes on training tasks."""
    run = batch_of_lifetimes(config, family, task_sampler(family, 0, Split.TRAIN))
    meta = MetaParams(jnp.zeros((2, 0)), jnp.zeros(()), jnp.tile(policy_init[None], (2, 1)))
    return run(meta, jnp.arange(2, dtype=jnp.int32), jnp.int32(0))


def test_both_drivers_carry_it_through_a_lifetime_and_into_its_score():
    family = find_family("point-goal")
    flat = jax.flatten_util.ravel_pytree(loud(policy_for(family.spaces).init(jax.random.key(3))))[0]
    scan, host = (lived(config(20, 3), it, flat) for it in (family, outside(family)))
    np.testing.assert_allclose(scan.episode_return, host.episode_return, rtol=1e-4)
    np.testing.assert_allclose(scan.final_return, host.final_return, rtol=1e-3)
    assert not np.asarray(scan.kl).any()
    # The memory at the end decides the score: after one step of life it is another one.
    young = lived(config(1, 1), family, flat)
    assert np.abs(young.final_return - scan.final_return).min() > 1e-3


def test_unrolling_repeats_what_acted():
    """From observations, actions, rewards and ends alone, the distributions that acted come out again."""
    family = find_family("point-goal")
    policy, keys = policy_for(family.spaces), jax.random.split(jax.random.key(4), 2)
    params = loud(policy.init(keys[0]))
    actors = jax.tree.map(lambda it: jnp.stack([it, it]), Actor(params, jnp.zeros(4), jnp.ones(4)))
    quiet = actors._replace(params=actors.params._replace(log_std=jnp.full((2, 2), -20.0)))  # the mean acts
    taken = trajectory_sampler(policy, family, 40)(keys, jax.vmap(family.sample)(keys), quiet).rollout
    value = Mlp((jnp.zeros((4 + UNITS, 1)),), (jnp.zeros(1),))
    for row in range(2):
        one = jax.tree.map(lambda it, row=row: it[row], taken)
        steps = Steps(one.observation, one.action, one.reward, one.terminated | one.truncated)
        assert bool(steps.done[31])
        _, means, _ = unroll(policy, InnerParams(params, value), policy.carry(), steps)
        np.testing.assert_allclose(means.mean, one.action, rtol=1e-4, atol=1e-5)


# --- training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "longest", "length"), [(640, 128, 128), (2048, 100, 64), (7, 3, 1), (64, 20, 16)])
def test_a_lifetime_is_divided_into_equal_segments(steps, longest, length):
    assert segment_length(steps, longest) == length


def test_advantages_do_not_end_with_an_episode(rng):
    training = RL2Training(SETTINGS, OPTIONS)
    reward, value = rng.normal(size=6), rng.normal(size=6)
    expected, following = np.zeros(6), 0.0
    for t in reversed(range(6)):
        after = value[t + 1] if t < 5 else value[5]
        following = reward[t] + 0.99 * after - value[t] + 0.99 * 0.95 * following
        expected[t] = following
    found = training._advantages(jnp.asarray(reward, jnp.float32), jnp.asarray(value, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert training.ppo.discount == 0.99
    assert training.ppo.gae_lambda == 0.95


def test_segments_hold_what_acted_with_the_state_at_their_start():
    training = RL2Training(SETTINGS, OPTIONS)
    tasks, keys = training.tasks(jnp.arange(2, dtype=jnp.int32), jnp.int32(0))
    rollout = training.sample(keys, tasks, training._actors(training.state)).rollout
    segments = jax.jit(training.data)(training.state, rollout)
    assert segments.advantage.shape == (2 * 4, 16)
    whole = jax.tree.map(lambda it: it[0], rollout)
    steps = Steps(whole.observation, whole.action, whole.reward, whole.terminated | whole.truncated)
    _, acting, _ = unroll(training.net, training.state.params, training.net.carry(), steps)
    np.testing.assert_allclose(segments.acting.mean[:4].reshape(64, 2), acting.mean, rtol=1e-4, atol=1e-6)
    _, again, _ = unroll(
        training.net,
        training.state.params,
        *jax.tree.map(lambda it: it[2], (segments.carry, segments.steps)),
    )
    np.testing.assert_allclose(again.mean, acting.mean[32:48], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.std(segments.advantage), 1.0, rtol=1e-3)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was never stopped."""
    run = registry.start("rl2", SETTINGS, OPTIONS, tmp_path_factory.mktemp("rl2") / "run")
    registry.finish("rl2", run, None, "inline", None)
    return run.path


def test_the_budget_counts_every_step(reference):
    records = read_metrics(reference / "metrics.jsonl")
    assert [it["env_steps"] for it in records] == [2 * 64] * STEPS
    trained = load_policy(reference)
    assert (trained.manifest["env_steps"], trained.manifest["baseline"]) == (OPTIONS.env_steps, "rl2")
    assert trained.policy == RecurrentPolicy(POLICY, find_family("point-goal").spaces, UNITS)
    with pytest.raises(BadInput, match="acts within a lifetime only"):
        trained(np.zeros(4))


def test_stopped_and_resumed_it_ends_the_same(reference, tmp_path):
    run = registry.start("rl2", SETTINGS, OPTIONS, tmp_path / "run")

    def stop(step: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.finish("rl2", run, stop, "inline", None)
    registry.finish("rl2", Run.open(run.path), None, "inline", None)
    for name in ("policy.safetensors", "metrics.jsonl"):
        assert (run.path / name).read_bytes() == (reference / name).read_bytes()


def test_at_test_time_it_lives_as_long_as_the_loss_or_as_in_training(reference):
    (method,) = policy_methods(load_policy(reference), SETTINGS, SETTINGS.lifetime.steps)
    result = record(method, 2, seed=3)
    assert (result.method, result.label, result.steps) == ("rl2", "RL²", SETTINGS.lifetime.steps)
    assert policy_methods(load_policy(reference), SETTINGS)[0].settings.lifetime.steps == OPTIONS.lifetime_steps
    assert result.meta_steps == OPTIONS.env_steps
    assert not result.kl.any()
    with pytest.raises(BadInput, match="does not fit random-pendulum: it was trained for point-goal"):
        policy_methods(load_policy(reference), replace(SETTINGS, family="random-pendulum"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"lifetimes": 0}, "rl2.lifetimes must be above zero"), ({"units": 0}, "rl2.units must be above zero")],
)
def test_bad_settings_are_refused(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        replace(OPTIONS, **change)
