"""What all tests share: the numerical environment of the program itself, and fixtures."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from epg.words.runtime import use_single_thread

# Before anything imports JAX: one thread, and compiled programs kept between test runs, even the smallest ones.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
use_single_thread()


@pytest.fixture
def rng() -> np.random.Generator:
    """Return the one source of random test data."""
    return np.random.default_rng(20180213)


@pytest.fixture
def strict_dtypes() -> Iterator[None]:
    """Refuse implicit conversions between dtypes. Not for tests that run optax, whose Adam needs them."""
    import jax

    with jax.numpy_dtype_promotion("strict"):
        yield
