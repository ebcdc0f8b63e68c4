"""The learned loss against a plain NumPy version of Fig. 2, finite differences, and what it must not see."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from samples import CONTINUOUS, DISCRETE, SPACES, small_loss, some_experience, some_rollout
from test_policy import NUMPY_ACTIVATIONS

from epg.core.errors import BadInput
from epg.core.spaces import Spaces
from epg.core.types import InnerParams, MetaParams
from epg.learners.learned import LearnedLoss
from epg.lifetime.policy_init import FRESH
from epg.lifetime.update import InnerConfig, begin, minibatches, update
from epg.loss import network
from epg.loss.blocks import blocks, moves
from epg.loss.init import init_loss, init_memory, shift_targets
from epg.loss.inputs import build_rows, constant_columns, head_columns, row_columns
from epg.loss.network import cache_inputs, context_vector, convolve, head_values, memory_output
from epg.policies.base import distribution
from epg.policies.distributions import Gaussian
from epg.policies.mlp import MlpPolicy
from epg.settings import LifetimeSettings, LossSettings, PolicySettings

N, M = 24, 8
POLICY = PolicySettings(hidden=(5,), activation="tanh", log_std=-0.5)
MLP = MlpPolicy(POLICY, CONTINUOUS)
EVERYTHING = "reward", "observation-products", "task-features"


def whole(loss, settings, params, experience, batch) -> jax.Array:
    """Call the shipped loss, both parts of it."""
    width, discrete = experience.window.observation.shape[1], not params.policy.log_std.size
    spaces = Spaces(width, experience.window.action.shape[1], discrete, len(experience.task_features))
    cached, policy = cache_inputs(loss, settings, spaces, experience), MlpPolicy(POLICY, spaces)

    def policy_at(observation):
        return distribution(policy, params.policy, observation)

    return network.evaluate(loss, settings, cached, policy_at, params, experience, batch)


evaluate = jax.jit(whole, static_argnames="settings")


def value(loss, settings, params, experience, batch=None) -> jax.Array:
    """Call the shipped loss on the newest rows."""
    return evaluate(loss, settings, params, experience, jnp.arange(M) if batch is None else batch)


def context_of(loss, settings, rows, constants) -> jax.Array:
    """Call the shipped temporal part on whole rows."""
    rows, constants = (jnp.asarray(it, jnp.float32) for it in (rows, constants))
    frames = convolve(rows, loss.kernels[0][:, : rows.shape[1]], settings.strides[0])
    return context_vector(loss, settings, frames, constants)


def head_of(loss, rows, constants, context) -> jax.Array:
    """Call the shipped head on whole rows."""
    rows, constants, context = (jnp.asarray(it, jnp.float32) for it in (rows, constants, context))
    return head_values(loss, rows @ loss.head[: rows.shape[1]], constants, context)


def some_params(spaces: Spaces, settings: LossSettings, seed: int = 0) -> InnerParams:
    """Draw a policy that depends strongly on its observation, and a memory far from zero."""
    keys = jax.random.split(jax.random.key(seed), 3)
    policy = MlpPolicy(POLICY, spaces).init(keys[0])
    policy = jax.tree.map(lambda leaf: leaf + 0.5 * jax.random.normal(keys[1], leaf.shape), policy)
    return InnerParams(policy, 5.0 * init_memory(keys[2], settings))


def randomized(loss, seed: int = 1):
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
    pooled = x.mean(0)
    return leaky(pooled @ np.asarray(loss.context) + np.asarray(loss.context_bias))


def numpy_head(loss, rows, constants, context) -> np.ndarray:
    """Compute Eq. 8 row by row."""
    full = [np.concatenate([row, constants, context]) for row in rows]
    return np.array([leaky(row @ np.asarray(loss.head) + np.asarray(loss.head_bias)) @ loss.output for row in full])


def numpy_inputs(settings, spaces, params, experience) -> tuple[np.ndarray, np.ndarray]:
    """Stack everything that was declared, as the paper lists it."""
    window, policy = experience.window, params.policy
    hidden = NUMPY_ACTIVATIONS["tanh"](window.observation @ policy.mlp.weights[0] + policy.mlp.biases[0])
    out = np.asarray(hidden @ policy.mlp.weights[1] + policy.mlp.biases[1], np.float64)
    if spaces.discrete:
        out = np.exp(out) / np.exp(out).sum(1, keepdims=True)
    valid, reward = np.asarray(window.valid)[:, None], np.asarray(window.reward)[:, None]
    rows = [window.observation, window.action, np.asarray(window.done)[:, None], out * valid]
    rows += [reward] if "reward" in settings.inputs else []
    memory = np.tanh(64 * np.asarray(params.learner, np.float64))
    constants = [memory, policy.log_std]
    constants += [experience.task_features] if "task-features" in settings.inputs else []
    return np.hstack(rows), np.concatenate(constants)


def numpy_head_rows(settings, rows, experience) -> np.ndarray:
    """Append what only the head sees."""
    if "observation-products" not in settings.inputs:
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


@pytest.mark.parametrize("shape", [((5, 3), (3, 2)), ((8,), (7,)), ((4, 3, 2), (2, 2, 1))])
def test_context_and_head_are_numpys(rng, shape):
    settings = small_loss(kernels=shape[0], strides=shape[1], init="random")
    rows, constants = rng.normal(size=(N, 8)), rng.normal(size=6)  # observation 3, action 2, done 1, policy 2
    loss = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS))
    ours = context_of(loss, settings, rows, constants)
    context = numpy_context(loss, settings, rows, constants)
    np.testing.assert_allclose(ours, context, rtol=1e-3, atol=1e-4)
    ours = head_of(loss, rows, constants, context)
    np.testing.assert_allclose(ours, numpy_head(loss, rows, constants, context), rtol=1e-3, atol=1e-4)


OTHER_SHAPES = {"kernels": (4, 3, 2), "strides": (2, 2, 1)}


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize(
    ("inputs", "changes"),
    [((), {}), (EVERYTHING, {}), (EVERYTHING, OTHER_SHAPES), ((), {"kernels": (8,), "strides": (7,)})],
)
@pytest.mark.parametrize("pushes", [1, 3])
def test_evaluate_is_numpys(rng, kind, inputs, changes, pushes):
    spaces, settings = SPACES[kind], small_loss(*inputs, init="random", **changes)
    loss, params = randomized(init_loss(jax.random.key(0), settings, spaces)), some_params(spaces, settings)
    experience, batch = some_experience(rng, spaces, N, M, pushes), np.array([6, 1, 3])
    rows, constants = numpy_inputs(settings, spaces, params, experience)
    context = numpy_context(loss, settings, rows, constants)
    rows = numpy_head_rows(settings, rows, experience)
    expected = numpy_head(loss, rows[N - M :][batch], constants, context).mean()
    np.testing.assert_allclose(value(loss, settings, params, experience, jnp.asarray(batch)), expected, rtol=1e-3)


@pytest.mark.parametrize("kind", SPACES)
def test_gradient_is_the_finite_difference(kind):
    with jax.enable_x64(True):
        spaces, settings = SPACES[kind], small_loss(*EVERYTHING, init="random")
        double = lambda tree: jax.tree.map(  # noqa: E731
            lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree
        )
        loss = double(randomized(init_loss(jax.random.key(0), settings, spaces)))
        params = double(some_params(spaces, settings))
        experience = double(some_experience(np.random.default_rng(0), spaces, N, M, 2))
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        assert flat.dtype == jnp.float64
        function = jax.jit(lambda x: whole(loss, settings, unravel(x), experience, jnp.arange(3)))
        step = 1e-6 * jnp.eye(flat.size)
        slope = (jax.vmap(function)(flat + step) - jax.vmap(function)(flat - step)) / 2e-6
        gradient = jax.grad(function)(flat)
        parts = unravel(gradient)
        assert all(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(parts) if leaf.size)  # memory too
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-7)


def test_a_loss_leaves_a_log_std_beyond_its_bounds_alone(rng):
    """Every loss: one that shrinks the log-std would otherwise do so for ever, in longer lifetimes than its own."""
    settings = small_loss(init="random")
    loss = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS))
    experience = some_experience(rng, CONTINUOUS, N, M)
    params = some_params(CONTINUOUS, settings)

    def gradient(log_std: float) -> jax.Array:
        changed = eqx.tree_at(lambda it: it.policy.log_std, params, jnp.full(CONTINUOUS.action, log_std))
        return eqx.filter_grad(lambda it: value(loss, settings, it, experience))(changed).policy.log_std

    low, high = network.LOG_STD_RANGE
    assert all((gradient(it) == 0).all() for it in (low - 0.1, high + 0.1, -1e9))
    assert all((gradient(it) != 0).all() for it in (low + 0.1, 0.0, high - 0.1))


def test_target_action_start_is_the_distance_to_a_target(rng, monkeypatch):
    monkeypatch.setattr("epg.loss.init.TARGET_SCALE", 0.3)  # targets that are not tiny
    settings = small_loss(*EVERYTHING)
    loss, params = init_loss(jax.random.key(4), settings, CONTINUOUS), some_params(CONTINUOUS, settings)
    experience = some_experience(rng, CONTINUOUS, N, M)
    rows, constants = numpy_inputs(settings, CONTINUOUS, params, experience)
    context = numpy_context(loss, settings, rows, constants)
    rows = numpy_head_rows(settings, rows, experience)
    inputs = np.hstack([rows[-M:], np.tile(np.concatenate([constants, context]), (M, 1))])
    policy = row_columns(settings, CONTINUOUS)["policy"]
    mean = inputs[:, policy]
    weights = -np.asarray(loss.head)[:, [0, 2]]
    weights[policy] = 0.0
    target = inputs @ weights
    assert np.abs(target).mean() > 0.1
    log_std = float(params.policy.log_std.sum())
    shrinking = 0.05 * max(log_std, 0.2 * log_std)
    expected = 0.8 * np.abs(mean - target).sum(1).mean() + shrinking
    np.testing.assert_allclose(value(loss, settings, params, experience), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", SPACES)
def test_target_action_without_weights_is_zero_or_uniform(rng, kind, monkeypatch):
    monkeypatch.setattr("epg.loss.init.TARGET_SCALE", 0.0)
    spaces, settings = SPACES[kind], small_loss()
    loss, params = init_loss(jax.random.key(0), settings, spaces), some_params(spaces, settings)
    experience = some_experience(rng, spaces, N, M)
    out = numpy_inputs(settings, spaces, params, experience)[0][-M:, row_columns(settings, spaces)["policy"]]
    if spaces.discrete:
        expected = 0.8 * np.abs(out - 0.25).sum(1).mean()
    else:
        log_std = float(params.policy.log_std.sum())
        expected = 0.8 * np.abs(out).sum(1).mean() + 0.05 * max(log_std, 0.2 * log_std)
        slope = jax.grad(lambda it: value(loss, settings, it, experience))(params).policy.log_std
        np.testing.assert_allclose(slope, 0.05 if log_std > 0 else 0.01, rtol=1e-5)  # descent shrinks the std
    np.testing.assert_allclose(value(loss, settings, params, experience), expected, rtol=1e-4)


def test_initial_targets_are_near_zero():
    # target = w . x with w ~ N(0, 0.02^2): over 300 keys its distribution is N(0, (0.02 |x|)^2).
    settings, x = small_loss(), np.linspace(-1.0, 1.0, 20)
    draw = jax.jit(jax.vmap(lambda key: init_loss(key, settings, CONTINUOUS).head))
    heads = np.asarray(draw(jax.random.split(jax.random.key(0), 300)))
    assert heads.shape[1] == x.size  # 8 row inputs, 6 constants, 6 context
    x[row_columns(settings, CONTINUOUS)["policy"]] = 0.0
    log_std = constant_columns(settings, CONTINUOUS)["log_std"]
    log_std = slice(8 + log_std.start, 8 + log_std.stop)
    assert (heads[:, log_std, :4] == 0.0).all()  # a target that depends on the log-std would pull it up or down
    x[log_std] = 0.0
    targets = -np.einsum("kij,i->kj", heads, x)[:, [0, 2]].ravel() / np.linalg.norm(x)
    assert scipy.stats.kstest(targets, scipy.stats.norm(0, 0.02).cdf).pvalue > 1e-3


def test_target_action_start_needs_room_in_the_head():
    with pytest.raises(BadInput, match=r"loss.hidden must be at least 5"):
        init_loss(jax.random.key(0), small_loss(hidden=4), CONTINUOUS)
    with pytest.raises(BadInput, match=r"loss.hidden must be at least 8"):
        init_loss(jax.random.key(0), small_loss(hidden=7), DISCRETE)


def test_padding_gives_zero_rows_and_no_gradient(rng):
    settings = small_loss(*EVERYTHING, init="random")
    loss, params = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS)), some_params(CONTINUOUS, settings)
    # A head that does not see the policy: what is left is the way through the context.
    policy = row_columns(settings, CONTINUOUS)["policy"]
    loss = eqx.tree_at(lambda it: it.head, loss, loss.head.at[policy].set(0.0))
    experience = some_experience(rng, CONTINUOUS, N, M, pushes=1)
    cached = cache_inputs(loss, settings, CONTINUOUS, experience)

    @jax.jit
    def given(outputs):
        """Evaluate with a policy whose means are given."""
        policy = Gaussian(outputs, params.policy.log_std)
        return network.evaluate(loss, settings, cached, lambda _: policy, params, experience, jnp.arange(M))

    outputs = jnp.full((N, 2), 7.0)
    gradient = jax.grad(given)(outputs)
    np.testing.assert_array_equal(build_rows(settings, experience)[: N - M], 0.0)
    np.testing.assert_array_equal(gradient[: N - M], 0.0)
    assert given(outputs.at[: N - M].set(1e6)) == given(outputs) != given(outputs.at[N - M].set(1e6))
    assert np.all(np.abs(gradient[N - M :]).sum(1)[:-2] > 0)  # the last frame may leave newest rows uncovered


def changed_rewards(experience, rewards):
    """Return the same experience with other rewards everywhere."""
    window = eqx.tree_at(lambda it: it.reward, experience.window, jnp.resize(rewards, experience.window.reward.shape))
    return eqx.tree_at(lambda it: (it.window, it.reward), experience, (window, rewards))


@pytest.mark.parametrize("reward", [0.0, 1e9, jnp.nan])
def test_reward_free_loss_cannot_see_reward(rng, reward):
    settings = small_loss(init="random")
    loss, params = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS)), some_params(CONTINUOUS, settings)
    experience = some_experience(rng, CONTINUOUS, N, M)
    other = changed_rewards(experience, jnp.full(M, reward))
    assert value(loss, settings, params, experience) == value(loss, settings, params, other)
    seeing = replace(settings, inputs=("reward",))
    loss = randomized(init_loss(jax.random.key(0), seeing, CONTINUOUS))
    assert value(loss, seeing, params, experience) != value(loss, seeing, params, other)


def test_update_without_reward_is_the_same_bit_for_bit(rng):
    # Three updates, so that windows, statistics and Adam carry whatever the first rewards touched.
    rollouts = [some_rollout(rng, CONTINUOUS, M) for _ in range(3)]
    scales = (jnp.ones(M), jnp.full(M, 1e9), jnp.asarray(rng.normal(size=M), jnp.float32))

    def train(settings, scales):
        learner = LearnedLoss(settings, MLP, CONTINUOUS)
        config = InnerConfig(learner, MLP, LifetimeSettings(M, 3, 4), CONTINUOUS, N)
        meta = MetaParams(learner.initial_phi(jax.random.key(0)), jnp.zeros(()), FRESH)
        batches = minibatches(config.lifetime, jax.random.key(1))
        step = jax.jit(lambda *args: update(config, *args, jnp.ones(2), meta, batches)[0])
        for scale in scales:
            state = begin(config, jax.random.key(2), FRESH)
            for rollout in rollouts:
                state = step(state, eqx.tree_at(lambda it: it.reward, rollout, rollout.reward * scale))
            yield jax.tree.leaves(state.params)

    without = small_loss("task-features", "observation-products", init="random")
    first, *others = train(without, scales)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)
    seeing = train(replace(without, inputs=(*without.inputs, "reward")), scales[:2])
    assert any(not np.array_equal(a, b) for a, b in zip(*seeing, strict=True))  # the test can tell


def test_newest_rows_are_the_ones_scored(rng):
    settings = small_loss(init="random")
    loss = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS))
    deaf = eqx.tree_at(lambda it: it.head, loss, loss.head.at[-settings.context :].set(0.0))  # head without context
    params, experience = some_params(CONTINUOUS, settings), some_experience(rng, CONTINUOUS, N, M, 3)
    batch = jnp.array([0, 5])

    def changes(network, row):
        window = eqx.tree_at(lambda it: it.action, experience.window, experience.window.action.at[row].add(1.0))
        other = eqx.tree_at(lambda it: it.window, experience, window)
        return bool(
            value(network, settings, params, experience, batch) != value(network, settings, params, other, batch)
        )

    scored = [row for row in range(N) if changes(deaf, row)]
    assert scored == [N - M, N - M + 5]
    np.testing.assert_array_equal(
        experience.window.observation[N - M :], experience.observation
    )  # the newest, in order
    # The context, in turn, sees the whole window, but for rows after the last frame that fits.
    assert [row for row in range(N) if changes(loss, row)] == list(range(23)), "kernels 5, 3 and strides 3, 2 span 23"


def test_task_features_are_seen_only_if_declared(rng):
    params, experience = some_params(CONTINUOUS, small_loss()), some_experience(rng, CONTINUOUS, N, M)
    other = eqx.tree_at(lambda it: it.task_features, experience, jnp.array([9.0, -9.0]))
    for declared in (False, True):
        settings = small_loss(*["task-features"] * declared, init="random")
        loss = randomized(init_loss(jax.random.key(0), settings, CONTINUOUS))
        same = value(loss, settings, params, experience) == value(loss, settings, params, other)
        assert bool(same) != declared


def test_columns_name_every_input():
    settings = small_loss(*EVERYTHING)
    rows, constants = row_columns(settings, CONTINUOUS), constant_columns(settings, CONTINUOUS)
    assert [it.stop - it.start for it in rows.values()] == [3, 2, 1, 2, 1]
    assert list(rows) == ["observation", "action", "done", "policy", "reward"]
    assert {name: it.stop - it.start for name, it in constants.items()} == {
        "memory": 4, "log_std": 2, "task features": 2,
    }  # fmt: skip
    assert "log_std" not in constant_columns(small_loss(), DISCRETE)
    head = head_columns(settings, CONTINUOUS)
    assert head == rows | {"observation products": slice(9, 9 + 6)}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inputs": ("reward", "reward")}, "must not name an input twice"),
        ({"modulation": "reward"}, "needs reward in loss.inputs"),
        ({"inputs": ("reward", "progress")}, "loss.inputs names progress: choose from reward"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        LossSettings(**changes)


def test_task_features_need_a_family_that_has_them():
    with pytest.raises(BadInput, match="no task features"):
        init_loss(jax.random.key(0), small_loss("task-features"), Spaces(3, 2))


def dimension(spaces: Spaces, **changes) -> int:
    """Count phi with the paper's sizes."""
    return LearnedLoss(LossSettings(**changes), MlpPolicy(PolicySettings(), spaces), spaces).dimension


def test_parameter_count_with_the_papers_sizes():
    # Hopper: a row has observation 11, action 3, done 1, mean 3; constants are memory 32 and log-std 3: 53 inputs.
    # 8*53*10+10 and 4*10*10+10 (convolutions), 10*32+32 (context), (53+32)*16+16 (head), 16 (output).
    hopper = Spaces(11, 3)
    assert dimension(hopper, window=512) == 4250 + 410 + 352 + 1376 + 16
    assert dimension(hopper, window=512, inputs=("reward",)) == 6404 + 8 * 10 + 16
    assert dimension(hopper, window=128) == dimension(hopper, window=512)
    # Four choices: one-hot action 4, probabilities 4, no log-std: 3+4+1+4+32 = 44 inputs.
    assert dimension(DISCRETE) == 8 * 44 * 10 + 10 + 410 + 352 + 76 * 16 + 16 + 16


def test_phi_and_loss_are_the_same_numbers():
    learner = LearnedLoss(small_loss(), MLP, CONTINUOUS)
    phi, loss = learner.initial_phi(jax.random.key(3)), init_loss(jax.random.key(3), small_loss(), CONTINUOUS)
    assert phi.shape == (learner.dimension,)
    for a, b in zip(jax.tree.leaves(learner.unravel(phi)), jax.tree.leaves(loss), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# --- memory: a layer fed with 64 ones ------------------------------------------------------------------------------


def test_memory_trains_like_a_layer_fed_with_64_ones(rng):
    goal, weights = jnp.asarray(rng.normal(size=5), jnp.float32), jnp.asarray(rng.normal(size=(64, 5)) / 8, jnp.float32)
    outputs = {"layer": lambda it: jnp.tanh(jnp.ones(64) @ it), "ours": memory_output}
    params, seen = {"layer": weights, "ours": weights.mean(0)}, {"layer": [], "ours": []}
    for name, output in outputs.items():
        adam, it = optax.adam(1e-3), params[name]
        state, slope = adam.init(it), jax.grad(lambda it, output=output: jnp.sum((output(it) - goal) ** 2))
        for _step in range(5):
            change, state = adam.update(slope(it), state)
            it = optax.apply_updates(it, change)
            seen[name].append(np.asarray(output(it)))
    np.testing.assert_allclose(seen["ours"], seen["layer"], rtol=1e-3, atol=1e-4)
    assert np.abs(seen["ours"][-1] - seen["ours"][0]).max() > 0.02


def test_fresh_memory_has_small_pre_activations():
    # N(0, 0.1^2); 300 keys of 32 units.
    settings = small_loss(memory=32)
    draw = jax.jit(jax.vmap(lambda key: init_memory(key, settings)))
    weights = np.asarray(draw(jax.random.split(jax.random.key(0), 300)))
    assert weights.shape == (300, 32)
    assert scipy.stats.kstest(64 * weights.ravel(), scipy.stats.norm(0, 0.1).cdf).pvalue > 1e-3


def test_one_step_of_adam_moves_a_memory_unit_64_times_as_far_as_a_bias(rng):
    rate, settings = 1e-3, small_loss(init="random")
    learner = LearnedLoss(settings, MLP, CONTINUOUS)
    config = InnerConfig(learner, MLP, LifetimeSettings(M, 1, M, learning_rate=rate), CONTINUOUS, N)
    meta = MetaParams(learner.initial_phi(jax.random.key(0)), jnp.zeros(()), FRESH)
    before, batches = begin(config, jax.random.key(2), FRESH), minibatches(config.lifetime, jax.random.key(1))
    after, _ = jax.jit(lambda *it: update(config, *it))(
        before, some_rollout(rng, CONTINUOUS, M), jnp.zeros(0), meta, batches
    )
    moved = jax.tree.map(lambda a, b: np.asarray(a, np.float64) - np.asarray(b), after.params, before.params)
    np.testing.assert_allclose(np.abs(moved.policy.mlp.biases[-1]), rate, rtol=1e-2)  # Adam's first step
    np.testing.assert_allclose(64 * np.abs(moved.learner), 64 * rate, rtol=1e-2)


def test_a_target_of_another_size_is_refused():
    settings = small_loss()
    loss = init_loss(jax.random.key(0), settings, CONTINUOUS)
    with pytest.raises(BadInput, match="a target needs 2 x 4 weights, not 2 x 10"):
        shift_targets(loss, jnp.zeros((2, 10)), settings, CONTINUOUS)


@pytest.mark.parametrize("changes", [{}, {"modulation": "reward", "temporal": "none", "memory": 0}])
def test_blocks_divide_phi_but_for_the_mixes(changes):
    settings = small_loss("reward", **changes)
    learner, found = LearnedLoss(settings, MLP, CONTINUOUS), blocks(settings, CONTINUOUS)
    index = np.concatenate(list(found.values()))
    assert len(set(index)) == len(index)
    np.testing.assert_array_equal(np.sort(index), np.flatnonzero(moves(settings, CONTINUOUS, "all")[1]))
    loss = learner.unravel(jnp.zeros(learner.dimension).at[found["head: observation"]].set(1.0))
    np.testing.assert_array_equal(loss.head[: CONTINUOUS.observation], 1.0)
    assert loss.head.sum() == CONTINUOUS.observation * settings.hidden
    assert loss.output.sum() == 0.0
