"""Compare `fast` physics with `reference`: how far states drift, and whether a policy's return is the same.

.venv/bin/python tools/fast_physics.py [FAMILY ...]     writes the table of docs/physics.md, about 10 minutes for all

Drift: the same tasks, first states and random actions in both; the median over 64 lifetimes of the largest difference
of a generalized position. Return: policies trained by PPO in fast physics on 32 training tasks, each then run for
16 episodes in both, from the same first states and with the same action noise; the 95 % interval of the paired
difference of the tasks' mean returns.
"""

import sys
from dataclasses import replace
from pathlib import Path

from epg.core.runtime import use_single_thread

use_single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from epg.core.rng import Split  # noqa: E402
from epg.core.types import MetaParams  # noqa: E402
from epg.evaluation.statistics import bootstrap  # noqa: E402
from epg.evolution.task_sampling import task_sampler  # noqa: E402
from epg.families.base import unstack  # noqa: E402
from epg.families.mujoco.base import MujocoFamily  # noqa: E402
from epg.families.registry import find_family  # noqa: E402
from epg.learners.registry import policy_gradient  # noqa: E402
from epg.lifetime.batch import inner_config  # noqa: E402
from epg.lifetime.host_driver import HostDriver  # noqa: E402
from epg.policies.mlp import MlpPolicy  # noqa: E402
from epg.recipes import ppo_settings, preset, recipe_of  # noqa: E402

FAMILIES = (
    "random-hopper",
    "random-walker",
    "random-reacher",
    "directional-hopper",
    "directional-half-cheetah",
    "goal-ant",
    "fetch-reach",
)
PAGE = Path("docs/physics.md")
MARK = "<!-- the table below is written by tools/fast_physics.py -->"
ROWS, EPISODES, MOMENTS = 32, 16, (5, 20)


def drift(family: MujocoFamily) -> list[float]:
    """Return the median drift after 5 and 20 control intervals."""
    tasks, keys = draw(family, 64)
    first = np.asarray(jax.vmap(family.initial_state)(keys, tasks))
    paths = []
    for physics in (family, family.reference):
        rng, simulator, path = np.random.default_rng(0), physics.simulate(unstack(tasks, 64)), []
        states = simulator.prepare(first)
        readout = simulator.begin(states)
        for _ in range(max(MOMENTS)):
            action = rng.normal(size=(64, family.spaces.action)).astype(np.float32)
            ctrl = np.asarray(jax.vmap(family.to_ctrl)(jnp.asarray(readout), action, tasks))
            readout = simulator.advance(ctrl, states)
            path.append(readout[:, : family.sizes.qpos])
        paths.append(path)
    return [float(np.median(np.abs(paths[0][at - 1] - paths[1][at - 1]).max(axis=1))) for at in MOMENTS]


def draw(family: MujocoFamily, rows: int) -> tuple:
    """Draw training tasks and keys."""
    return jax.jit(jax.vmap(task_sampler(family, 1, Split.TRAIN), (0, None)))(jnp.arange(rows), jnp.int32(0))


def agreement(family: MujocoFamily) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean return of each task's policy, in fast and in reference physics."""
    laptop = preset(family.name, "laptop")
    settings = ppo_settings(laptop, recipe_of(family.name).tuned_ppo(laptop.lifetime.steps), None, has_stats=False)
    policy = MlpPolicy(settings.policy, family.spaces)
    config = inner_config(settings, policy_gradient("ppo", settings, family.spaces, policy), policy, family, None)
    tasks, keys = draw(family, ROWS)
    meta, kept = MetaParams(jnp.zeros((ROWS, 0)), jnp.float32(0), jnp.zeros((ROWS, 0))), []
    driver = HostDriver(config, family)
    driver.run(keys, tasks, meta, lambda _, learners: kept.append(driver.actors(learners)))
    many = replace(config, lifetime=replace(config.lifetime, scoring_episodes=EPISODES))
    returns = []
    for physics in (family, family.reference):
        scoring = HostDriver(many, physics)
        returns.append(scoring.score(scoring.stepper.batch(keys, tasks), kept[-1]).returns.mean(axis=1))
    return returns[0], returns[1]


def main() -> None:
    """Measure and write the table."""
    lines = [
        "| family | drift after 5 steps | 20 steps | return, fast | reference | difference (95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for name in sys.argv[1:] or FAMILIES:
        family = find_family(name)
        assert isinstance(family, MujocoFamily)
        after = drift(family)
        fast, reference = agreement(family)
        gap = bootstrap(fast - reference, np.mean)
        lines.append(
            f"| {name} | {after[0]:.3f} | {after[1]:.3f} | {fast.mean():.1f} | {reference.mean():.1f} "
            f"| {gap.value:+.1f} ({gap.low:+.1f} to {gap.high:+.1f}) |"
        )
        print(lines[-1], flush=True)
    if len(sys.argv) == 1:
        text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
        PAGE.write_text(text + MARK + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
