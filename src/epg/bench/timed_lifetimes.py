"""Timed batches of lifetimes for `epg bench`, and the physics inside them simulated again with nothing around it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.rng import Split, Stream, run_key
from epg.core.types import MetaParams
from epg.evolution.task_sampling import task_sampler
from epg.families.base import HostFamily
from epg.families.mujoco.base import MujocoFamily
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.update import InnerConfig
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings

LIFETIMES = {"jax": 32, "host": 64}
TAPE = 1024  # control intervals of a lifetime that are kept

Numbers = dict[str, float]


def initial_losses(settings: Settings, number: int) -> np.ndarray:
    """Return the initial loss of an evolution, once per lifetime."""
    spaces = find_family(settings.family).spaces
    learned = LearnedLoss(settings.loss, MlpPolicy(settings.policy, spaces), spaces)
    return np.tile(np.asarray(learned.initial_phi(run_key(settings.seed, Stream.LOSS))), (number, 1))


def _config(settings: Settings, family: Any) -> InnerConfig:
    policy = MlpPolicy(settings.policy, family.spaces)
    return inner_config(settings, evolution_learner(settings, family.spaces, policy), policy, family, None)


def _meta(settings: Settings, number: int) -> MetaParams:
    return MetaParams(jnp.asarray(initial_losses(settings, number)), jnp.float32(0.0), jnp.zeros((number, 0)))


class TimedJax:
    """Lifetimes of a JAX family: one program, nothing to take apart."""

    def __init__(self, settings: Settings) -> None:
        family, lifetimes = find_family(settings.family), LIFETIMES["jax"]
        sampler = task_sampler(family, settings.seed, Split.TRAIN)
        batch = batch_of_lifetimes(_config(settings, family), family, sampler)
        meta, index = _meta(settings, lifetimes), jnp.arange(lifetimes)
        self._evaluate = lambda: batch(meta, index, jnp.zeros((), jnp.int32))

    def run(self) -> Numbers:
        """Time the lifetimes once."""
        began = time.perf_counter()
        steps = int(np.asarray(self._evaluate().env_steps).sum())
        return {"lifetime": 1e6 * (time.perf_counter() - began) / steps}


class TimedHost:
    """Lifetimes of a host family, taken apart into acting, physics, updates and the rest."""

    def __init__(self, settings: Settings) -> None:
        self.family, lifetimes = find_family(settings.family), LIFETIMES["host"]
        assert isinstance(self.family, HostFamily)
        self.seconds: Numbers = {}
        self.tape = Tape(settings.lifetime.steps // TAPE or 1)
        self.driver = HostDriver(_config(settings, self.family), self.family)
        stepper = self.driver.stepper
        stepper.family = _Timed(self.family, self)  # type: ignore[assignment]
        stepper.programs = stepper.programs._replace(
            step=self.timed("act", stepper.programs.step), act=self.timed("act", stepper.programs.act)
        )
        self.driver._update = self.timed("update", self.driver._update, wait=lambda it: it[1].kl.block_until_ready())
        sampler = task_sampler(self.family, settings.seed, Split.TRAIN)
        self.tasks, self.keys = jax.jit(jax.vmap(sampler, (0, None)))(jnp.arange(lifetimes), jnp.zeros((), jnp.int32))
        self.meta = _meta(settings, lifetimes)

    def timed(
        self, name: str, function: Callable[..., Any], wait: Callable[[Any], Any] = methodcaller("block_until_ready")
    ) -> Callable[..., Any]:
        """Return the function with its time added to a part; what it dispatched is waited for.

        All that a program returns is ready together, so that one array is waited for: to look for all of them would
        add time that a lifetime does not spend.
        """

        def run(*args: Any) -> Any:
            began = time.perf_counter()
            result = function(*args)
            wait(result)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
            return result

        return run

    def run(self) -> Numbers:
        """Time the lifetimes once, and right after them their physics alone; microseconds per step."""
        self.seconds.clear()
        self.tape.clear()
        began = time.perf_counter()
        steps = int(np.asarray(self.driver.run(self.keys, self.tasks, self.meta).env_steps).sum())
        total = time.perf_counter() - began
        parts = {name: 1e6 * part / steps for name, part in self.seconds.items()}
        numbers = {"lifetime": 1e6 * total / steps, **parts, "rest": 1e6 * total / steps - sum(parts.values())}
        return numbers | self._limits()

    def _limits(self) -> Numbers:
        if not isinstance(self.family, MujocoFamily):
            return {}
        from epg.simulators.mujoco import BatchEngine, build_models

        slow = replace(self.family, fast=replace(self.family.stock, separate=False), edit=None, scale=None)
        rows = len(self.keys)
        engines = {
            "raw": BatchEngine(self.tape.models, self.family.fast.frame_skip),
            "stock": BatchEngine(build_models(slow, [None] * rows), slow.fast.frame_skip),
        }
        return {name: self.tape.play(engine) for name, engine in engines.items()}


class Tape:
    """States and controls of every n-th control interval of a lifetime's training."""

    def __init__(self, every: int) -> None:
        self.every, self.calls = every, 0
        self.models: list[Any] = []
        self.scenes: list[tuple[np.ndarray, np.ndarray]] = []

    def clear(self) -> None:
        """Clear the tape."""
        self.calls, self.scenes = 0, []

    def record(self, simulator: Any, ctrl: np.ndarray) -> None:
        """Keep what is about to be simulated."""
        self.models = simulator.models
        if self.calls % self.every == 0:
            self.scenes.append((simulator.state.copy(), ctrl.copy()))
        self.calls += 1

    def play(self, engine: Any) -> float:
        """Simulate all that was kept; return microseconds per step."""
        began = time.perf_counter()
        for state, ctrl in self.scenes:
            engine.run(state, ctrl, None)
        return 1e6 * (time.perf_counter() - began) / sum(len(state) for state, _ in self.scenes)


class _Timed:
    """A family, or one of its simulators, whose simulation is timed."""

    def __init__(self, it: Any, timed: TimedHost, training: bool = True) -> None:
        self._it, self._timed, self._training = it, timed, training

    def __getattr__(self, name: str) -> Any:
        return getattr(self._it, name)

    def simulate(self, tasks: Any) -> _Timed:
        return _Timed(self._it.simulate(tasks), self._timed)

    def repeat(self, times: int) -> _Timed:
        return _Timed(self._it.repeat(times), self._timed, training=False)

    def advance(self, ctrl: np.ndarray, *others: Any) -> np.ndarray:
        if self._training and hasattr(self._it, "models"):
            self._timed.tape.record(self._it, ctrl)
        return self._timed.timed("physics", self._it.advance, wait=len)(ctrl, *others)


def make_timed(settings: Settings) -> TimedJax | TimedHost:
    """Return the timed lifetimes that fit the family."""
    host = isinstance(find_family(settings.family), HostFamily)
    return TimedHost(settings) if host else TimedJax(settings)
