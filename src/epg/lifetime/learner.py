"""Learners: what turns a window into a gradient.

The learned loss, PPO, REINFORCE and their mix share one contract, so a lifetime cannot tell them apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from epg.parts import objectives
from epg.parts.loss import Fixed, Loss, evaluate, fixed_part, init_loss, init_memory
from epg.parts.policy import Mlp, Policy, apply_mlp, distribution, init_mlp
from epg.words.keys import Key
from epg.words.records import Experience, Trained
from epg.words.settings import LossSettings, PolicyGradientSettings, PolicySettings, Settings, Spaces, require


class Learner(Protocol):
    """One axis of variation: how a policy is to change, given its recent experience."""

    def init(self, key: Key) -> Any:
        """Draw what this learner trains beside the policy."""
        ...

    def prepare(self, trained: Trained, experience: Experience, control: "Control") -> Any:
        """Compute what stays fixed over all gradient steps of one update."""
        ...

    def gradient(
        self, trained: Trained, experience: Experience, prepared: Any, batch: Array, control: "Control"
    ) -> Trained:
        """Return the gradient of this learner's loss on the rows `batch` of the newest M."""
        ...


@dataclass(frozen=True)
class Control:
    """What evolution decides for a lifetime: a pytree, so that a new epoch needs no new program."""

    phi: Array  # [D] flat loss parameters; [0] for hand-made learners
    alpha: Array  # guidance, shared by all lifetimes of a shard


jax.tree_util.register_dataclass(Control, ["phi", "alpha"], [])


@dataclass(frozen=True)
class Learned:
    """The learned loss L_phi, with its memory."""

    loss: LossSettings
    policy: PolicySettings
    spaces: Spaces

    @property
    def unravel(self) -> Callable[[Array], Loss]:
        """Return the function that turns phi into the loss network's parameters."""
        template = jax.eval_shape(lambda: init_loss(jax.random.key(0), self.loss, self.spaces))
        return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template))[1]

    @property
    def dimension(self) -> int:
        """Return D, the length of phi."""
        template = jax.eval_shape(lambda: init_loss(jax.random.key(0), self.loss, self.spaces))
        return sum(leaf.size for leaf in jax.tree.leaves(template))

    def initial_phi(self, key: Key) -> Array:
        """Draw a first phi, [D]."""
        return ravel_pytree(init_loss(key, self.loss, self.spaces))[0]

    def init(self, key: Key) -> Array:
        """Draw a fresh memory."""
        return init_memory(key, self.loss)

    def prepare(self, trained: Trained, experience: Experience, control: Control) -> Fixed:
        """Compute what of the loss's first layers does not change with theta; all else is recomputed as it does.

        Fused with what comes next, its last bits would depend on what else the program holds, as a guide's would
        (see `_apart`).
        """
        return jax.lax.optimization_barrier(fixed_part(self.unravel(control.phi), self.loss, self.spaces, experience))

    def gradient(
        self, trained: Trained, experience: Experience, prepared: Fixed, batch: Array, control: Control
    ) -> Trained:
        """Return the gradient of L_phi in policy and memory (Eq. 6)."""
        loss = self.unravel(control.phi)

        def total(it: Trained) -> Array:
            return evaluate(loss, self.loss, prepared, it, experience, batch, self.policy.activation)

        return jax.grad(total)(trained)


@dataclass(frozen=True)
class Ppo:
    """PPO with a value network trained beside the policy."""

    settings: PolicyGradientSettings
    policy: PolicySettings
    spaces: Spaces

    def init(self, key: Key) -> Mlp:
        """Draw a fresh value network."""
        return init_mlp(key, (self.spaces.observation, *self.settings.value_hidden, 1), output_norm=0.01)

    def value(self, critic: Mlp, observation: Array) -> Array:
        """Return the discounted return expected from each observation, in units of r_rms / (1 - gamma)."""
        return apply_mlp(critic, observation, "tanh")[..., 0]

    def prepare(self, trained: Trained, experience: Experience, control: Control) -> tuple[Policy, Array, Array]:
        """Return the policy that acted, the standardised advantages and the value targets."""
        # Values of order one, whatever the reward's scale and the horizon: a fresh network fits them at once.
        reward = experience.reward * (1.0 - self.settings.discount)
        v_t = self.value(trained.extra, experience.observation)
        v_tp1 = self.value(trained.extra, experience.next_observation)
        advantage = objectives.advantages(
            reward, v_t, v_tp1, experience.terminated, experience.truncated, self.settings
        )
        return trained.policy, objectives.standardise(advantage), v_t + advantage

    def gradient(
        self,
        trained: Trained,
        experience: Experience,
        prepared: tuple[Policy, Array, Array],
        batch: Array,
        control: Control,
    ) -> Trained:
        """Return the gradient of the clipped surrogate in the policy and of the squared error in the critic."""
        actor, advantage, target = prepared
        observation, action = experience.observation[batch], experience.action[batch]
        old = distribution(actor, observation, self.policy.activation)

        def total(it: Trained) -> Array:
            new = distribution(it.policy, observation, self.policy.activation)
            surrogate = objectives.ppo_loss(new, old, action, advantage[batch], self.settings)
            error = jnp.mean((self.value(it.extra, observation) - target[batch]) ** 2)
            return surrogate + self.settings.value_weight * error

        return _apart(control, jax.grad(total), trained)


@dataclass(frozen=True)
class Reinforce:
    """REINFORCE with standardised returns to go; trains nothing but the policy."""

    settings: PolicyGradientSettings
    policy: PolicySettings

    def init(self, key: Key) -> None:
        """Train nothing beside the policy."""

    def prepare(self, trained: Trained, experience: Experience, control: Control) -> Array:
        """Return standardised returns to go."""
        ended = jnp.logical_or(experience.terminated, experience.truncated)
        returns = objectives.returns_to_go(experience.reward, ended, self.settings.discount)
        return objectives.standardise(returns)

    def gradient(
        self, trained: Trained, experience: Experience, prepared: Array, batch: Array, control: Control
    ) -> Trained:
        """Return the policy gradient (Eq. 3)."""
        observation, action = experience.observation[batch], experience.action[batch]

        def total(it: Trained) -> Array:
            new = distribution(it.policy, observation, self.policy.activation)
            return objectives.reinforce_loss(new, action, prepared[batch], self.settings)

        return _apart(control, jax.grad(total), trained)


@dataclass(frozen=True)
class Guided:
    """A learned loss with a hand-made one beside it, weighted by alpha (Eq. 10)."""

    learned: Learned
    guide: Ppo | Reinforce
    mode: Literal["blend", "add"]

    def init(self, key: Key) -> tuple[Any, Any]:
        """Draw what both train, each from its own key."""
        return self.learned.init(jax.random.fold_in(key, 1)), self.guide.init(key)

    def prepare(self, trained: Trained, experience: Experience, control: Control) -> tuple[Any, Any]:
        """Prepare both."""
        mine, guides = (Trained(trained.policy, extra) for extra in trained.extra)
        return self.learned.prepare(mine, experience, control), self.guide.prepare(guides, experience, control)

    def gradient(
        self, trained: Trained, experience: Experience, prepared: Any, batch: Array, control: Control
    ) -> Trained:
        """Return the weighted sum of both gradients.

        Each limit is a branch of its own: alpha = 1 is the guide alone bit for bit, whatever phi holds, and
        alpha = 0 costs nothing for it. Alpha is shared by a shard, so the branch is a real one under vmap.
        """

        def mine(it: Trained) -> Trained:
            slope = self.learned.gradient(Trained(it.policy, it.extra[0]), experience, prepared[0], batch, control)
            return Trained(slope.policy, (slope.extra, _zeros(it.extra[1])))

        def hand(it: Trained) -> Trained:
            slope = self.guide.gradient(Trained(it.policy, it.extra[1]), experience, prepared[1], batch, control)
            return Trained(slope.policy, (_zeros(it.extra[0]), slope.extra))

        def both(it: Trained) -> Trained:
            weight = 1.0 - control.alpha if self.mode == "blend" else 1.0
            return jax.tree.map(lambda a, b: weight * a + control.alpha * b, mine(it), hand(it))

        alone = (control.alpha == 1.0) & (self.mode == "blend")
        case = jnp.where(control.alpha == 0.0, 0, jnp.where(alone, 1, 2))
        return jax.lax.switch(case, (mine, hand, both), trained)


def _apart(control: Control, gradient: Callable[[Trained], Trained], at: Trained) -> Trained:
    """Compute a gradient in a branch of its own, always taken.

    Fused with Adam, its last bits would depend on what else the program holds: alone, and as a guide at alpha = 1,
    a hand-made learner would differ by rounding.
    """
    return jax.lax.cond(control.alpha <= 1.0, gradient, _zeros, at)


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


HAND_MADE: dict[str, Callable[[Settings, Spaces], Ppo | Reinforce]] = {
    "ppo": lambda settings, spaces: Ppo(settings.ppo, settings.policy, spaces),
    "reinforce": lambda settings, spaces: Reinforce(settings.ppo, settings.policy),
}
"""Learners by name. A registered one is a tested one (tests/test_learners.py)."""


def hand_made(name: str, settings: Settings, spaces: Spaces) -> Ppo | Reinforce:
    """Build a hand-made learner by name."""
    require(name in HAND_MADE, f"unknown learner {name!r}: choose one of {', '.join(HAND_MADE)}.")
    return HAND_MADE[name](settings, spaces)


def evolved(settings: Settings, spaces: Spaces) -> Learned | Guided:
    """Build the learner that evolution trains with: the learned loss, guided if the settings say so."""
    learned = Learned(settings.loss, settings.policy, spaces)
    if settings.guidance.learner == "none":
        return learned
    return Guided(learned, hand_made(settings.guidance.learner, settings, spaces), settings.guidance.mode)
