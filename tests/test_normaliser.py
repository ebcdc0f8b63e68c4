"""Running statistics against NumPy over all rows, whatever the split into batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epg.lifetime.normalizer import (
    DEVIATION_FLOOR,
    Moments,
    add,
    deviation,
    init_moments,
    init_normaliser,
    normalise,
    root_mean_square,
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
    np.testing.assert_allclose(deviation(moments), rows.std(0), rtol=1e-4)
    np.testing.assert_allclose(root_mean_square(moments), np.sqrt((rows**2).mean(0)), rtol=1e-5)
    x = rng.normal(100.0, 3.0, (5, *shape))
    expected = (x - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(normalise(moments, jnp.asarray(x, jnp.float32)), expected, rtol=1e-3, atol=1e-4)


def test_deviation_and_root_mean_square_have_a_floor():
    moments = moments_of(np.array([[2.0, 0.0], [2.0, 0.02]]))  # deviations 0 and 0.01, roots 2 and 0.014
    assert DEVIATION_FLOOR == 0.1
    np.testing.assert_allclose(deviation(moments), [0.1, 0.1])
    np.testing.assert_allclose(root_mean_square(moments), [2.0, 0.1], rtol=1e-6)
    np.testing.assert_allclose(normalise(moments, jnp.array([2.5, 0.01])), [5.0, 0.0], atol=1e-6)


def test_nothing_changes_before_the_first_data():
    for moments in jax.tree.leaves(init_normaliser(3, 2), is_leaf=lambda it: isinstance(it, Moments)):
        x = jnp.full(moments.mean.shape, 1234.5)
        np.testing.assert_array_equal(normalise(moments, x), x)
        np.testing.assert_array_equal(root_mean_square(moments), jnp.ones_like(x))
