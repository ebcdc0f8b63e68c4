"""The learned loss against a plain NumPy version of Fig. 2, finite differences, and what it must not see."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from samples import CONTINUOUS, DISCRETE, SPACES, small_loss, some_experience, some_rollout
from test_policy import NUMPY_ACTIVATIONS

from epg.learners import Control, Learned
from epg.lifetime.update import Plan, minibatches, start, update
from epg.parts import loss as shipped
from epg.loss.network import (
    aim,
    build_constants,
    build_rows,
    constant_columns,
    context_vector,
    convolve,
    head_values,
    init_loss,
    init_memory,
    policy_rows,
    row_columns,
    set_switches,
)
from epg.policies.mlp import Gaussian, init_policy
from epg.core.errors import BadInput
from epg.core.types import Trained
from epg.settings import LifetimeSettings, LossSettings, PolicySettings, Spaces

N, M = 24, 8
POLICY = PolicySettings(hidden=(5,), activation="tanh", log_std=-0.5)
EVERYTHING = {"reward": True, "products": True, "pairs": True, "task_features": True, "progress": True}


def whole(loss, settings, trained, experience, batch) -> jax.Array:
    """Call the shipped loss, both parts of it."""
    width, discrete = experience.window.observation.shape[1], not trained.policy.log_std.size
    spaces = Spaces(width, experience.window.action.shape[1], discrete)
    fixed = shipped.fixed_part(loss, settings, spaces, experience)
    return shipped.evaluate(loss, settings, fixed, trained, experience, batch, "tanh")


evaluate = jax.jit(whole, static_argnames="settings")


def value(loss, settings, trained, experience, batch=None) -> jax.Array:
    """Call the shipped loss on the newest rows."""
    return evaluate(loss, settings, trained, experience, jnp.arange(M) if batch is None else batch)


def context_of(loss, settings, rows, constants) -> jax.Array:
    """Call the shipped temporal part on whole rows."""
    rows, constants = (jnp.asarray(it, jnp.float32) for it in (rows, constants))
    frames = convolve(rows, loss.kernels[0][:, : rows.shape[1]], settings.strides[0])
    return context_vector(loss, settings, frames, constants)


def head_of(loss, rows, constants, context) -> jax.Array:
    """Call the shipped head on whole rows."""
    rows, constants, context = (jnp.asarray(it, jnp.float32) for it in (rows, constants, context))
    return head_values(loss, rows @ loss.head[: rows.shape[1]], constants, context)


def some_trained(spaces: Spaces, settings: LossSettings, seed: int = 0) -> Trained:
    """Draw a policy that depends strongly on its observation, and a memory far from zero."""
    keys = jax.random.split(jax.random.key(seed), 3)
    policy = init_policy(keys[0], POLICY, spaces)
    policy = jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(keys[1], leaf.shape), policy)
    return Trained(policy, 5.0 * init_memory(keys[2], settings))


def randomised(loss, seed: int = 1):
    """Give every parameter, biases too, a random value."""
    leaves, structure = jax.tree.flatten(loss)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    noisy = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noisy)


def leaky(x: np.ndarray) -> np.ndarray:
    """Return the leaky ReLU of slope 0.2."""
    return np.maximum(x, 0.2 * x)


def slow_convolution(x: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """Convolve number by number."""
    frames = (len(x) - len(kernel)) // stride + 1
    out = np.zeros((frames, kernel.shape[2]))
    for frame in range(frames):
        for step in range(kernel.shape[0]):
            for channel in range(kernel.shape[1]):
                out[frame] += x[frame * stride + step, channel] * kernel[step, channel]
    return out


def numpy_context(loss, settings, rows, constants) -> np.ndarray:
    """Compute Eq. 9 as the paper draws it: the constants stand in every row."""
    x = np.hstack([rows, np.tile(constants, (len(rows), 1))])
    for kernel, bias, stride in zip(loss.kernels, loss.kernel_biases, settings.strides, strict=True):
        x = leaky(slow_convolution(x, np.asarray(kernel), stride) + np.asarray(bias))
    pooled = x.mean(0) if settings.pooling == "mean" else x.reshape(-1)
    return leaky(pooled @ np.asarray(loss.context) + np.asarray(loss.context_bias))


def numpy_head(loss, rows, constants, context) -> np.ndarray:
    """Compute Eq. 8 row by row."""
    full = [np.concatenate([row, constants, context]) for row in rows]
    return np.array([leaky(row @ np.asarray(loss.head) + np.asarray(loss.head_bias)) @ loss.output for row in full])


def numpy_inputs(settings, spaces, trained, experience) -> tuple[np.ndarray, np.ndarray]:
    """Stack everything that was declared, as the paper lists it."""
    window, policy = experience.window, trained.policy
    hidden = NUMPY_ACTIVATIONS["tanh"](window.observation @ policy.mlp.weights[0] + policy.mlp.biases[0])
    out = np.asarray(hidden @ policy.mlp.weights[1] + policy.mlp.biases[1], np.float64)
    if spaces.discrete:
        out = np.exp(out) / np.exp(out).sum(1, keepdims=True)
    valid, reward = np.asarray(window.valid)[:, None], np.asarray(window.reward)[:, None]
    rows = [window.observation, window.action, np.asarray(window.end)[:, None], out * valid]
    rows += [reward] if settings.reward else []
    rows += [reward * window.observation, reward * experience.trace] if settings.products else []
    constants = [np.tanh(trained.extra), policy.log_std]
    constants += [experience.features] if settings.task_features else []
    constants += [experience.progress] if settings.progress else []
    return np.hstack(rows), np.concatenate(constants)


def numpy_head_rows(settings, rows, experience) -> np.ndarray:
    """Append what only the head sees."""
    if not settings.pairs:
        return rows
    seen = np.asarray(experience.window.observation)
    width = seen.shape[1]
    return np.hstack([rows, np.stack([seen[:, i] * seen[:, j] for i in range(width) for j in range(i, width)], axis=1)])


@pytest.mark.parametrize(
    ("length", "kernel", "stride"), [(24, 5, 3), (24, 4, 2), (23, 8, 7), (9, 3, 5), (8, 8, 1), (10, 3, 3), (12, 7, 2)]
)
def test_convolution_is_the_slow_loop(rng, length, kernel, stride):
    x, weights = rng.normal(size=(length, 3)), rng.normal(size=(kernel, 3, 4))
    ours = convolve(jnp.asarray(x, jnp.float32), jnp.asarray(weights, jnp.float32), stride)
    np.testing.assert_allclose(ours, slow_convolution(x, weights, stride), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "flatten"])
@pytest.mark.parametrize("shape", [((5, 3), (3, 2)), ((8,), (7,)), ((4, 3, 2), (2, 2, 1))])
def test_context_and_head_are_numpys(rng, pooling, shape):
    settings = small_loss(kernels=shape[0], strides=shape[1], pooling=pooling, init="plain")
    rows, constants = rng.normal(size=(N, 8)), rng.normal(size=6)  # observation 3, action 2, end 1, policy 2
    loss = randomised(init_loss(jax.random.key(0), settings, CONTINUOUS))
    ours = context_of(loss, settings, rows, constants)
    context = numpy_context(loss, settings, rows, constants)
    np.testing.assert_allclose(ours, context, rtol=1e-3, atol=1e-4)
    ours = head_of(loss, rows, constants, context)
    np.testing.assert_allclose(ours, numpy_head(loss, rows, constants, context), rtol=1e-3, atol=1e-4)


OTHER_SHAPES = {"kernels": (4, 3, 2), "strides": (2, 2, 1), "pooling": "flatten"}


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("inputs", [{}, EVERYTHING, EVERYTHING | OTHER_SHAPES, {"kernels": (8,), "strides": (7,)}])
@pytest.mark.parametrize("pushes", [1, 3])
def test_evaluate_is_numpys(rng, kind, inputs, pushes):
    spaces, settings = SPACES[kind], small_loss(init="plain", **inputs)
    loss, trained = randomised(init_loss(jax.random.key(0), settings, spaces)), some_trained(spaces, settings)
    experience, batch = some_experience(rng, spaces, N, M, pushes), np.array([6, 1, 3])
    rows, constants = numpy_inputs(settings, spaces, trained, experience)
    context = numpy_context(loss, settings, rows, constants)
    rows = numpy_head_rows(settings, rows, experience)
    expected = numpy_head(loss, rows[N - M :][batch], constants, context).mean()
    np.testing.assert_allclose(value(loss, settings, trained, experience, jnp.asarray(batch)), expected, rtol=1e-3)


@pytest.mark.parametrize("kind", SPACES)
def test_gradient_is_the_finite_difference(kind):
    with jax.enable_x64(True):
        spaces, settings = SPACES[kind], small_loss(init="plain", **EVERYTHING)
        double = lambda tree: jax.tree.map(  # noqa: E731
            lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree
        )
        loss = double(randomised(init_loss(jax.random.key(0), settings, spaces)))
        trained = double(some_trained(spaces, settings))
        experience = double(some_experience(np.random.default_rng(0), spaces, N, M, 2))
        flat, unravel = jax.flatten_util.ravel_pytree(trained)
        assert flat.dtype == jnp.float64
        function = jax.jit(lambda x: whole(loss, settings, unravel(x), experience, jnp.arange(3)))
        step = 1e-6 * jnp.eye(flat.size)
        slope = (jax.vmap(function)(flat + step) - jax.vmap(function)(flat - step)) / 2e-6
        gradient = jax.grad(function)(flat)
        parts = unravel(gradient)
        assert all(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(parts) if leaf.size)  # memory too
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-7)


def test_target_action_start_is_the_distance_to_a_target(rng):
    settings = small_loss(init_scale=0.3, init_context_scale=0.2, **EVERYTHING)
    loss, trained = init_loss(jax.random.key(4), settings, CONTINUOUS), some_trained(CONTINUOUS, settings)
    experience = some_experience(rng, CONTINUOUS, N, M)
    rows, constants = numpy_inputs(settings, CONTINUOUS, trained, experience)
    context = numpy_context(loss, settings, rows, constants)
    rows = numpy_head_rows(settings, rows, experience)
    inputs = np.hstack([rows[-M:], np.tile(np.concatenate([constants, context]), (M, 1))])
    policy = row_columns(settings, CONTINUOUS)["policy"]
    mean = inputs[:, policy]
    weights = -np.asarray(loss.head)[:, [0, 2]]
    weights[policy] = 0.0
    target = inputs @ weights
    assert np.abs(target).mean() > 0.1
    log_std = float(trained.policy.log_std.sum())
    pull = 0.05 * max(log_std, 0.2 * log_std)
    expected = 0.8 * np.abs(mean - target).sum(1).mean() + pull
    np.testing.assert_allclose(value(loss, settings, trained, experience), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", SPACES)
def test_target_action_start_without_weights_aims_at_zero_or_uniform(rng, kind):
    spaces, settings = SPACES[kind], small_loss(init_scale=0.0, init_context_scale=0.0)
    loss, trained = init_loss(jax.random.key(0), settings, spaces), some_trained(spaces, settings)
    experience = some_experience(rng, spaces, N, M)
    out = numpy_inputs(settings, spaces, trained, experience)[0][-M:, row_columns(settings, spaces)["policy"]]
    if spaces.discrete:
        expected = 0.8 * np.abs(out - 0.25).sum(1).mean()
    else:
        log_std = float(trained.policy.log_std.sum())
        expected = 0.8 * np.abs(out).sum(1).mean() + 0.05 * max(log_std, 0.2 * log_std)
        slope = jax.grad(lambda it: value(loss, settings, it, experience))(trained).policy.log_std
        np.testing.assert_allclose(slope, 0.05 if log_std > 0 else 0.01, rtol=1e-5)  # descent shrinks the deviation
    np.testing.assert_allclose(value(loss, settings, trained, experience), expected, rtol=1e-4)


def test_first_targets_are_near_zero():
    # target = w . x with w ~ N(0, 0.02^2): over 300 keys its distribution is N(0, (0.02 |x|)^2).
    settings, x = small_loss(), np.linspace(-1.0, 1.0, 20)
    draw = jax.jit(jax.vmap(lambda key: init_loss(key, settings, CONTINUOUS).head))
    heads = np.asarray(draw(jax.random.split(jax.random.key(0), 300)))
    assert heads.shape[1] == x.size  # 8 row inputs, 6 constants, 6 context
    x[row_columns(settings, CONTINUOUS)["policy"]] = 0.0
    log_std = constant_columns(settings, CONTINUOUS)["log_std"]
    log_std = slice(8 + log_std.start, 8 + log_std.stop)
    assert (heads[:, log_std, :4] == 0.0).all()  # a target that moved with the log-std would pull it either way
    x[log_std] = 0.0
    targets = -np.einsum("kij,i->kj", heads, x)[:, [0, 2]].ravel() / np.linalg.norm(x)
    assert scipy.stats.kstest(targets, scipy.stats.norm(0, 0.02).cdf).pvalue > 1e-3


def correlations(settings, rows: np.ndarray) -> np.ndarray:
    """Average rows over all they contribute to the last convolution's frames (two convolutions)."""
    (k0, k1), (s0, s1) = settings.kernels, settings.strides
    taken = [(f * s1 + j) * s0 + i for f in range(settings.frames) for j in range(k1) for i in range(k0)]
    return rows[taken].mean(0)


@pytest.mark.parametrize("pooling", ["mean", "flatten"])
def test_correlation_start_carries_the_mean_of_the_products(rng, pooling):
    settings = small_loss(channels=8, init_temporal="correlation", pooling=pooling, **EVERYTHING)
    loss, columns = init_loss(jax.random.key(0), settings, CONTINUOUS), row_columns(settings, CONTINUOUS)

    def signed(rows, constants):
        context = np.asarray(context_of(loss, settings, rows, constants))
        np.testing.assert_allclose(leaky(-context[::2] / np.where(context[::2] < 0, 0.2, 1)), context[1::2], atol=1e-5)
        return (context[::2] - context[1::2]) / 1.2  # leaky(x) - leaky(-x) = 1.2 x

    rows, constants = rng.normal(size=(2, N, 14)), rng.normal(size=(2, 10))
    traces, states = columns["reward x trace"], columns["reward x observation"]
    mix = np.asarray(loss.kernels[0])[0, states, 4] * np.sqrt(5)  # the third pair is a random mix of the observations
    for it in rows:
        mean = correlations(settings, it)
        expected = 2 * np.append(mean[traces], mean[states] @ mix)
        np.testing.assert_allclose(signed(it, constants[0]), expected, rtol=1e-3, atol=1e-5)
    ours = signed(3 * rows[0] - 2 * rows[1], constants[1])  # linear in the products, blind to all the rest
    np.testing.assert_allclose(ours, 3 * signed(rows[0], constants[0]) - 2 * signed(rows[1], constants[0]), atol=1e-4)
    other = rows[0].copy()
    other[:, : states.start] = 9.0
    np.testing.assert_allclose(signed(other, constants[0]), signed(rows[0], constants[0]), atol=1e-6)


def test_correlation_start_aims_along_the_rewarded_actions(rng):
    scales = {"init_scale": 0.0, "init_context_scale": 0.0, "init_gain": 1.5}
    settings = small_loss(channels=8, init_temporal="correlation", reward=True, products=True, **scales)
    loss, trained = init_loss(jax.random.key(0), settings, CONTINUOUS), some_trained(CONTINUOUS, settings)
    experience, columns = some_experience(rng, CONTINUOUS, N, M, 3), row_columns(settings, CONTINUOUS)
    rows, _ = numpy_inputs(settings, CONTINUOUS, trained, experience)
    target = 1.5 * correlations(settings, rows)[columns["reward x trace"]]
    log_std = float(trained.policy.log_std.sum())
    pull = 0.05 * max(log_std, 0.2 * log_std)
    expected = 0.8 * np.abs(rows[-M:, columns["policy"]] - target).sum(1).mean() + pull
    np.testing.assert_allclose(value(loss, settings, trained, experience), expected, rtol=1e-4)


def slopes_in_outputs(loss, settings, trained, experience, outputs):
    """Return how the head's values change with the policy's outputs on the newest rows, all else as it is."""
    rows = jnp.asarray(numpy_inputs(settings, CONTINUOUS, trained, experience)[0], jnp.float32)
    constants = build_constants(settings, experience, trained.extra, trained.policy.log_std)
    context = context_of(loss, settings, rows, constants)

    def judged(outputs):
        changed = rows.at[-M:, row_columns(settings, CONTINUOUS)["policy"]].set(outputs)
        return head_of(loss, changed[-M:], constants, context).sum()

    return jax.grad(judged)(outputs)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_switch_chooses_between_two_targets(rng, direction):
    # The reward is plus or minus the second observation: one of two sets of targets holds, the other is silent.
    settings = small_loss(
        channels=8, hidden=9, init_scale=0.0, init_temporal="correlation", init_switch=1, reward=True, products=True
    )
    loss, trained = init_loss(jax.random.key(0), settings, CONTINUOUS), some_trained(CONTINUOUS, settings)
    targets = jnp.array([0.5, -0.4, -0.3, 0.2])  # of the two actions when the correlation is positive, when negative
    offsets = jnp.stack([-targets, targets], axis=1).ravel()
    loss = eqx.tree_at(lambda it: it.head_bias, loss, loss.head_bias.at[:8].add(offsets))
    loss = eqx.tree_at(lambda it: it.head, loss, loss.head.at[-settings.context + 2 :, :8].set(0.0))
    experience, columns = some_experience(rng, CONTINUOUS, N, M, 3), row_columns(settings, CONTINUOUS)
    reward = direction * jnp.sign(experience.window.observation[:, 1])
    reward = reward / jnp.abs(experience.window.observation[:, 1]).mean()
    experience = eqx.tree_at(lambda it: it.window.reward, experience, reward)
    rows, _ = numpy_inputs(settings, CONTINUOUS, trained, experience)
    assert direction * correlations(settings, rows)[columns["reward x observation"]][1] > 0.5  # the switch is clear
    outputs = jnp.asarray(rng.uniform(-2, 2, size=(M, 2)), jnp.float32)  # where the other set is silent
    expected = np.sign(outputs - (targets[:2] if direction > 0 else targets[2:]))

    slopes = slopes_in_outputs(loss, settings, trained, experience, outputs)
    np.testing.assert_allclose(slopes, 0.8 * expected, rtol=1e-4)


@pytest.mark.parametrize("side", range(4))
def test_two_switches_choose_between_four_targets(rng, side):
    # Each switch looks at a mix of all correlations: their signs decide which set of targets holds.
    four = {"init_temporal": "correlation", "init_sides": 4, "reward": True, "products": True}
    settings = small_loss(channels=8, hidden=17, init_scale=0.0, init_context_scale=0.0, **four)
    experience, trained = some_experience(rng, CONTINUOUS, N, M, 3), some_trained(CONTINUOUS, settings)
    columns = row_columns(settings, CONTINUOUS)
    rows, _ = numpy_inputs(settings, CONTINUOUS, trained, experience)
    carried = correlations(settings, rows)[columns["reward x observation"].start : columns["reward x trace"].stop]
    weights = rng.normal(size=(2, len(carried)))
    signs = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]][side])
    weights *= (signs / (weights @ carried))[:, None]
    targets = np.zeros((4, 2, 4))
    targets[:, :, -1] = rng.uniform(-0.5, 0.5, size=(4, 2))  # the same whatever is observed
    loss = init_loss(jax.random.key(0), settings, CONTINUOUS)
    loss = set_switches(loss, jnp.asarray(weights, jnp.float32), settings, CONTINUOUS)
    loss = aim(loss, jnp.asarray(targets, jnp.float32).reshape(4, -1), settings, CONTINUOUS)
    outputs = jnp.asarray(rng.uniform(-2, 2, size=(M, 2)), jnp.float32)
    expected = 0.8 * np.sign(outputs - targets[side, :, -1])
    slopes = slopes_in_outputs(loss, settings, trained, experience, outputs)
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-5)


def test_target_action_start_needs_room_in_the_head():
    with pytest.raises(BadInput, match=r"loss.hidden must be at least 5"):
        init_loss(jax.random.key(0), small_loss(hidden=4), CONTINUOUS)
    with pytest.raises(BadInput, match=r"loss.hidden must be at least 8"):
        init_loss(jax.random.key(0), small_loss(hidden=7), DISCRETE)


def test_padding_gives_zero_rows_and_no_gradient(rng):
    settings = small_loss(init="plain", **EVERYTHING)
    loss, trained = randomised(init_loss(jax.random.key(0), settings, CONTINUOUS)), some_trained(CONTINUOUS, settings)
    experience = some_experience(rng, CONTINUOUS, N, M, pushes=1)
    constants = build_constants(settings, experience, trained.extra, trained.policy.log_std)

    fixed = shipped.fixed_part(loss, settings, CONTINUOUS, experience)

    def context(outputs):
        rows = policy_rows(Gaussian(outputs, trained.policy.log_std), experience.window.valid)
        frames = fixed.frames + convolve(rows, fixed.policy_kernel, settings.strides[0])
        return jnp.sum(context_vector(loss, settings, frames, constants)), rows

    gradient, rows = jax.grad(context, has_aux=True)(jnp.full((N, 2), 7.0))
    np.testing.assert_array_equal(build_rows(settings, experience)[: N - M], 0.0)
    np.testing.assert_array_equal(rows[: N - M], 0.0)
    np.testing.assert_array_equal(gradient[: N - M], 0.0)
    assert np.all(np.abs(gradient[N - M :]).sum(1)[:-2] > 0)  # the last frame may leave newest rows uncovered


def changed_rewards(experience, rewards):
    """Return the same experience with other rewards everywhere."""
    window = eqx.tree_at(lambda it: it.reward, experience.window, jnp.resize(rewards, experience.window.reward.shape))
    return eqx.tree_at(lambda it: (it.window, it.reward), experience, (window, rewards))


@pytest.mark.parametrize("reward", [0.0, 1e9, jnp.nan])
def test_reward_free_loss_cannot_see_reward(rng, reward):
    settings = small_loss(init="plain")
    loss, trained = randomised(init_loss(jax.random.key(0), settings, CONTINUOUS)), some_trained(CONTINUOUS, settings)
    experience = some_experience(rng, CONTINUOUS, N, M)
    other = changed_rewards(experience, jnp.full(M, reward))
    assert value(loss, settings, trained, experience) == value(loss, settings, trained, other)
    seeing = replace(settings, reward=True)
    loss = randomised(init_loss(jax.random.key(0), seeing, CONTINUOUS))
    assert value(loss, seeing, trained, experience) != value(loss, seeing, trained, other)


def test_update_without_reward_is_the_same_bit_for_bit(rng):
    # Three updates, so that windows, statistics and Adam carry whatever the first rewards touched.
    rollouts = [some_rollout(rng, CONTINUOUS, M) for _ in range(3)]
    scales = (jnp.ones(M), jnp.full(M, 1e9), jnp.asarray(rng.normal(size=M), jnp.float32))

    def train(settings, scales):
        learner = Learned(settings, POLICY, CONTINUOUS)
        plan = Plan(learner, LifetimeSettings(M, 3, 4), POLICY, CONTINUOUS, N)
        control = Control(learner.initial_phi(jax.random.key(0)), jnp.zeros(()))
        batches = minibatches(plan.lifetime, jax.random.key(1))
        step = jax.jit(lambda *args: update(plan, *args, jnp.ones(2), control, batches)[0])
        for scale in scales:
            student = start(plan, jax.random.key(2))
            for rollout in rollouts:
                student = step(student, eqx.tree_at(lambda it: it.reward, rollout, rollout.reward * scale))
            yield jax.tree.leaves(student.trained)

    without = small_loss(init="plain", task_features=True, progress=True)
    first, *others = train(without, scales)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)
    seeing = train(replace(without, reward=True), scales[:2])
    assert any(not np.array_equal(a, b) for a, b in zip(*seeing, strict=True))  # the test can tell


def test_newest_rows_are_the_ones_scored(rng):
    settings = small_loss(init="plain")
    loss = randomised(init_loss(jax.random.key(0), settings, CONTINUOUS))
    deaf = eqx.tree_at(lambda it: it.head, loss, loss.head.at[-settings.context :].set(0.0))  # head without context
    trained, experience = some_trained(CONTINUOUS, settings), some_experience(rng, CONTINUOUS, N, M, 3)
    batch = jnp.array([0, 5])

    def changes(network, row):
        window = eqx.tree_at(lambda it: it.action, experience.window, experience.window.action.at[row].add(1.0))
        other = eqx.tree_at(lambda it: it.window, experience, window)
        return bool(
            value(network, settings, trained, experience, batch) != value(network, settings, trained, other, batch)
        )

    scored = [row for row in range(N) if changes(deaf, row)]
    assert scored == [N - M, N - M + 5]
    np.testing.assert_array_equal(
        experience.window.observation[N - M :], experience.observation
    )  # the newest, in order
    # The context, in turn, sees the whole window, but for rows after the last frame that fits.
    assert [row for row in range(N) if changes(loss, row)] == list(range(23)), "kernels 5, 3 and strides 3, 2 span 23"


@pytest.mark.parametrize("name", ["features", "progress"])
def test_extras_are_seen_only_if_declared(rng, name):
    setting = {"features": "task_features", "progress": "progress"}[name]
    trained, experience = some_trained(CONTINUOUS, small_loss()), some_experience(rng, CONTINUOUS, N, M)
    other = eqx.tree_at(lambda it: getattr(it, name), experience, jnp.array([9.0, -9.0]))
    for declared in (False, True):
        settings = small_loss(init="plain", **{setting: declared})
        loss = randomised(init_loss(jax.random.key(0), settings, CONTINUOUS))
        same = value(loss, settings, trained, experience) == value(loss, settings, trained, other)
        assert bool(same) != declared


def test_columns_name_every_input():
    settings = small_loss(**EVERYTHING)
    rows, constants = row_columns(settings, CONTINUOUS), constant_columns(settings, CONTINUOUS)
    assert [it.stop - it.start for it in rows.values()] == [3, 2, 1, 2, 1, 3, 2]
    assert list(rows)[:5] == ["observation", "action", "end", "policy", "reward"]
    assert {name: it.stop - it.start for name, it in constants.items()} == {
        "memory": 4, "log_std": 2, "task_features": 2, "progress": 2,
    }  # fmt: skip
    assert "log_std" not in constant_columns(small_loss(), DISCRETE)


def test_task_features_need_a_family_that_has_them():
    with pytest.raises(BadInput, match="no task features"):
        init_loss(jax.random.key(0), small_loss(task_features=True), Spaces(3, 2))


def dimension(spaces: Spaces, **changes) -> int:
    """Count phi with the paper's sizes."""
    return Learned(LossSettings(**changes), PolicySettings(), spaces).dimension


def test_parameter_count_with_the_papers_sizes():
    # Hopper: a row has observation 11, action 3, end 1, mean 3; constants are memory 32 and log-std 3: 53 inputs.
    # 8*53*10+10 and 4*10*10+10 (convolutions), 10*32+32 (context), (53+32)*16+16 (head), 16 (output).
    hopper = Spaces(11, 3)
    assert dimension(hopper, window=512) == 4250 + 410 + 352 + 1376 + 16
    assert dimension(hopper, window=512, reward=True) == 6404 + 8 * 10 + 16
    assert dimension(hopper, window=128) == dimension(hopper, window=512)
    # Flattened, N = 128 leaves (128-8)//7+1 = 18 and then (18-4)//2+1 = 8 frames of 10 channels.
    assert dimension(hopper, window=128, pooling="flatten") == 6404 + 70 * 32
    # Four choices: one-hot action 4, probabilities 4, no log-std: 3+4+1+4+32 = 44 inputs.
    assert dimension(DISCRETE) == 8 * 44 * 10 + 10 + 410 + 352 + 76 * 16 + 16 + 16


def test_phi_and_loss_are_the_same_numbers():
    learner = Learned(small_loss(), POLICY, CONTINUOUS)
    phi, loss = learner.initial_phi(jax.random.key(3)), init_loss(jax.random.key(3), small_loss(), CONTINUOUS)
    assert phi.shape == (learner.dimension,)
    for a, b in zip(jax.tree.leaves(learner.unravel(phi)), jax.tree.leaves(loss), strict=True):
        np.testing.assert_array_equal(a, b)
