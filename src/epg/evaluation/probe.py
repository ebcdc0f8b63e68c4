"""The loss card: what a loss is, measured. Does it learn, or does it teach a policy that it already carries?

Each probe trains policies under one change and reports the return on the same held-out tasks. A clone of a fixed policy
keeps its return when its history is hidden, scores as high with its target acting and no learning, and fails when the
actuators' signs are flipped. A learning rule loses without its history and survives the flip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.rng import Key, Split
from epg.evaluation.batches import BATCH, check_held_out, in_batches
from epg.evaluation.fitting import fitting_learner, obs_stats_of
from epg.evaluation.gradients import LossGradients
from epg.evaluation.interventions import (
    FlippedReward,
    ShownMixes,
    fix_mixes,
    flip_actuators,
    hide_history,
    negate_reward,
)
from epg.evaluation.protocol import meta_params, ranked_worst
from epg.evaluation.statistics import Interval, bootstrap, paired_difference
from epg.evaluation.transfer import with_updates
from epg.evolution.task_sampling import task_sampler
from epg.families.base import Family, HostFamily, JaxFamily
from epg.families.registry import find_family
from epg.learners.base import Learner
from epg.learners.learned import LearnedLoss
from epg.learners.reinforce import Reinforce
from epg.lifetime.batch import RunBatch, batch_of_lifetimes, inner_config
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.normalizer import FixedStats
from epg.lifetime.policy_init import FRESH
from epg.lifetime.scan_driver import score_policy
from epg.loss.inputs import head_columns
from epg.loss.network import Loss, leaky_relu
from epg.policies.base import FeedForward
from epg.policies.distributions import Gaussian
from epg.policies.linear import observation_products
from epg.policies.mlp import MlpPolicy
from epg.settings import PolicySettings, Settings
from epg.storage.card_file import BLIND, FLIPPED, TARGET
from epg.storage.loss_artefact import LossArtefact

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "2 x 256 tanh": {"hidden": (256, 256), "activation": "tanh"},
    "2 x 64 ReLU": {"hidden": (64, 64), "activation": "relu"},
    "4 x 64 tanh": {"hidden": (64, 64, 64, 64), "activation": "tanh"},
}
"""The other policies of Figure 17."""
LENGTHS = (0.25, 0.5, 2.0, 4.0, 12.0)
"""Lengths of a lifetime, in units of the evolved one."""


@dataclass(frozen=True)
class ProbeResult:
    """One line of the card."""

    name: str
    """What was changed."""
    group: str
    """control, history, interface, architecture or length."""
    returns: np.ndarray
    """Final return on each task, [tasks]."""
    steps: int
    """Environment steps of training."""

    @property
    def interval(self) -> Interval:
        """Interquartile mean over tasks with its 95 % interval."""
        return bootstrap(ranked_worst(self.returns))


@dataclass(frozen=True)
class LossCard:
    """The result of `epg.probe`: what a loss is, measured under changes."""

    run: Path
    """The run directory, which keeps it as card.json and as a figure."""
    family: str
    """Where policies were trained."""
    seed: int
    """Which held-out tasks, initial policies and random numbers."""
    loss: str
    """Digest of the loss."""
    probes: tuple[ProbeResult, ...]
    """One line per change; the unchanged loss first."""
    gradients: LossGradients
    """Correlation of its gradients with PPO's, and its sensitivity to each kind of input."""

    def difference(self, probe: ProbeResult) -> Interval | None:
        """Return the paired difference of a probe to the unchanged loss; None of that loss itself."""
        first = self.probes[0]
        if probe is first:
            return None
        return paired_difference(ranked_worst(probe.returns), ranked_worst(first.returns))

    def to_dict(self) -> dict[str, Any]:
        """Return the content of card.json."""
        about = {"kind": "loss-card", "family": self.family, "tasks": len(self.probes[0].returns), "seed": self.seed}
        lines = [self._line(it) for it in self.probes]
        return {**about, "probes": lines, "gradients": self.gradients.to_dict(), "loss": self.loss}

    def _line(self, probe: ProbeResult) -> dict[str, Any]:
        line, gap = {name: getattr(probe, name) for name in ("name", "group", "steps")}, self.difference(probe)
        return {**line, "interval": probe.interval.to_dict(), "difference": None if gap is None else gap.to_dict()}


@dataclass(frozen=True)
class Probe:
    """A loss, its family, and the held-out tasks that every probe uses."""

    settings: Settings
    learner: LearnedLoss
    phi: np.ndarray
    obs_stats: FixedStats | None
    tasks: int
    seed: int
    policy_init: np.ndarray | Array = field(default_factory=lambda: FRESH)
    """The evolved initial policy; [0]: policies start fresh."""

    @classmethod
    def of(cls, loss: LossArtefact, family: str, tasks: int, seed: int) -> Probe:
        """Prepare the probes of a loss."""
        check_held_out(tasks, seed)
        settings, learner = fitting_learner(loss, family)
        return cls(settings, learner, loss.phi, obs_stats_of(loss), tasks, seed, loss.policy_init)

    def train(
        self, phi: np.ndarray | None = None, settings: Settings | None = None, family: Family | None = None
    ) -> np.ndarray:
        """Train a policy on each task with a changed loss, changed settings or a changed family; return scores."""
        settings, family = settings or self.settings, family or find_family(self.settings.family)
        run = self.batch(replace(self.learner, policy=MlpPolicy(settings.policy, family.spaces)), settings, family)
        meta = meta_params(self.phi if phi is None else phi, self.policy_init)
        return in_batches(lambda index: np.asarray(run(meta, index, jnp.int32(0)).final_return), self.tasks)

    def batch(self, learner: Learner, settings: Settings, family: Family) -> RunBatch:
        """Compile lifetimes on the held-out tasks with any learner."""
        policy = MlpPolicy(settings.policy, family.spaces)
        config = inner_config(settings, learner, policy, family, self.obs_stats)
        return batch_of_lifetimes(config, family, task_sampler(family, self.seed, Split.HELD_OUT))

    def with_foreign_history(self) -> np.ndarray:
        """Train with the mixes that the loss saw last in another task's lifetime, from the first update on.

        Tasks k and k + 1 exchange theirs, k even: opposite directions, in a family that has directions.
        """
        family = find_family(self.settings.family)
        shown = ShownMixes(**{it.name: getattr(self.learner, it.name) for it in fields(self.learner)})
        watched, run = (self.batch(it, self.settings, family) for it in (shown, self.learner))
        meta = meta_params(self.phi, self.policy_init)

        def exchanged(index: Array) -> np.ndarray:
            mixes = watched(meta, index, jnp.int32(0)).measured[:, -1]  # [tasks, updates, K]: the last
            others = jnp.asarray(mixes)[jnp.arange(BATCH) ^ 1]
            phis = jax.vmap(partial(fix_mixes, self.learner))(meta.phi, others)
            return np.asarray(run(meta._replace(phi=phis), index, jnp.int32(0)).final_return)

        return in_batches(exchanged, self.tasks)

    def with_flipped_reward(self) -> np.ndarray:
        """Train with a reward that changes its sign in the middle of the lifetime; return scores under the last one."""
        half = self.settings.lifetime.updates // 2
        run = self.batch(FlippedReward(self.learner, half), self.settings, find_family(self.settings.family))
        meta = meta_params(self.phi, self.policy_init)
        return -in_batches(lambda index: np.asarray(run(meta, index, jnp.int32(0)).final_return), self.tasks)

    def results(self) -> Iterator[ProbeResult]:
        """Run every probe that applies to this loss, the unchanged loss first."""
        steps = self.settings.lifetime.steps
        yield ProbeResult("trained by the loss", "control", self.train(), steps)
        if not self.learner.spaces.discrete:
            yield ProbeResult(TARGET, "control", self.target_returns(), 0)
        yield ProbeResult(BLIND, "history", self.train(hide_history(self.learner, self.phi)), steps)
        if self.settings.loss.mixes_history:
            yield ProbeResult("another task's history", "history", self.with_foreign_history(), steps)
        family = find_family(self.settings.family)
        flipped = flip_actuators(family)
        if flipped is not None:
            yield ProbeResult(FLIPPED, "interface", self.train(family=flipped), steps)
        negated = negate_reward(family)
        if self.settings.loss.sees_reward and negated is not None:
            yield ProbeResult("reward negated", "interface", -self.train(family=negated), steps)
        if self.settings.loss.sees_reward:
            yield ProbeResult("reward negated half-way", "interface", self.with_flipped_reward(), steps)
        for name, changes in ARCHITECTURES.items() if not self.policy_init.size else ():
            policy: PolicySettings = replace(self.settings.policy, **changes)
            yield ProbeResult(name, "architecture", self.train(settings=replace(self.settings, policy=policy)), steps)
        for length in LENGTHS:
            updates = max(1, round(length * self.settings.lifetime.updates))
            settings = with_updates(self.settings, updates, stretch=True)
            yield ProbeResult(f"{length:g} x length", "length", self.train(settings=settings), settings.lifetime.steps)

    def target_returns(self) -> np.ndarray:
        """Score the policy that minimizes the loss at each observation when it has no history: no step of learning."""
        family = find_family(self.settings.family)
        policy = TargetPolicy(self.learner, self.settings.policy.log_std)
        learner = Reinforce(self.settings.ppo, policy)
        config = inner_config(self.settings, learner, policy, family, self.obs_stats)
        sample = jax.vmap(task_sampler(family, self.seed, Split.HELD_OUT), (0, None))
        params = meta_params(self.phi).phi
        if isinstance(family, HostFamily):
            driver = HostDriver(config, family)

            def score(index: Array) -> np.ndarray:
                tasks, keys = sample(index, jnp.int32(0))
                return driver.score_policies(keys, tasks, params).returns.mean(axis=1)

            return in_batches(score, self.tasks)
        assert isinstance(family, JaxFamily)

        def one(task: Any, key: Key, phi: Array) -> Array:
            return jnp.mean(score_policy(config, family, task, phi, key))

        scored = jax.jit(lambda index: jax.vmap(one)(*sample(index, jnp.int32(0)), params))
        return in_batches(scored, self.tasks)


DESCENT = 0.5 * 0.88 ** np.arange(60)  # step sizes: reaches any action within 4 and ends within 0.0003 of it


@dataclass(frozen=True)
class TargetPolicy(FeedForward):
    """The policy that minimizes a loss at each observation, with an empty history. Its parameters are phi."""

    learner: LearnedLoss
    log_std: float

    def init(self, key: Key) -> Array:
        """Return an empty phi; the one to probe is given."""
        return jnp.zeros(self.learner.dimension)

    def apply(self, params: Array, carry: tuple[()], observation: Array) -> tuple[Gaussian, tuple[()]]:
        """Descend the loss in the policy's mean, by the sign of its slope and with falling steps."""
        loss, spaces = self.learner.unravel(params), self.learner.spaces
        value = self._value(loss, observation)

        def step(mean: Array, size: Array) -> tuple[Array, None]:
            return mean - size * jnp.sign(jax.grad(value)(mean)), None

        mean, _ = jax.lax.scan(step, jnp.zeros(spaces.action), jnp.asarray(DESCENT, jnp.float32))
        return Gaussian(mean, jnp.full(spaces.action, self.log_std)), carry

    def _value(self, loss: Loss, observation: Array) -> Callable[[Array], Array]:
        settings, spaces = self.learner.loss, self.learner.spaces
        columns = head_columns(settings, spaces)
        fixed = jnp.zeros(len(loss.head)).at[columns["observation"]].set(observation)
        if "observation products" in columns:
            fixed = fixed.at[columns["observation products"]].set(observation_products(observation))
        sums, policy = fixed @ loss.head + loss.head_bias, loss.head[columns["policy"]]
        return lambda mean: leaky_relu(sums + mean @ policy) @ loss.output
