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

from epg.lifetime.host import HostDriver
from epg.lifetime.learner import Control, Learned, evolved
from epg.methods.shards import batch_of_lifetimes, draw_lifetimes, find_family, make_plan
from epg.parts.families.base import HostFamily
from epg.parts.families.mujoco_family import MujocoFamily
from epg.words.keys import Split, Stream, run_key
from epg.words.settings import Settings

LIFETIMES = {"jax": 32, "host": 64}
TAPE = 1024  # control intervals that are kept of a lifetime

Numbers = dict[str, float]


def initial_losses(settings: Settings, number: int) -> np.ndarray:
    """Return the first loss of an evolution, for each lifetime."""
    learned = Learned(settings.loss, settings.policy, find_family(settings.family).spaces)
    return np.tile(np.asarray(learned.initial_phi(run_key(settings.seed, Stream.LOSS))), (number, 1))


class JaxTrial:
    """Lifetimes of a JAX family: one program, nothing to take apart."""

    def __init__(self, settings: Settings, alpha: float) -> None:
        family, lifetimes = find_family(settings.family), LIFETIMES["jax"]
        plan = make_plan(settings, evolved(settings, family.spaces), family)
        batch = batch_of_lifetimes(plan, family, settings.seed, Split.TRAIN)
        phi, index = jnp.asarray(initial_losses(settings, lifetimes)), jnp.arange(lifetimes)
        self._evaluate = lambda: batch(phi, index, jnp.zeros((), jnp.int32), jnp.float32(alpha))

    def run(self) -> Numbers:
        """Time the lifetimes once."""
        began = time.perf_counter()
        steps = int(np.asarray(self._evaluate().env_steps).sum())
        return {"lifetime": 1e6 * (time.perf_counter() - began) / steps}


class HostTrial:
    """Lifetimes of a host family, taken apart into acting, physics, updates and the rest."""

    def __init__(self, settings: Settings, alpha: float) -> None:
        self.family, lifetimes = find_family(settings.family), LIFETIMES["host"]
        assert isinstance(self.family, HostFamily)
        self.seconds: Numbers = {}
        self.tape = Tape(settings.lifetime.steps // TAPE or 1)
        self.driver = HostDriver(make_plan(settings, evolved(settings, self.family.spaces), self.family), self.family)
        self.driver.family = _Timed(self.family, self)  # type: ignore[assignment]
        programs = self.driver.programs
        self.driver.programs = programs._replace(
            react=self.timed("act", programs.react),
            choose=self.timed("act", programs.choose),
            learn=self.timed("update", programs.learn, wait=lambda result: result[1].kl.block_until_ready()),
        )
        draw = draw_lifetimes(self.family, settings.seed, Split.TRAIN)
        self.tasks, self.keys = jax.jit(jax.vmap(draw, (0, None)))(jnp.arange(lifetimes), jnp.zeros((), jnp.int32))
        self.control = Control(jnp.asarray(initial_losses(settings, lifetimes)), jnp.float32(alpha))

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
        steps = int(np.asarray(self.driver.run(self.keys, self.tasks, self.control).env_steps).sum())
        total = time.perf_counter() - began
        parts = {name: 1e6 * part / steps for name, part in self.seconds.items()}
        numbers = {"lifetime": 1e6 * total / steps, **parts, "rest": 1e6 * total / steps - sum(parts.values())}
        return numbers | self._limits()

    def _limits(self) -> Numbers:
        if not isinstance(self.family, MujocoFamily):
            return {}
        from epg.parts.physics import Together, build_models

        slow = replace(self.family, fast=replace(self.family.stock, alone=False), edit=None, scale=None)
        rows = len(self.keys)
        engines = {
            "raw": Together(self.tape.models, self.family.fast.substeps),
            "stock": Together(build_models(slow, [None] * rows), slow.fast.substeps),
        }
        return {name: self.tape.play(engine) for name, engine in engines.items()}


class Tape:
    """States and controls of every n-th control interval of a lifetime's training."""

    def __init__(self, every: int) -> None:
        self.every, self.calls = every, 0
        self.models: list[Any] = []
        self.scenes: list[tuple[np.ndarray, np.ndarray]] = []

    def clear(self) -> None:
        """Begin anew."""
        self.calls, self.scenes = 0, []

    def record(self, simulator: Any, control: np.ndarray) -> None:
        """Keep what is about to be simulated."""
        self.models = simulator.models
        if self.calls % self.every == 0:
            self.scenes.append((simulator.state.copy(), control.copy()))
        self.calls += 1

    def play(self, engine: Any) -> float:
        """Simulate all that was kept; return microseconds per step."""
        began = time.perf_counter()
        for state, control in self.scenes:
            engine.run(state, control, None)
        return 1e6 * (time.perf_counter() - began) / sum(len(state) for state, _ in self.scenes)


class _Timed:
    """A family, or one of its simulators, whose simulation is timed."""

    def __init__(self, it: Any, trial: HostTrial, training: bool = True) -> None:
        self._it, self._trial, self._training = it, trial, training

    def __getattr__(self, name: str) -> Any:
        return getattr(self._it, name)

    def simulate(self, tasks: Any) -> _Timed:
        return _Timed(self._it.simulate(tasks), self._trial)

    def repeat(self, times: int) -> _Timed:
        return _Timed(self._it.repeat(times), self._trial, training=False)

    def advance(self, control: np.ndarray, *others: Any) -> np.ndarray:
        if self._training and hasattr(self._it, "models"):
            self._trial.tape.record(self._it, control)
        return self._trial.timed("physics", self._it.advance, wait=len)(control, *others)


def make_trial(settings: Settings, alpha: float) -> JaxTrial | HostTrial:
    """Return the trial that fits the family."""
    host = isinstance(find_family(settings.family), HostFamily)
    return HostTrial(settings, alpha) if host else JaxTrial(settings, alpha)
