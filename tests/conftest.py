"""What all tests share: the numerical environment of the program itself, and fixtures."""

import ctypes
import gc
import importlib
import logging
import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epg.core.runtime import use_single_thread

# Before anything imports JAX: one thread, and compiled programs kept between test runs. Tests compile much and run
# little: they optimize less, which takes a third of the time to compile. Promises about bits, and tests that run for
# long, take the compiler as it is shipped (`shipped_compiler`).
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
os.environ["XLA_FLAGS"] = f"{QUICK_TO_COMPILE} {os.environ.get('XLA_FLAGS', '')}"
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # source lines of operations, which nobody reads
gc.set_threshold(100_000, 20, 50)  # tracing makes many objects and few cycles
use_single_thread()

# Before anything imports Ray: a Ray that tests start obeys nobody else.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))


# A test process compiles hundreds of programs. Each is kept as long as the function it was made of, and what the
# compiler itself used stays with the C library: without the two fixtures below a process grows to 5 GB.
MUCH_MEMORY = 1.5 * 2**30


def resident_memory() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not say."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def free_memory() -> None:
    """Drop every compiled program, and give freed memory back to the system. What is used again compiles again."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


# Files that take longest, longest first: started last, one of them would run alone at the end.
LONG_FILES = ("cli", "evolution", "experiments", "site", "ray", "families", "learners", "recipes", "durability")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that take longest first."""
    order = {f"test_{name}.py": number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="module", autouse=True)
def programs_are_dropped_with_their_module() -> Iterator[None]:
    """Free memory at the end of a module."""
    yield
    free_memory()


@pytest.fixture(autouse=True)
def programs_are_dropped_when_there_are_many() -> Iterator[None]:
    """Free memory after a test that left much of it in use."""
    yield
    if resident_memory() > MUCH_MEMORY:
        free_memory()


@pytest.fixture
def shipped_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile as the program does when nobody tests it, here and in the processes that a test starts."""
    from epg.core import runtime

    monkeypatch.setitem(runtime.COMPILER, "xla_cpu_use_fusion_emitters", True)
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"].replace(QUICK_TO_COMPILE, ""))


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


@pytest.fixture(scope="module")  # idle, its processes take a tenth of a core
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
