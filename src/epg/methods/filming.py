"""Filming: one recorded lifetime (Algorithm 2), and an episode with the policy it had at stages of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epg.lifetime.between import Acting, Row, choose, first_row, react
from epg.lifetime.host import HostDriver
from epg.lifetime.learner import Control, Learner, hand_made
from epg.lifetime.update import Plan, Student
from epg.methods.evaluation import fitting, with_length
from epg.methods.shards import find_family, make_plan
from epg.parts.artefact import LossArtefact
from epg.parts.families.base import Simulator, Task
from epg.parts.families.mujoco_family import MujocoFamily
from epg.parts.policy import draw_noise
from epg.words.keys import Key, Split, Stream, lifetime_key, stream_key
from epg.words.runtime import COMPILER
from epg.words.settings import Settings, require

MOST_STAGES = 20
_compile = partial(jax.jit, compiler_options=COMPILER)


@dataclass(frozen=True)
class Teacher:
    """What trains the filmed policy."""

    label: str
    """Name for people."""
    settings: Settings
    """Of its lifetime and policy."""
    learner: Learner
    """What turns experience into updates."""
    phi: np.ndarray
    """Loss parameters; empty for a hand-made learner."""


@dataclass(frozen=True)
class Take:
    """One episode with the policy of one stage."""

    update: int
    """Updates that the policy had learnt from."""
    gained: float
    """Return of the episode."""
    terminated: bool
    """Whether the task ended it, not the time limit."""
    poses: np.ndarray
    """Positions before the first step and after each, [steps + 1, nq]."""


@dataclass(frozen=True)
class Film:
    """A lifetime, and the episodes at its stages: all with the same first state and the same action noise."""

    family: MujocoFamily
    """Where it took place."""
    task: Task
    """In plain numbers."""
    final: float
    """Mean return of the scoring trajectories."""
    takes: tuple[Take, ...]
    """One per stage, in order."""
    trail: np.ndarray
    """Positions after every step of training, [steps, nq]; not a number where the physics exploded."""
    restarts: np.ndarray
    """Whether the model was put back after this step, [steps]."""

    @property
    def interval(self) -> float:
        """Return the seconds between two poses."""
        return self.family.fast.timestep * self.family.fast.substeps


def find_stage_family(name: str) -> MujocoFamily:
    """Load a family that has a body to film."""
    family = find_family(name)
    require(
        isinstance(family, MujocoFamily),
        f"{name} has no body that could be drawn: choose a MuJoCo family (random-hopper, goal-ant, ...).",
    )
    assert isinstance(family, MujocoFamily)
    return family


def teach_with_loss(loss: LossArtefact, family: str, updates: int | None) -> Teacher:
    """Let an evolved loss train."""
    find_stage_family(family)
    settings, learner = fitting(loss, family)
    return Teacher("evolved loss", with_length(settings, updates), learner, loss.phi)


def teach_by_hand(settings: Settings, name: str, family: str) -> Teacher:
    """Let PPO or REINFORCE train."""
    learner = hand_made(name, settings, find_stage_family(family).spaces)
    return Teacher(name.upper(), settings, learner, np.zeros(0, np.float32))


def film(teacher: Teacher, family: str, seed: int, number: int, stages: int) -> Film:
    """Train a fresh policy on held-out task `number` and record episodes with it from its first to its last update.

    It is the lifetime that `learn` and `compare` run on this task with this seed; the episodes begin and
    draw their noise as its first scoring trajectory does, so that the last one is that trajectory.
    """
    require(2 <= stages <= MOST_STAGES, f"stages must lie between 2 and {MOST_STAGES}, not {stages}.")
    require(0 <= number < 2**31, f"task must lie in [0, 2^31), not {number}.")
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), not {seed}.")
    filmed = recorded(find_stage_family(family))
    plan = make_plan(teacher.settings, teacher.learner, filmed)
    key = lifetime_key(seed, Split.HELD_OUT, 0, number)
    task = jax.jit(filmed.sample)(stream_key(key, Stream.TASK))
    moments = np.unique(np.linspace(0, plan.lifetime.updates, stages).round().astype(int)).tolist()
    actors: list[Acting] = []
    driver = HostDriver(plan, filmed)

    def watch(index: int, students: Student) -> None:
        if index in moments:
            actors.append(jax.tree.map(lambda leaf: leaf[0], driver.actors(students)))

    tasks = jax.tree.map(lambda leaf: leaf[None], task)
    control = Control(jnp.asarray(teacher.phi)[None], jnp.zeros(()))
    outcome = driver.run(key[None], tasks, control, watch)
    (recorder,) = filmed.recorders
    episode = jax.random.split(stream_key(key, Stream.SCORE), plan.lifetime.scoring_episodes)[0]
    return Film(
        filmed,
        jax.tree.map(np.asarray, task),
        float(outcome.final_return[0]),
        tuple(roll(plan, filmed, actors, task, episode, moments)),
        np.concatenate(recorder.poses),
        np.concatenate(recorder.restarts),
    )


def roll(
    plan: Plan, family: MujocoFamily, actors: Sequence[Acting], task: Task, key: Key, updates: Sequence[int]
) -> list[Take]:
    """Run an episode with each actor: the same task, first state and action noise."""
    number, nq = len(actors), family.sizes.qpos
    actor = jax.tree.map(lambda *leaves: jnp.stack(leaves), *actors)
    # The keys of the drivers' scoring trajectories.
    begun, noise = (
        stream_key(key, Stream.RESET),
        draw_noise(stream_key(key, Stream.ACTION), plan.spaces, family.horizon),
    )
    plain = jax.tree.map(np.asarray, task)
    simulator = family.simulate([plain] * number)
    fresh = simulator.prepare(np.tile(np.asarray(family.fresh(begun, task)), (number, 1)))
    raw = simulator.begin(fresh)
    begin = _compile(jax.vmap(partial(first_row, plan, family), (None, 0)))
    select = _compile(jax.vmap(partial(choose, plan, family), (0, None, 0, None)))
    advance = _compile(jax.vmap(partial(react, plan, family), (0, None, 0, (0, 0, None))))
    row: Row = select(actor, task, begin(task, raw), noise[0])
    poses, rows = [raw[:, :nq]], []
    alive = np.ones(number, bool)
    for step in range(family.horizon):
        raw = simulator.advance(np.asarray(row.control), fresh, np.flatnonzero(alive))
        # The action after the last step is never taken.
        row = advance(actor, task, row, (raw, fresh, noise[min(step + 1, family.horizon - 1)]))
        seen = jax.tree.map(np.asarray, row)
        # What exploded has no position: it stays where it was.
        poses.append(np.where((seen.exploded | ~alive)[:, None], poses[-1], raw[:, :nq]))
        rows.append((np.where(alive, seen.reward, 0.0), alive & seen.terminated, alive))
        alive = alive & np.isnan(seen.ended)
        if not alive.any():
            break
    rewards, terminated, counted = (np.stack(column, axis=1) for column in zip(*rows, strict=True))
    return [
        Take(
            updates[index],
            float(rewards[index].sum()),
            bool(terminated[index].any()),
            np.stack([pose[index] for pose in poses[: 1 + counted[index].sum()]]),
        )
        for index in range(number)
    ]


class Recorder:
    """A simulator that writes down every position of its rows."""

    def __init__(self, simulator: Simulator, width: int) -> None:
        self.simulator, self.width = simulator, width
        self.poses: list[np.ndarray] = []
        self.restarts: list[np.ndarray] = []

    def prepare(self, fresh: np.ndarray) -> np.ndarray:
        """Prepare."""
        return self.simulator.prepare(fresh)

    def begin(self, fresh: np.ndarray) -> np.ndarray:
        """Begin."""
        return self.simulator.begin(fresh)

    def advance(self, control: np.ndarray, fresh: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Advance, and write down."""
        raw = self.simulator.advance(control, fresh, rows)
        # Physics that exploded has no position.
        self.poses.append(np.where(raw[:, -1:] > 0, raw[:, : self.width], np.nan))
        self.restarts.append(np.zeros(len(raw), bool))
        return raw

    def repeat(self, times: int) -> Simulator:
        """Return a simulator that is not recorded: scoring is no part of the lifetime."""
        return self.simulator.repeat(times)

    def restart(self, ended: np.ndarray, fresh: np.ndarray) -> None:
        """Restart, and write down."""
        self.restarts[-1] |= ended
        self.simulator.restart(ended, fresh)


@dataclass(frozen=True, kw_only=True)
class Recorded(MujocoFamily):
    """A family whose simulators are recorded."""

    recorders: list[Recorder] = field(default_factory=list)
    """In the order in which they were made."""

    def simulate(self, tasks: Sequence[Task]) -> Any:
        """Build a simulator and record it; only the first, which is the lifetime's."""
        simulator = super().simulate(tasks)
        if self.recorders:
            return simulator
        self.recorders.append(Recorder(simulator, self.sizes.qpos))
        return self.recorders[0]


def recorded(family: MujocoFamily) -> Recorded:
    """Return the same family, recorded."""
    return Recorded(**{it.name: getattr(family, it.name) for it in fields(family)})
