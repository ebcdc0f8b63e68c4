"""Running statistics against NumPy over all rows, whatever the split into batches; fixed ones; constant inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epg.lifetime.normalizer import (
    STD_FLOOR,
    FixedStats,
    Moments,
    add,
    hold,
    init_moments,
    init_normalizer,
    normalize,
    pool,
    root_mean_square,
    std,
)

pytestmark = pytest.mark.usefixtures("strict_dtypes")


def moments_of(*batches: np.ndarray) -> Moments:
    """Feed batches one after another."""
    moments = init_moments(batches[0].shape[1:])
    for batch in batches:
        moments = add(moments, jnp.asarray(batch, jnp.float32))
    return moments


@pytest.mark.parametrize("cuts", [[], [1], [30], [1, 2, 3], [10, 11, 40]])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_moments_are_numpys_whatever_the_split(rng, cuts, shape):
    rows = rng.normal(100.0, 3.0, (64, *shape))
    moments = moments_of(*np.split(rows, cuts))
    np.testing.assert_allclose(moments.count, 64)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-6)
    np.testing.assert_allclose(std(moments), rows.std(0), rtol=1e-4)
    np.testing.assert_allclose(root_mean_square(moments), np.sqrt((rows**2).mean(0)), rtol=1e-5)
    x = rng.normal(100.0, 3.0, (5, *shape))
    expected = (x - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(normalize(moments, jnp.asarray(x, jnp.float32)), expected, rtol=1e-3, atol=1e-4)


def test_std_and_root_mean_square_have_a_floor():
    moments = moments_of(np.array([[2.0, 0.0], [2.0, 0.02]]))  # standard deviations 0 and 0.01, roots 2 and 0.014
    assert STD_FLOOR == 0.1
    np.testing.assert_allclose(std(moments), [0.1, 0.1])
    np.testing.assert_allclose(root_mean_square(moments), [2.0, 0.1], rtol=1e-6)
    np.testing.assert_allclose(normalize(moments, jnp.array([2.5, 0.01])), [5.0, 0.0], atol=1e-6)


def test_nothing_changes_before_the_first_data():
    for moments in jax.tree.leaves(init_normalizer(3, 2), is_leaf=lambda it: isinstance(it, Moments)):
        x = jnp.full(moments.mean.shape, 1234.5)
        np.testing.assert_array_equal(normalize(moments, x), x)
        np.testing.assert_array_equal(root_mean_square(moments), jnp.ones_like(x))


def test_pooled_statistics_are_those_of_all_rows(rng):
    rows = rng.normal([1.0, -2.0, 5.0], [3.0, 0.5, 0.001], size=(3, 50, 3)) + rng.normal(size=(3, 1, 3)) * [1, 1, 0]
    each = [moments_of(part) for part in rows]
    found = pool(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each))
    np.testing.assert_allclose(found.mean, rows.reshape(-1, 3).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.std[:2], rows.reshape(-1, 3).std(axis=0)[:2], rtol=1e-5)
    np.testing.assert_array_equal(found.std[2], np.float32(0.1))  # the floor
    assert found.mean.dtype == found.std.dtype == np.float32


FIXED = FixedStats(np.float32([1.0, 2.0, 3.0]), np.float32([2.0, 0.5, 1.0]))


def test_fixed_statistics_normalize_by_their_mean_and_std():
    np.testing.assert_allclose(
        normalize(FIXED.moments(), jnp.array([3.0, 2.5, 3.0])), [1.0, 1.0, 0.0], rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(std(FIXED.moments()), FIXED.std, rtol=1e-6)


def test_a_lifetime_with_fixed_statistics_starts_with_them():
    stats = init_normalizer(3, 2, FIXED)
    np.testing.assert_array_equal(stats.observation.mean, FIXED.mean)
    np.testing.assert_allclose(std(stats.observation), FIXED.std, rtol=1e-6)
    assert stats.action.count == stats.reward.count == 0


CONSTANTS = ((0, 1.5, 0.25), (2, -3.0, 2.0))  # (index, mean, std)


def test_constant_inputs_keep_their_mean_and_std_over_tasks(rng):
    rows = rng.normal(10.0, 3.0, (64, 3))
    rows[:, [0, 2]] = [1.75, -1.0]  # constant within this lifetime
    plain, held = moments_of(rows), hold(moments_of(rows), CONSTANTS)
    np.testing.assert_allclose(normalize(plain, jnp.float32(rows[0]))[jnp.array([0, 2])], 0.0, atol=1e-5)  # erased
    ours = normalize(held, jnp.float32(rows[0]))
    np.testing.assert_allclose(ours, [1.0, (rows[0, 1] - rows[:, 1].mean()) / rows[:, 1].std(), 1.0], rtol=1e-3)
    assert held.count == plain.count
    np.testing.assert_array_equal(held.mean[1], plain.mean[1])
    np.testing.assert_array_equal(held.square[1], plain.square[1])
    assert hold(plain, ()) is plain


def test_constant_inputs_are_held_however_many_batches_are_added(rng):
    # The running update takes the held moments for real ones: holding again after each batch must undo that.
    rows = rng.normal(size=(40, 3))
    rows[:, [0, 2]] = [1.75, -1.0]
    moments = hold(init_moments((3,)), CONSTANTS)
    for batch in np.split(rows, [10, 15]):
        moments = hold(add(moments, jnp.asarray(batch, jnp.float32)), CONSTANTS)
        np.testing.assert_allclose(moments.mean[jnp.array([0, 2])], [1.5, -3.0])
        np.testing.assert_allclose(std(moments)[jnp.array([0, 2])], [0.25, 2.0], rtol=1e-6)
    np.testing.assert_allclose(moments.mean[1], rows[:, 1].mean(), rtol=1e-5)
    np.testing.assert_allclose(std(moments)[1], rows[:, 1].std(), rtol=1e-5)


def test_fixed_statistics_win_over_constant_inputs():
    # They were measured over tasks, so a constant input has its spread over tasks in them already.
    np.testing.assert_array_equal(init_normalizer(3, 2, FIXED, CONSTANTS).observation.mean, FIXED.mean)
