"""Recording for a film: one lifetime (Algorithm 2), and an episode with the policy it had at stages of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from epg.core.errors import require
from epg.core.rng import Key, Split, Stream, stream_key
from epg.evaluation.batches import batch_with
from epg.evaluation.protocol import Method, meta_params
from epg.evolution.task_sampling import task_sampler
from epg.families.base import Task
from epg.families.mujoco.base import MujocoFamily
from epg.families.registry import find_family
from epg.lifetime.batch import inner_config
from epg.lifetime.env_step import Actor
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.host_stepper import Batch, Draws, HostStepper
from epg.lifetime.update import LearnerState
from epg.policies.distributions import draw_noise
from epg.policies.mlp import MlpPolicy
from epg.simulators.base import Simulator

MAX_STAGES = 20


@dataclass(frozen=True)
class Episode:
    """One episode with the policy of one stage."""

    update: int
    """Updates made before it."""
    episode_return: float
    """Return of the episode."""
    terminated: bool
    """Whether the task ended it, not the time limit."""
    qpos: np.ndarray
    """Positions before the first step and after each, [steps + 1, nq]."""


@dataclass(frozen=True)
class Film:
    """A lifetime, and episodes at its stages: all with the same initial state and the same action noise."""

    family: MujocoFamily
    """Where it took place."""
    task: Task
    """In plain numbers."""
    final_return: float
    """Mean return of the scoring trajectories."""
    episodes: tuple[Episode, ...]
    """One per stage, in order."""
    path: np.ndarray
    """Positions after every step of training, [steps, nq]; NaN where the physics diverged."""
    resets: np.ndarray
    """Whether the model was reset after this step, [steps]."""


def find_mujoco_family(name: str) -> MujocoFamily:
    """Load a family that can be drawn."""
    family = find_family(name)
    require(
        isinstance(family, MujocoFamily),
        f"{name} cannot be drawn: choose a MuJoCo family (random-hopper, goal-ant, ...).",
    )
    assert isinstance(family, MujocoFamily)
    return family


def record_film(filmed: Method, seed: int, number: int, stages: int) -> Film:
    """Train a fresh policy on held-out task `number` and record episodes with it from its first to its last update.

    It is the lifetime that `learn` and `compare` run on this task with this seed; the episodes have the initial state
    and the noise of its first scoring trajectory, so that the last one is that trajectory.
    """
    require(2 <= stages <= MAX_STAGES, f"stages must lie between 2 and {MAX_STAGES}, not {stages}.")
    require(0 <= number < 2**30, f"task must lie in [0, 2^30), not {number}.")
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), not {seed}.")
    family = find_mujoco_family(filmed.settings.family)
    policy = MlpPolicy(filmed.settings.policy, family.spaces)
    config = inner_config(filmed.settings, filmed.learner, policy, family, filmed.obs_stats)
    index, row = batch_with(number)
    tasks, keys = jax.jit(jax.vmap(task_sampler(family, seed, Split.HELD_OUT), (0, None)))(index, jnp.int32(0))
    task, key = jax.tree.map(lambda leaf: leaf[row], (tasks, keys))
    moments = np.unique(np.linspace(0, config.lifetime.updates, stages).round().astype(int)).tolist()
    actors: list[Actor] = []
    driver = HostDriver(config, family)
    driver.stepper = recording = RecordingStepper(policy, family)

    def on_update(index: int, learners: LearnerState) -> None:
        if index in moments:
            actors.append(jax.tree.map(lambda leaf: leaf[row], driver.actors(learners)))

    result = driver.run(keys, tasks, meta_params(filmed.phi, filmed.policy_init), on_update)
    episode = jax.random.split(stream_key(key, Stream.SCORE), config.lifetime.scoring_episodes)[0]
    return Film(
        family,
        jax.tree.map(np.asarray, task),
        float(result.final_return[row]),
        tuple(play(HostStepper(policy, family), actors, task, episode, moments)),
        np.stack([it[row] for it in recording.recorder.qpos]),
        np.stack([it[row] for it in recording.recorder.resets]),
    )


def play(stepper: HostStepper, actors: Sequence[Actor], task: Task, key: Key, updates: Sequence[int]) -> list[Episode]:
    """Run an episode with each actor: the same task, initial state and action noise."""
    family, number = stepper.family, len(actors)
    assert isinstance(family, MujocoFamily)
    actor, tasks = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *it) for it in (actors, [task] * number))
    batch = stepper.batch(jnp.stack([key] * number), tasks)
    # The keys are those of the drivers' scoring trajectories.
    noise = draw_noise(stream_key(key, Stream.ACTION), family.spaces, family.horizon)
    state = np.asarray(family.initial_state(stream_key(key, Stream.RESET), task))
    states = batch.simulator.prepare(np.tile(state, (number, 1)))
    draws = Draws(jnp.repeat(noise[:, None], number, axis=1), states[None])
    column, alive = stepper.packing.column, np.arange(number)
    returns, terminated = np.zeros(number), np.zeros(number, bool)
    loop = stepper.steps(batch, actor, stepper.begin(batch, states), draws, alive)
    next(loop)
    positions = [[_qpos(batch, family, row)] for row in range(number)]
    for seen in loop:
        for row in alive.tolist():
            positions[row].append(_qpos(batch, family, row))
        returns[alive] += column(seen[alive], "reward")
        terminated[alive] |= column(seen[alive], "terminated") > 0
        alive = alive[np.isnan(column(seen[alive], "final_return"))]
    return [
        Episode(updates[row], float(returns[row]), bool(terminated[row]), np.stack(positions[row]))
        for row in range(number)
    ]


def _qpos(batch: Batch, family: MujocoFamily, row: int) -> np.ndarray:
    """Return the positions of a row as the simulator has them; where it diverged, those before."""
    state: np.ndarray = batch.simulator.state  # type: ignore[attr-defined]
    return state[row, 1 : 1 + family.sizes.qpos].astype(np.float32)


class Recorder:
    """A simulator that records every position of its rows. What repeats it, for scoring, is not recorded."""

    def __init__(self, simulator: Simulator, nq: int) -> None:
        self.simulator, self.nq = simulator, nq
        self.qpos: list[np.ndarray] = []
        self.resets: list[np.ndarray] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulator, name)

    def advance(self, ctrl: np.ndarray, reset_states: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Advance, and record."""
        readout = self.simulator.advance(ctrl, reset_states, rows)
        self.qpos.append(np.where(readout[:, -1:] > 0, readout[:, : self.nq], np.nan))  # the last one: is it valid
        self.resets.append(np.zeros(len(readout), bool))
        return readout

    def reset(self, rows: np.ndarray, states: np.ndarray) -> None:
        """Reset, and record."""
        self.resets[-1] |= rows
        self.simulator.reset(rows, states)


class RecordingStepper(HostStepper):
    """A stepper whose batch is recorded."""

    recorder: Recorder

    def batch(self, keys: Key, tasks: Task) -> Batch:
        """Build the simulator and record it."""
        batch = super().batch(keys, tasks)
        assert isinstance(self.family, MujocoFamily)
        self.recorder = Recorder(batch.simulator, self.family.sizes.qpos)
        return batch._replace(simulator=cast(Simulator, self.recorder))
