"""A batch of lifetimes of any family, with the driver that the family needs."""

from collections.abc import Callable

import jax
from jax import Array

from epg.core.errors import require
from epg.core.rng import Key
from epg.core.runtime import jit
from epg.core.types import LifetimeResult, MetaParams
from epg.families.base import Family, HostFamily, JaxFamily, Task
from epg.learners.base import Learner
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.scan_driver import run_lifetime
from epg.lifetime.update import InnerConfig
from epg.policies.base import Policy
from epg.settings import Settings

Sampler = Callable[[Array, Array], tuple[Task, Key]]
"""(index, epoch) -> task and key of one lifetime."""
RunBatch = Callable[[MetaParams, Array, Array], LifetimeResult]
"""(meta [S, ...], task indices [S], epoch) -> results [S, ...]."""

META_AXES = MetaParams(0, None, 0)  # type: ignore[arg-type]


def inner_config(
    settings: Settings, learner: Learner, policy: Policy, family: Family, obs_stats: FixedStats | None
) -> InnerConfig:
    """Gather what a lifetime's program depends on."""
    require(
        settings.policy.obs_stats == "running" or obs_stats is not None,
        "policy.obs_stats is fixed, and the statistics were not measured: evolve a loss first, or set it to running.",
    )
    fixed = obs_stats if settings.policy.obs_stats == "fixed" else None
    window = settings.loss.window
    return InnerConfig(learner, policy, settings.lifetime, family.spaces, window, fixed, family.constant_inputs)


def batch_of_lifetimes(config: InnerConfig, family: Family, sampler: Sampler) -> RunBatch:
    """Compile a batch of lifetimes on the tasks that the sampler gives."""
    if isinstance(family, HostFamily):
        driver, sample = HostDriver(config, family), jit(jax.vmap(sampler, (0, None)))

        def run(meta: MetaParams, index: Array, epoch: Array) -> LifetimeResult:
            tasks, keys = sample(index, epoch)
            return driver.run(keys, tasks, meta)

        return run
    assert isinstance(family, JaxFamily)

    def one(meta: MetaParams, index: Array, epoch: Array) -> LifetimeResult:
        task, key = sampler(index, epoch)
        return run_lifetime(config, family, task, meta, key)

    return jit(jax.vmap(one, (META_AXES, 0, None)))
