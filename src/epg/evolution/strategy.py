"""The evolution strategy of Algorithm 1: evosax's Open_ES with an optax Adam.

Fitness is maximized here; evosax minimizes, so shaped fitness changes sign on its way in (Eq. 7).
"""

from typing import Any

import jax
import numpy as np
import optax
from evosax.algorithms.distribution_based.open_es import Open_ES
from evosax.core.fitness_shaping import identity_fitness_shaping_fn
from jax import Array

from epg.core.named import matched, named
from epg.core.rng import Key
from epg.settings import EvolutionSettings

PREFIX = "strategy"  # of the names of its tensors in a checkpoint
FIXED = f"{PREFIX}/fixed"  # the parameters that do not evolve


def step_size(settings: EvolutionSettings, epoch: int) -> float:
    """Return the outer step size at `epoch`, linear from the first to the last value."""
    share = min(1.0, epoch / settings.anneal_epochs)
    return settings.step_size + share * (settings.step_size_end - settings.step_size)


def optimizer(settings: EvolutionSettings, dimension: int) -> optax.GradientTransformation:
    """Return Adam with L2 regularization in its gradient (paper, section 4) and a linear step size.

    With rule ars, momentum instead: Adam would give the many parameters without signal steps as large as the others'.
    The gradient is scaled by its own length, such that its `dimension` elements are of size one on average, as Adam's.
    """
    schedule = optax.linear_schedule(
        settings.step_size, settings.step_size_end, transition_steps=settings.anneal_epochs
    )
    if settings.rule == "ars":
        momentum = optax.scale_by_novograd(*settings.betas)
        scaled = optax.chain(momentum, optax.scale((1.0 - settings.betas[0]) * dimension**0.5))
    else:
        scaled = optax.scale_by_adam(*settings.betas)
    return optax.chain(
        optax.add_decayed_weights(2.0 * settings.l2),  # the gradient of l2 * |phi|^2
        scaled,
        optax.scale_by_learning_rate(schedule),
    )


class Strategy:
    """Ask for perturbed losses, tell their fitness. State goes in and out as arrays by name."""

    def __init__(
        self,
        settings: EvolutionSettings,
        phi: Array,
        source: np.ndarray | None = None,
        factor: np.ndarray | None = None,
    ) -> None:
        """Start at `phi`. Its entry i moves with entry `source[i]` (None: itself) times `factor[i]` (None: 1).

        The ES works on the entries that move by themselves, with factor 1. One with factor 0 stays as it is.
        """
        size, start = phi.shape[0], np.asarray(phi, np.float32)
        self._source = np.arange(size) if source is None else source
        self._factor = np.ones(size, np.float32) if factor is None else factor
        self._free = (self._source == np.arange(size)) & (self._factor != 0)
        own = self._own(start)
        self._fixed = np.where(self._free, np.float32(0), start - self._factor * own[self._source])
        phi = jax.numpy.asarray(own)
        self._es = Open_ES(
            population_size=settings.noise_vectors,
            solution=phi,
            use_antithetic_sampling=settings.antithetic,
            optimizer=optimizer(settings, int(self._free.sum())),
            std_schedule=optax.constant_schedule(settings.sigma),
            fitness_shaping_fn=identity_fitness_shaping_fn,
        )
        self._params = self._es.default_params
        self._state = _typed(self._es.init(jax.random.key(0), phi, self._params))

    @property
    def phi(self) -> np.ndarray:
        """Return the current loss parameters, [D]."""
        return self._moved(np.asarray(self._state.mean))

    def _own(self, phi: np.ndarray) -> np.ndarray:
        """Return what the ES sees of loss parameters, [..., D]: 0 where they do not move by themselves."""
        return np.where(self._free, phi, np.float32(0))

    def _moved(self, own: np.ndarray) -> np.ndarray:
        """Return the loss parameters that the ES's vectors stand for, [..., D]."""
        return self._factor * own[..., self._source] + self._fixed

    def ask(self, key: Key) -> np.ndarray:
        """Return the perturbed losses of an epoch, [V, D]."""
        return self._moved(np.asarray(self._es.ask(key, self._state, self._params)[0]))

    def tell(self, population: np.ndarray, shaped: np.ndarray) -> None:
        """Move phi up the shaped fitness [V] (Eq. 7)."""
        key = jax.random.key(0)  # Open_ES draws nothing here
        self._state = _typed(self._es.tell(key, self._own(population), -shaped, self._state, self._params)[0])

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of the ES by name, for a checkpoint."""
        return {name: np.asarray(leaf) for name, leaf in named(self._state, PREFIX).items()} | {FIXED: self._fixed}

    def restore(self, tensors: dict[str, np.ndarray]) -> None:
        """Continue from the state in a checkpoint; ValueError if it is not one of this strategy."""
        *leaves, fixed = matched(named(self._state, PREFIX) | {FIXED: self._fixed}, PREFIX, tensors)
        state = jax.tree.unflatten(jax.tree.structure(self._state), leaves)
        if not (np.isfinite(state.mean).all() and np.isfinite(fixed).all()):
            raise ValueError("phi holds a number that is not finite")
        self._state, self._fixed = state, np.asarray(fixed)


def _typed(state: Any) -> Any:
    """Give evosax's weakly typed numbers their dtype: else the second epoch would compile again."""
    return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype=leaf.dtype), state)
