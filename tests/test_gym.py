"""Families as Gymnasium environments: Gymnasium's checker passes, and they are what lifetimes simulate."""

import subprocess
import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from epg.core.errors import BadInput
from epg.core.runtime import jit
from epg.envs.env import environment_id
from epg.evaluation.check_rollouts import CheckedFamily
from epg.families.base import HostFamily, SimStep, unstack
from epg.families.mujoco.direction import Direction
from epg.families.registry import REGISTRY, find_family
from epg.lifetime.env_step import Actor
from epg.lifetime.host_stepper import Draws, HostStepper
from epg.policies.open_loop import OpenLoopPolicy

UNBOUNDED = "ignore:.*A Box observation space (min|max)imum value is -?infinity"  # as those of Gymnasium's own MuJoCo


def make(family: str, **options: Any) -> gymnasium.Env:
    """Make a family's environment without the wrappers."""
    return gymnasium.make(environment_id(family), **options).unwrapped


def rollout(environment: gymnasium.Env, actions: np.ndarray, **reset: Any) -> list[np.ndarray]:
    """Return the first observation and the results of all steps, until the end."""
    first, _ = environment.reset(**reset)
    results = [first]
    for action in actions:
        seen, reward, terminated, truncated, _ = environment.step(action)
        results.append(np.array([*seen, reward, terminated, truncated], np.float32))
        if terminated:
            break
    return results


def alike(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_family_is_registered_as_it_says_of_itself() -> None:
    registered = {name for name in gymnasium.registry if name.startswith("epg/")}
    assert registered == {environment_id(name) for name in REGISTRY}
    for name in REGISTRY:
        family = find_family(name)
        limit = family.horizon if getattr(family, "resets", True) else None
        assert environment_id(name).endswith(f"-v{family.version - 1}")
        assert gymnasium.spec(environment_id(name)).max_episode_steps == limit
    assert environment_id("random-hopper") == "epg/RandomHopper-v0"
    assert environment_id("directional-half-cheetah") == "epg/DirectionalHalfCheetah-v0"


@pytest.mark.filterwarnings(UNBOUNDED)
@pytest.mark.parametrize("family", REGISTRY)
def test_gymnasium_finds_no_fault(family: str) -> None:
    check_env(make(family), skip_render_check=True)


HOSTED = [name for name in REGISTRY if isinstance(find_family(name), HostFamily)]
ROUNDING = {"fetch-reach": (5e-6, 3e-4)}
"""Of observation and reward (metres), and of the simulator's readout (velocities, too).

The sums of fetch-reach's kinematics, a metre in size, are rounded otherwise when compiled for a batch: by 2.4e-7 in
what is seen of a state and in where the arm is pulled to. In 50 steps that grew to 1.1e-6 and 5.6e-5, whatever the
actions (two seeds, both clocks): bounded by about five times as much. All other families are exact.
"""


@pytest.mark.parametrize("name", [*HOSTED, "random-hopper@reference", "goal-ant@reference", "fetch-reach@reference"])
def test_rollouts_are_rows_of_the_simulator(name: str, rng: np.random.Generator) -> None:
    """The same tasks, first states and actions in a batch of three, interpreted by the family's own functions."""
    family, (name, _, physics) = find_family(name), name.partition("@")
    tasks = jax.vmap(family.sample)(jax.random.split(jax.random.key(1), 3))
    rows = unstack(tasks, 3)
    seen_within, read_within = ROUNDING.get(name, (0.0, 0.0))
    actions = rng.normal(size=(40, 3, family.spaces.action)).astype(np.float32)
    states = np.asarray(jit(jax.vmap(family.initial_state))(jax.random.split(jax.random.key(2), 3), tasks))
    simulator = family.simulate(rows)
    states = simulator.prepare(states)
    readout = simulator.begin(states)
    to_ctrl, step_result = jit(jax.vmap(family.to_ctrl)), jit(jax.vmap(family.step_result))
    first = jit(jax.vmap(family.observation))(readout, tasks)
    environments = [make(name, task=task._asdict(), physics=physics or "fast") for task in rows]
    for row, environment in enumerate(environments):
        environment.reset(seed=0)
        np.testing.assert_allclose(
            environment._runner.begin_at([0], states[row : row + 1])[0], first[row], rtol=0, atol=seen_within
        )
    alive = [True] * 3
    for action in actions:
        after = simulator.advance(np.asarray(to_ctrl(readout, action, tasks)), states)
        result = step_result(SimStep(readout, action, after, states, jnp.zeros(3)), tasks)
        for row, environment in enumerate(environments):
            if alive[row]:
                seen, reward, terminated, truncated, info = environment.step(action[row])
                runner = environment._runner
                ours = runner.stepper.packing.column(runner.packed, "readout")[0]
                np.testing.assert_allclose(ours, result.readout[row], rtol=0, atol=read_within)
                qpos = after[row, : family.sizes.qpos]
                np.testing.assert_allclose(runner.positions().astype(np.float32), qpos, rtol=0, atol=read_within)
                np.testing.assert_allclose(seen, result.next_observation[row], rtol=0, atol=seen_within)
                np.testing.assert_allclose(reward, result.reward[row], rtol=0, atol=seen_within)
                assert (terminated, truncated, info["diverged"]) == (bool(result.terminated[row]), False, False)
                alive[row] = not terminated
        readout = np.asarray(after)


@pytest.mark.parametrize("name", [*HOSTED, "random-hopper@reference", "fetch-reach@reference"])
def test_a_rollout_is_the_host_drivers_loop_bit_for_bit(name: str, rng: np.random.Generator) -> None:
    """HostStepper.steps with given actions, all of them at once, against one call of `step` for each."""
    family, (name, _, physics) = find_family(name), name.partition("@")
    environment, actions = make(name, task_seed=5, physics=physics or "fast"), []
    environment.reset(seed=1)
    first = np.asarray(family.initial_state(jax.random.key(9), environment.task))
    seen = [environment._runner.begin_at([0], first[None])[0]]
    for action in 2.0 * rng.normal(size=(40, family.spaces.action)).astype(np.float32):
        after, reward, terminated, truncated, info = environment.step(action)
        seen.append(np.array([*after, reward, terminated, truncated, info["diverged"]], np.float32))
        actions.append(action)
        if terminated:
            break
    stepper = HostStepper(OpenLoopPolicy(), family)
    batch = stepper.batch(jax.random.key(0)[None], jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], environment.task))
    states = batch.simulator.prepare(first[None])
    draws = Draws(jnp.asarray(np.stack(actions))[:, None], states[None])
    nobody = Actor((), jnp.zeros((1, 1)), jnp.ones((1, 1)))
    packed = np.stack([it.copy() for it in stepper.steps(batch, nobody, stepper.begin(batch, states), draws)])[:, 0]
    column = stepper.packing.column
    np.testing.assert_array_equal(seen[0], column(packed, "observation")[0])
    numbers = [column(packed, field)[1:] for field in ("reward", "terminated", "truncated", "diverged")]
    np.testing.assert_array_equal(
        np.stack(seen[1:]), np.column_stack([column(packed, "next_observation")[1:], *numbers])
    )


def test_each_reset_draws_a_task_unless_one_is_fixed(rng: np.random.Generator) -> None:
    environment, actions = make("random-hopper"), rng.uniform(-1, 1, (20, 3)).astype(np.float32)
    once, again = (environment.reset(seed=4)[1]["task"] for _ in range(2))
    assert once["gravity"] == again["gravity"]
    assert environment.reset()[1]["task"]["gravity"] != once["gravity"]
    assert once["mass"].shape == (4,)
    fixed = make("random-hopper", task_seed=7)
    masses = [fixed.reset()[1]["task"]["mass"] for _ in range(2)]
    assert np.array_equal(*masses)
    expected = find_family("random-hopper").sample(jax.random.key(7))
    assert np.array_equal(masses[0], expected.mass)
    # A task by its seed, as `info` gave it, as a record, and as lists: the same episode.
    ways = [{"task_seed": 7}, {"task": fixed.reset()[1]["task"]}, {"task": expected}]
    ways.append({"task": {name: np.asarray(it).tolist() for name, it in expected._asdict().items()}})
    runs = [rollout(environment, actions, seed=1, options=way) for way in ways]
    assert all(alike(runs[0], run) for run in runs)
    assert alike(runs[0], rollout(fixed, actions, seed=1))
    assert not alike(runs[0], rollout(environment, actions, seed=1, options={"task_seed": 8}))


def test_physics_is_fast_or_reference(rng: np.random.Generator) -> None:
    actions = rng.uniform(-1, 1, (10, 3)).astype(np.float32)
    fast, reference = (
        rollout(make("random-hopper", task_seed=0, physics=it), actions, seed=0) for it in ("fast", "reference")
    )
    assert np.array_equal(fast[0], reference[0])
    assert not np.array_equal(fast[-1], reference[-1])
    assert np.allclose(fast[5], reference[5], atol=0.2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"task": {"gravity": 1.0}},
            r"a task of random-hopper consists of gravity, mass, thickness, friction, not of gravity\.",
        ),
        ({"task": Direction(np.float32(1))}, r"a task of random-hopper is a record of numbers like"),
        ({"task": "easy"}, r"a task of random-hopper is a record of numbers like"),
        ({"task_seed": -1}, r"task_seed must be a whole number from 0 to 4294967295, not -1\."),
        ({"task_seed": 0.5}, r"task_seed must be a whole number"),
        ({"task_seed": 1, "task": {}}, r"chosen by 'task' or by 'task_seed', not by 'task\w*' and 'task"),
        ({"goal": 3}, r"chosen by 'task' or by 'task_seed', not by 'goal'\."),
    ],
)
def test_a_bad_task_is_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make("random-hopper").reset(seed=0, options=options)
    if "goal" not in options:
        with pytest.raises(ValueError, match=sentence):
            make("random-hopper", **options)


def test_a_task_of_wrong_numbers_is_a_sentence() -> None:
    environment = make("random-hopper")
    task = environment.reset(seed=0)[1]["task"]
    for wrong in ({"mass": np.ones(3)}, {"gravity": np.nan}, {"mass": "heavy"}):
        with pytest.raises(ValueError, match="a task of random-hopper"):
            environment.reset(options={"task": task | wrong})
    with pytest.raises(ValueError, match="random-hopper cannot be simulated with this task"):
        environment.reset(options={"task": task | {"thickness": -np.ones(4)}})
    assert environment.reset(options={"task": task})[0].shape == (11,)


def test_a_task_that_its_owner_changes_in_place_is_another_task() -> None:
    environment = make("random-hopper")
    task = environment.reset(seed=0)[1]["task"]
    results = []
    for _ in range(2):
        environment.reset(seed=0, options={"task": task})
        results.append(environment.step(np.ones(3, np.float32))[0])
        task["mass"] *= 2.0
    assert not np.array_equal(*results)


def test_what_is_not_offered_is_a_sentence() -> None:
    for family, options, sentence in (
        ("random-hopper", {"physics": "slow"}, "physics must be 'fast' or 'reference', not 'slow'"),
        ("point-goal", {"physics": "reference"}, "only MuJoCo families have reference physics"),
        ("point-goal", {"render_mode": "rgb_array"}, "point-goal cannot be rendered as 'rgb_array'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            make(family, **options)
    environment = make("random-hopper")
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(np.zeros(3))
    environment.reset(seed=0)
    with pytest.raises(ValueError, match=r"an action has the shape \(3,\), not \(2,\)\."):
        environment.step(np.zeros(2))


@pytest.mark.parametrize("family", ["random-hopper", "random-pendulum"])
def test_an_action_that_is_no_number_ends_the_episode(family: str) -> None:
    environment = make(family)
    first, _ = environment.reset(seed=0)
    seen, reward, terminated, truncated, info = environment.step(np.full(environment.action_space.shape, np.nan))
    assert np.array_equal(seen, first)
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"diverged": True})
    environment.reset(seed=0)
    assert environment.step(np.full(environment.action_space.shape, 1e6))[2] is False  # only clipped


@pytest.mark.parametrize("name", sorted({*REGISTRY} - {*HOSTED}))
def test_a_jax_family_is_the_same_functions(name: str) -> None:
    family, environment = find_family(name), make(name, task_seed=3)
    _, info = environment.reset(seed=0)
    task, state, step = (
        family.sample(jax.random.key(3)),
        jax.tree.map(lambda leaf: leaf[0], environment._runner.state),
        jax.jit(family.step),
    )
    jax.tree.map(np.testing.assert_array_equal, info["task"], task._asdict())
    for action in CheckedFamily(family).rows().actions[:40, 0]:
        state, reward, terminated = step(state, action, task)
        result = environment.step(np.asarray(action))
        assert np.allclose(result[0], family.observe(state, task), atol=1e-5)
        assert np.isclose(result[1], reward, atol=1e-5)
        assert result[2:4] == (bool(terminated), False)
        if terminated:
            break


def test_the_time_limit_is_the_horizon() -> None:
    environment, steps, truncated = gymnasium.make("epg/RandomReacher-v0"), 0, False
    environment.reset(seed=0)
    while not truncated:
        *_, terminated, truncated, _ = environment.step(np.zeros(2, np.float32))
        steps += 1
        assert not terminated
    assert steps == 50


def test_vectors_of_them_run() -> None:
    vector = gymnasium.make_vec("epg/RandomReacher-v0", num_envs=3)
    _, info = vector.reset(seed=0)
    assert len({tuple(lengths) for lengths in info["task"]["length"]}) == 3
    assert vector.step(np.zeros((3, 2), np.float32))[0].shape == (3, 10)
    vector.close()


def test_a_picture_shows_the_state() -> None:
    from epg.viz.camera import find_backend

    try:
        find_backend()
    except BadInput as reason:
        pytest.skip(str(reason))
    environment = gymnasium.make("epg/RandomHopper-v0", render_mode="rgb_array", task_seed=1)
    environment.reset(seed=0)
    upright = environment.render()
    assert (upright.shape, upright.dtype) == ((240, 320, 3), np.uint8)
    for _ in range(12):
        environment.step(np.ones(3, np.float32))
    assert (upright != environment.render()).mean() > 0.01


@pytest.mark.parametrize(
    "program",
    [
        "import epg.envs, gymnasium",
        "import epg, gymnasium; import epg.envs",
        "import gymnasium, epg",
        "import gymnasium; gymnasium.make('epg:epg/PointGoal-v0')",
        "import epg, gymnasium; gymnasium.make('epg.envs:epg/PointGoal-v0')",
    ],
)
def test_importing_registers_them(program: str) -> None:
    count = "print(sum(name.startswith('epg/') for name in gymnasium.registry))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", f"{program}\n{count}"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, f"{len(REGISTRY)}\n"), run.stderr


def test_importing_loads_neither_gymnasium_nor_jax_and_patches_nothing() -> None:
    program = """
import sys
finders = list(sys.meta_path)
import epg
print('gymnasium' in sys.modules, sys.meta_path != finders)
import gymnasium
print('jax' in sys.modules)"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False", "False", "False"], run.stderr  # nor does it change any other library
