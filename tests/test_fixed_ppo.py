"""The best fixed MLP of a family: PPO's data and loss by hand, budget, resuming, learning, deployment."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import fresh_loss, small_settings, some_rollout

import epg
from epg.baselines import registry
from epg.baselines.fixed_ppo import FixedPPOSettings, FixedPPOTraining, first_returns
from epg.baselines.ppo_training import PPOState, minibatches
from epg.baselines.training import trained_policy
from epg.cli import main
from epg.core.errors import BadInput
from epg.core.types import InnerParams, Rollout
from epg.evaluation.protocol import record
from epg.evaluation.trained_policies import policy_methods
from epg.lifetime.normalizer import Moments
from epg.policies.base import distribution
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import load_policy
from epg.settings import EvolutionSettings, PolicySettings, Settings
from epg.storage.metrics import read_metrics
from epg.storage.run import Run

STEPS, ROWS = 3, 4 * 40  # outer steps, and rows of each; point-goal's episodes have 32 steps
OPTIONS = FixedPPOSettings(STEPS * ROWS, tasks=4, task_steps=40, update_epochs=2, minibatches=3, step_size=1e-2)
FAMILIES = {"gaussian": "point-goal", "categorical": "random-cart-pole"}


def settings_for(family: str) -> Settings:
    """Return settings with a small policy."""
    return small_settings(family, 2, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4))


SETTINGS = settings_for("point-goal")


def numbers(tree, rng, scale: float):
    """Add normal noise to every leaf."""
    return jax.tree.map(lambda it: it + jnp.asarray(rng.normal(0.0, scale, it.shape), jnp.float32), tree)


def some_training(rng: np.random.Generator, kind: str) -> tuple[FixedPPOTraining, PPOState, Rollout]:
    """Return a training in some later state, and transitions of two tasks with ends of both kinds."""
    training = FixedPPOTraining(settings_for(FAMILIES[kind]), OPTIONS)
    observation = Moments(jnp.float32(50.0), jnp.full(4, 2.0), jnp.full(4, 200.0))
    reward = Moments(jnp.float32(50.0), jnp.float32(-1.0), jnp.float32(150.0))
    params = numbers(training.state.params, rng, 0.3)
    rollouts = [some_rollout(rng, training.family.spaces, 12) for _ in range(2)]
    whole = jax.tree.map(lambda *it: jnp.stack(it), *rollouts)
    return training, training.state._replace(params=params, observation=observation, reward=reward), whole


# --- what PPO sees, and its loss, against NumPy --------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAMILIES)
def test_advantages_end_with_an_episode_and_bootstrap_across_a_time_limit(kind, rng):
    training, state, rollout = some_training(rng, kind)
    rows = jax.jit(training.data)(state, rollout)
    taken = jax.tree.map(np.asarray, rollout)
    assert taken.terminated.sum() > 1
    assert taken.truncated.sum() > 1
    seen, following = ((it - 2.0) / 2.0 for it in (taken.observation, taken.next_observation))  # std: sqrt(200 / 50)
    v_t, v_tp1 = (np.asarray(training.learner.value(state.params.learner, it)) for it in (seen, following))
    reward = taken.reward / 2.0 * 0.01  # root mean square: sqrt(1 + 150 / 50); 1 - discount
    advantage = np.zeros((2, 12))
    for task in range(2):
        after = 0.0
        for t in reversed(range(12)):
            ended = taken.terminated[task, t] or taken.truncated[task, t]
            value = 0.0 if taken.terminated[task, t] else v_tp1[task, t]
            delta = reward[task, t] + 0.99 * value - v_t[task, t]
            advantage[task, t] = after = delta + (0.0 if ended else 0.99 * 0.95 * after)
    standard = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(rows.advantage, standard.ravel(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(rows.target, (advantage + v_t).ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.observation, seen.reshape(24, 4), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(rows.action, taken.action.reshape(24, *taken.action.shape[2:]))


def log_prob(kind: str, output: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Return the log probability of actions, from the output of the policy's network."""
    if kind == "categorical":
        log_p = output - np.log(np.exp(output).sum(axis=-1, keepdims=True))
        return log_p[np.arange(len(action)), action]
    z = (action - output) / np.exp(log_std)
    return -(0.5 * z**2 + log_std + 0.5 * np.log(2 * np.pi)).sum(axis=-1)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_loss_is_ppos_by_hand(kind, rng):
    training, state, rollout = some_training(rng, kind)
    training.ppo = replace(training.ppo, kl_weight=0.0)
    rows, params = training.data(state, rollout), numbers(state.params, rng, 0.1)
    old, new = (
        distribution(training.net, it.policy, rows.observation).loss_input()  # means, or probabilities
        for it in (state.params, params)
    )
    of = np.log if kind == "categorical" else np.asarray
    now, then = (
        log_prob(kind, of(out), np.asarray(it.policy.log_std), np.asarray(rows.action))
        for out, it in ((new, params), (old, state.params))
    )
    ratio, advantage = np.exp(now - then), np.asarray(rows.advantage)
    assert (np.abs(ratio - 1.0) > 0.2).any()
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    value = np.asarray(training.learner.value(params.learner, rows.observation))
    expected = -surrogate + 0.5 * np.mean((value - np.asarray(rows.target)) ** 2)
    np.testing.assert_allclose(training.loss(params, rows), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_first_gradient_step_is_adams_on_the_policy_gradient(kind, rng):
    """Where the policy is still the one that acted, PPO's gradient is that of -mean(advantage * log pi)."""
    training, state, rollout = some_training(rng, kind)
    rows = training.data(state, rollout)

    def plain(params: InnerParams):
        log_pi = distribution(training.net, params.policy, rows.observation).log_prob(rows.action)
        error = training.learner.value(params.learner, rows.observation) - rows.target
        return -jnp.mean(rows.advantage * log_pi) + 0.5 * jnp.mean(error**2)

    slope = jax.grad(plain)(state.params)
    for one, other in zip(*map(jax.tree.leaves, (jax.grad(training.loss)(state.params, rows), slope)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    training.options = replace(OPTIONS, update_epochs=1, minibatches=1)  # one step, on all rows
    after = training._update(state, rollout, jax.random.key(0))
    norm = max(1.0, np.sqrt(sum(float((it**2).sum()) for it in jax.tree.leaves(slope))))
    moved = jax.tree.map(lambda it, g: it - 1e-2 * (g / norm) / (jnp.abs(g / norm) + 1e-8), state.params, slope)
    for one, other, g in zip(*map(jax.tree.leaves, (after.params, moved, slope)), strict=True):
        clear = np.abs(g) > 1e-4  # where rounding does not decide the direction
        np.testing.assert_allclose(one[clear], other[clear], rtol=1e-3, atol=1e-4)


def test_every_epoch_shuffles_all_rows_anew_and_leaves_the_rest_out():
    rows = np.asarray(minibatches(jax.random.key(0), 11, epochs=3, number=4)).reshape(3, -1)
    assert rows.shape == (3, 10)  # minibatches of 2
    assert [len(set(it)) for it in rows.tolist()] == [10, 10, 10]
    assert len({tuple(it) for it in rows.tolist()}) == 3
    assert minibatches(jax.random.key(0), 2, epochs=1, number=4).shape == (2, 1)


def test_the_return_is_that_of_the_first_episode_cut_where_the_data_end():
    no = np.zeros((3, 4), bool)
    terminated, truncated = no.copy(), no.copy()
    terminated[1, 1] = truncated[2, 2] = truncated[1, 3] = True
    reward = np.arange(12.0).reshape(3, 4)
    rollout = Rollout(no, no, reward, terminated, truncated, no)
    assert first_returns(rollout).tolist() == [0 + 1 + 2 + 3, 4 + 5, 8 + 9 + 10]


# --- runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was never stopped."""
    run = registry.start("fixed-ppo", SETTINGS, OPTIONS, tmp_path_factory.mktemp("fixed-ppo") / "run")
    registry.finish("fixed-ppo", run, None, "inline", None)
    return run.path


def test_the_budget_counts_every_step(reference):
    records = read_metrics(reference / "metrics.jsonl")
    assert [it["env_steps"] for it in records] == [ROWS] * STEPS
    assert np.isfinite([it["fitness_mean"] for it in records]).all()
    trained = load_policy(reference)
    assert (trained.manifest["env_steps"], trained.manifest["baseline"]) == (OPTIONS.env_steps, "fixed-ppo")
    assert trained.manifest["trained_by"] == "PPO on training tasks"
    assert trained.policy == MlpPolicy(
        PolicySettings(hidden=(8,), log_std=-0.5, obs_stats="fixed"), trained.policy.spaces
    )
    assert trained(np.zeros(4)).shape == (2,)


def test_the_step_size_falls_to_zero_with_the_last_gradient_step(reference):
    schedule = FixedPPOTraining(SETTINGS, OPTIONS).step_size()
    tensors = Run.open(reference).load_checkpoint().tensors
    (count,) = {
        int(it) for name, it in tensors.items() if name.startswith("state/optimizer") and name.endswith("count")
    }
    assert count == STEPS * 2 * 3  # outer steps, epochs, minibatches of 53 rows
    np.testing.assert_allclose([schedule(0), schedule(count // 2), schedule(count)], [1e-2, 5e-3, 0.0], atol=1e-8)
    assert schedule(count - 1) > 0.0


def test_it_is_deployed_with_the_statistics_of_all_training():
    training, lived = FixedPPOTraining(SETTINGS, OPTIONS), []
    sample = training.sample

    def keep(*arguments):
        lived.append(sample(*arguments))
        return lived[-1]

    training.sample = keep
    while not training.done:
        training.close(training.work())
    seen = np.concatenate([np.asarray(it.rollout.observation).reshape(-1, 4) for it in lived])
    assert len(seen) == OPTIONS.env_steps
    trained = trained_policy(training)
    np.testing.assert_allclose(trained.mean, seen.mean(axis=0), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(trained.std, np.maximum(seen.std(axis=0), 0.1), rtol=1e-3)
    assert len({tuple(np.asarray(it.rollout.observation[:, 0]).ravel().tolist()) for it in lived}) == STEPS


@pytest.mark.parametrize("stopped", [1, 2])
def test_stopped_and_resumed_it_ends_the_same(stopped, reference, tmp_path):
    run = registry.start("fixed-ppo", SETTINGS, OPTIONS, tmp_path / "run")

    def stop(step) -> None:
        if step.epoch + 1 == stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.finish("fixed-ppo", run, stop, "inline", None)
    assert not (run.path / "policy.json").exists()
    registry.finish("fixed-ppo", Run.open(run.path), None, "inline", None)
    for name in ("policy.safetensors", "metrics.jsonl"):
        assert (run.path / name).read_bytes() == (reference / name).read_bytes()


def test_another_seed_gives_another_policy(reference):
    training = FixedPPOTraining(replace(SETTINGS, seed=1), OPTIONS)
    _, step = training.work()
    assert step.fitness_mean != read_metrics(reference / "metrics.jsonl")[0]["fitness_mean"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FixedPPOTraining(SETTINGS, FixedPPOSettings()), "env_steps must be above zero"),
        (lambda: replace(OPTIONS, tasks=0), r"fixed-ppo\.tasks must be above zero"),
        (lambda: replace(OPTIONS, tasks=2**20), r"tasks x task_steps asks for arrays of more than 16,777,216 numbers"),
        (lambda: replace(OPTIONS, step_size=0.0), r"fixed-ppo\.step_size must be above zero"),
        (lambda: replace(OPTIONS, env_steps=-1), r"fixed-ppo\.env_steps must not be negative"),
    ],
)
def test_bad_settings_are_refused(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


def test_a_run_of_another_baseline_is_refused(reference):
    with pytest.raises(BadInput, match="is not an RL² training"):
        registry.finish("rl2", Run.open(reference), None, "inline", None)
    with pytest.raises(BadInput, match="is not a linear policy: only one can start a loss"):
        epg.evolve("point-goal", preset="smoke", start=reference, executor="inline", run=reference / "out")


# --- learning, deployment, the command line ------------------------------------------------------------------------


def test_it_learns_to_reach_a_goal_that_it_sees():
    """point-reach, seed 0, 16 held-out tasks: the return rises by more than 10 in 82,000 steps.

    Measured: by 18.7 with seeds 0, 1 and 2.
    """
    settings = replace(small_settings("point-reach", 2, SETTINGS.evolution), policy=PolicySettings(log_std=-0.5))
    training = FixedPPOTraining(settings, FixedPPOSettings(40 * 32 * 64, tasks=32, task_steps=64))
    untrained, returns = trained_policy(training), []
    while not training.done:
        returns.append(training.close(training.work()).fitness_mean)
    assert len(returns) == 40
    assert np.mean(returns[-5:]) > np.mean(returns[:2]) + 10.0
    before, after = (record(*policy_methods(it, settings), 16, seed=5) for it in (untrained, trained_policy(training)))
    assert (after.label, after.meta_steps) == ("best fixed 64 x 64 policy (PPO)", 40 * 32 * 64)
    assert not after.kl.any()
    assert (after.final - before.final).mean() > 10.0


def test_the_command_line_trains_and_compare_finds_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ("--tasks", "2", "--lifetimes", "1", "--json")
    main(["baseline", "fixed-ppo", "point-goal", "--env-steps", "1", "--run", "runs/one", *few])
    done = json.loads(capsys.readouterr().out)
    assert (done["kind"], done["family"], done["tasks"]) == ("learn", "point-goal", 2)
    (method,) = done["methods"].items()
    assert method[0] == "fixed-ppo"
    assert method[1]["label"] == "best fixed 64 x 64 policy (PPO)"
    assert method[1]["meta_steps"] == 64 * 512  # an outer step is never cut
    main(["baseline", "fixed-ppo", "point-goal", "--resume", "--run", "runs/one", *few])
    assert json.loads(capsys.readouterr().out) == done  # nothing left to train: the same policy on the same tasks
    result = epg.compare(fresh_loss(SETTINGS), tasks=2, others=["fixed-ppo"], lifetimes=1, run="out")
    assert list(result.table["methods"]) == ["epg", "fixed-ppo"]
    assert result.table["methods"]["fixed-ppo"]["meta_steps"] == 64 * 512


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("baseline fixed-pppo point-goal", "did you mean fixed-ppo?"),
        ("baseline fixed-ppo point-goal", "baseline fixed-ppo needs --env-steps: its budget"),
        ("baseline fixed-ppo point-goal --env-steps 9 --processes 2", "--processes is for fixed, not for fixed-ppo"),
        ("baseline fixed-ppo point-goal --env-steps 0", "env_steps must be above zero, not 0"),
        (
            "baseline fixed-ppo point-goal --env-steps 9 --updates 3",
            "--updates is for ppo and reinforce, not for fixed-ppo",
        ),
        ("compare point-goal --with fixed-pp", "unknown method 'fixed-pp' (did you mean fixed-ppo?)"),
        ("compare point-goal --with fixed-ppo", "no run below runs/ has trained fixed-ppo for point-goal"),
    ],
)
def test_a_wrong_call_gets_one_sentence(call, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(call.split())
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    (line,) = [it for it in err.splitlines() if it.strip()]
    assert sentence in line
    assert not list(tmp_path.iterdir())


def test_an_unknown_baseline_is_refused_in_one_sentence():
    with pytest.raises(BadInput, match="unknown baseline 'fixed-mlp': choose one of fixed, fixed-ppo, maml, rl2"):
        epg.train_baseline("fixed-mlp", "point-goal", env_steps=1)
