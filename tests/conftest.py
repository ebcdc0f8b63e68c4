"""What all tests share: the numerical environment of the program itself, and fixtures."""

import importlib
import logging
import os
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from epg.core.runtime import use_single_thread

# Before anything imports JAX: one thread, and compiled programs kept between test runs, even the smallest ones.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
use_single_thread()

# Before anything imports Ray: a Ray that tests start obeys nobody else.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))


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


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Start a Ray cluster whose head has two CPUs, and connect to it; executors then use this connection."""
    importlib.import_module("epg.executors.ray")  # sets what Ray reads when imported
    import ray
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)  # as the executor itself does
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
