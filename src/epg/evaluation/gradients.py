"""Gradients of a loss in a lifetime: correlation with PPO's (section 4.1), sensitivity to the inputs (Figure 21)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.core.rng import Key, Split
from epg.core.types import Experience, InnerParams, MetaParams
from epg.evaluation.batches import check_held_out, in_batches
from epg.evaluation.fitting import fitting_learner, obs_stats_of
from epg.evaluation.protocol import meta_params
from epg.evaluation.statistics import Interval, bootstrap
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family
from epg.learners.base import Learner
from epg.learners.learned import LearnedLoss
from epg.learners.ppo import PPO
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.window import action_trace
from epg.loss.network import cache_inputs, evaluate
from epg.policies.base import distribution
from epg.policies.distributions import Categorical, Gaussian
from epg.policies.mlp import MlpPolicy
from epg.storage.loss_artefact import LossArtefact


class Sensitivity(NamedTuple):
    """Norm of dL_t / dx_t' at each window position t', [N], per kind of input; inputs are in normalized units."""

    observation: Array
    action: Array
    done: Array
    policy: Array  # the policy's output
    reward: Array  # zero if the loss does not see it


class GradientStats(NamedTuple):
    """What is measured at each update, before it is made."""

    correlation: Array  # Spearman's rho between the gradients of the loss and of PPO in theta
    sensitivity: Sensitivity


@dataclass(frozen=True)
class LossGradients:
    """Gradients of a loss in lifetimes on held-out tasks."""

    correlation: np.ndarray
    """Spearman's rho at each update, [tasks, updates]."""
    sensitivity: dict[str, np.ndarray]
    """Per kind of input the norms at the last update, [tasks, N]."""
    position: int
    """t: the window position whose loss was differentiated, in the middle of the newest M."""

    def mean_correlation(self) -> Interval:
        """Return the mean of rho over updates and tasks, with its 95 % interval over tasks."""
        return bootstrap(self.correlation.mean(axis=1), np.mean)

    def to_dict(self) -> dict[str, Any]:
        """Summarize for the loss card: rho; per kind of input the norm at t, and the sum of norms elsewhere."""
        means = {kind: norms.mean(axis=0) for kind, norms in self.sensitivity.items()}
        at_t = {kind: float(it[self.position]) for kind, it in means.items()}
        weights = {kind: {"at_t": at_t[kind], "elsewhere": float(it.sum()) - at_t[kind]} for kind, it in means.items()}
        return {"correlation": self.mean_correlation().to_dict(), "sensitivity": weights}


def measure_gradients(loss: LossArtefact, family: str, tasks: int, seed: int) -> LossGradients:
    """Train policies with a loss and measure its gradients at every update; PPO's value network learns beside them."""
    check_held_out(tasks, seed)
    settings, learned = fitting_learner(loss, family)
    found = find_family(family)
    policy = MlpPolicy(settings.policy, found.spaces)
    learner = MeasuredLoss(learned, PPO(settings.ppo, policy, found.spaces))
    config = inner_config(settings, learner, policy, found, obs_stats_of(loss))
    run = batch_of_lifetimes(config, found, task_sampler(found, seed, Split.HELD_OUT))
    meta = meta_params(loss.phi, loss.policy_init)
    stats: GradientStats = in_batches(lambda index: run(meta, index, jnp.int32(0)).measured, tasks)
    norms = {name: value[:, -1] for name, value in stats.sensitivity._asdict().items()}
    if not settings.loss.sees_reward:
        del norms["reward"]
    size = settings.lifetime.steps_per_update
    return LossGradients(np.asarray(stats.correlation), norms, settings.loss.window - size + size // 2)


@dataclass(frozen=True)
class MeasuredLoss(Learner):
    """A learned loss that trains policies as ever, measured; PPO's value network is trained beside it."""

    learned: LearnedLoss
    ppo: PPO

    def init(self, key: Key) -> tuple[Any, Any]:
        """Draw the memory that the loss alone would have, and a value network."""
        return self.learned.init(key), self.ppo.init(key)

    def prepare(self, params: InnerParams, experience: Experience, meta: MetaParams) -> tuple[Any, Any]:
        """Prepare both."""
        memory, value = (InnerParams(params.policy, it) for it in params.learner)
        return self.learned.prepare(memory, experience, meta), self.ppo.prepare(value, experience, meta)

    def gradient(
        self, params: InnerParams, experience: Experience, prepared: Any, batch: Array, meta: MetaParams
    ) -> InnerParams:
        """Return the loss's gradient in policy and memory, and PPO's in the value network."""
        memory, value = (InnerParams(params.policy, it) for it in params.learner)
        slope = self.learned.gradient(memory, experience, prepared[0], batch, meta)
        rows = jnp.mod(batch, experience.reward.shape[0])  # with replay they may be any numbers
        error = self.ppo.gradient(value, experience, prepared[1], rows, meta)
        return InnerParams(slope.policy, (slope.learner, error.learner))

    def measure(self, params: InnerParams, experience: Experience, meta: MetaParams) -> GradientStats:
        """Compare both gradients on the newest M transitions, and differentiate L_t in its inputs."""
        memory, value = (InnerParams(params.policy, it) for it in params.learner)
        prepared, rows = self.prepare(params, experience, meta), jnp.arange(experience.reward.shape[0])
        learned = self.learned.gradient(memory, experience, prepared[0], rows, meta)
        guide = self.ppo.gradient(value, experience, prepared[1], rows, meta)
        rho = spearman(ravel_pytree(learned.policy)[0], ravel_pytree(guide.policy)[0])
        return GradientStats(rho, sensitivity(self.learned, memory, experience, meta))


def spearman(x: Array, y: Array) -> Array:
    """Return Spearman's rank correlation of two vectors; ties share their mean rank. 0 if one is constant."""
    a, b = (_ranks(it) for it in (x, y))
    a, b = a - jnp.mean(a), b - jnp.mean(b)
    scale = jnp.sqrt(jnp.sum(a**2) * jnp.sum(b**2))
    return jnp.where(scale > 0, jnp.sum(a * b) / jnp.where(scale > 0, scale, 1.0), 0.0)


def _ranks(x: Array) -> Array:
    """Return mean ranks, divided by their number: the square of a rank of thousands would cost digits."""
    ordered = jnp.sort(x)
    below, above = (jnp.searchsorted(ordered, x, side=side) for side in ("left", "right"))
    return (below + above) / (2.0 * len(x))


def sensitivity(learned: LearnedLoss, params: InnerParams, experience: Experience, meta: MetaParams) -> Sensitivity:
    """Return how strongly L_t depends on every input at every window position; t is in the middle of the newest M."""
    loss, settings, window = learned.unravel(meta.phi), learned.loss, experience.window
    emitted = distribution(learned.policy, params.policy, window.observation)
    base = emitted.logits if isinstance(emitted, Categorical) else emitted.mean

    def value(change: Sensitivity) -> Array:
        moved = replace(
            window,
            observation=window.observation + change.observation,
            action=window.action + change.action,
            done=window.done + change.done,
            reward=window.reward + change.reward,
        )
        trace = experience.action_trace + action_trace(change.action, window.done)
        seen = replace(experience, window=moved, action_trace=trace)
        cached = cache_inputs(loss, settings, learned.spaces, seen, learned.replay)
        size, newest = len(cached.head_sums), experience.reward.shape[0]
        rows = jnp.array([size - newest + newest // 2])
        outputs = base + change.policy
        asked = outputs if settings.temporal == "policy" else outputs[-size:][rows]
        policy = Categorical(asked) if learned.spaces.discrete else Gaussian(asked, params.policy.log_std)
        return evaluate(loss, settings, cached, lambda _: policy, params, seen, rows)

    zeros = (window.observation, window.action, window.done, base, window.reward)
    slopes = jax.grad(value)(Sensitivity(*(jnp.zeros_like(it) for it in zeros)))
    return Sensitivity(*(jnp.linalg.norm(it.reshape(len(it), -1), axis=1) for it in slopes))
