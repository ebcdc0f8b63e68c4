"""The MuJoCo families: Gymnasium's environments as oracles, drift of the fast clock, tasks and their distributions."""

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import scipy.stats
from samples import TASKS, tasks_of, uniform

from epg.families.base import SimStep, unstack
from epg.families.mujoco import ant, half_cheetah
from epg.families.mujoco.base import MujocoFamily
from epg.families.registry import REGISTRY, find_family

pytestmark = pytest.mark.usefixtures("strict_dtypes")

STOCK = {
    "random-hopper": "Hopper-v5",
    "random-walker": "Walker2d-v5",
    "directional-half-cheetah": "HalfCheetah-v5",
    "goal-ant": "Ant-v5",
    "random-reacher": "Reacher-v5",
}
MUJOCO = [name for name in REGISTRY if isinstance(find_family(name), MujocoFamily)]


def begin_at(simulator, pose: np.ndarray) -> np.ndarray:
    """Begin with every row at this pose, in double precision, and return it as a batch."""
    states = np.tile(pose, (len(simulator.models), 1))
    simulator.begin(states)
    simulator.state[:, 1:] = states
    return states


def pose_of(environment) -> np.ndarray:
    """Return positions and velocities of a Gymnasium environment."""
    return np.concatenate([environment.data.qpos, environment.data.qvel])


# --- reference mode is Gymnasium ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", STOCK)
def test_reference_states_are_gymnasiums(name, seed):
    # 200 random actions; no episode is ended, so that falling, lying and tumbling bodies are compared too.
    family, environment = find_family(f"{name}@reference"), gymnasium.make(STOCK[name]).unwrapped
    environment.reset(seed=seed)
    simulator, rng = family.simulate([family.stock_task] * 2), np.random.default_rng(seed)
    states, first = begin_at(simulator, pose_of(environment)), pose_of(environment)
    for _ in range(200):
        action = rng.uniform(-1, 1, family.spaces.action)
        environment.step(action)
        simulator.advance(np.tile(action, (2, 1)), states)
        np.testing.assert_allclose(simulator.state[:, 1:], np.tile(pose_of(environment), (2, 1)), rtol=0, atol=1e-9)
    assert np.abs(pose_of(environment) - first).max() > 1.0
    environment.close()


@pytest.mark.parametrize("name", ["random-hopper", "random-walker", "directional-half-cheetah", "goal-ant"])
def test_observation_is_gymnasiums(name):
    family = find_family(f"{name}@reference")
    options = {"include_cfrc_ext_in_observation": False} if name == "goal-ant" else {}
    environment = gymnasium.make(STOCK[name], **options).unwrapped
    seen, _ = environment.reset(seed=3)
    simulator, rng = family.simulate([family.stock_task]), np.random.default_rng(3)
    observation = jax.jit(family.observation)
    states = begin_at(simulator, pose_of(environment))
    readout = simulator.begin(states.astype(np.float32))
    simulator.state[:, 1:] = states
    for _ in range(50):
        np.testing.assert_allclose(observation(readout[0], family.stock_task), seen, rtol=1e-6, atol=1e-6)
        action = rng.uniform(-1, 1, family.spaces.action)
        seen, *_ = environment.step(action)
        readout = simulator.advance(action[None], states)
    environment.close()


def test_reacher_observation_is_gymnasiums_without_the_lag():
    # Reacher-v5 reads the fingertip one substep late; of a state at rest both say the same.
    family, environment = find_family("random-reacher"), gymnasium.make("Reacher-v5").unwrapped
    seen, _ = environment.reset(seed=0)
    simulator, rng = family.simulate([family.stock_task]), np.random.default_rng(0)
    for _ in range(20):
        qpos = np.concatenate([rng.uniform(-3, 3, 2), rng.uniform(-0.2, 0.2, 2)])
        environment.set_state(qpos, np.concatenate([rng.uniform(-5, 5, 2), np.zeros(2)]))
        seen = environment._get_obs()
        readout = simulator.begin(pose_of(environment)[None].astype(np.float32))
        np.testing.assert_allclose(
            family.observation(jnp.asarray(readout[0]), family.stock_task), seen, rtol=1e-5, atol=1e-6
        )
    environment.close()


@pytest.mark.parametrize(
    ("name", "sign"),
    [("random-hopper", 1), ("random-walker", 1), ("directional-hopper", -1), ("directional-half-cheetah", -1)],
)
def test_reward_is_gymnasiums_velocity(name, sign):
    family, stock = find_family(f"{name}@reference"), STOCK.get(name, "Hopper-v5")
    task = family.stock_task if sign > 0 else family.stock_task._replace(sign=jnp.float32(-1.0))
    environment = gymnasium.make(stock).unwrapped
    environment.reset(seed=0)
    simulator, rng = family.simulate([task]), np.random.default_rng(0)
    states, reward_and_done = begin_at(simulator, pose_of(environment)), jax.jit(family.reward_and_done)
    for _ in range(10):
        action = rng.uniform(-1, 1, family.spaces.action).astype(np.float32)
        *_, info = environment.step(action)
        readout = simulator.advance(action[None].astype(np.float64), states)
        cost = 0.05 * np.square(action).sum() if "cheetah" in name else 0.0
        reward, _ = reward_and_done(family.sim_state(jnp.asarray(readout[0])), jnp.asarray(action), task)
        np.testing.assert_allclose(reward, sign * info["x_velocity"] - cost, rtol=1e-4, atol=1e-4)
    environment.close()


# --- the fast clock -------------------------------------------------------------------------------------------------

# Largest drift of any position (metres, radians) after 5 and after 20 actions from the same state, over 8 random
# action sequences: measured, then bounded by about twice as much. Contacts make it grow: it tells how long a rollout
# may be compared step by step, not how well a policy does.
DRIFT = {
    "random-hopper": (0.012, 0.07),  # measured: 0.0056, 0.033
    "random-walker": (0.13, 0.5),  # 0.066, 0.25
    "random-reacher": (0.13, 0.25),  # 0.065, 0.12: a joint's angle, at up to 30 rad/s
    "directional-half-cheetah": (0.2, 0.7),  # 0.097, 0.36
    "goal-ant": (0.3, 3.4),  # 0.14, 1.7: tumbling by then
    "fetch-reach": (0.008, 0.04),  # 0.0038, 0.020
}


@pytest.mark.parametrize("name", DRIFT)
def test_fast_clock_drifts_little(name):
    drift = drift_of(find_family(name))
    assert (drift <= np.array(DRIFT[name])).all(), drift
    assert (drift > 1e-7).all()  # it is another clock


def drift_of(family, rows: int = 8) -> np.ndarray:
    """Return the largest difference of positions after 5 and after 20 actions."""
    task, rng = family.stock_task, np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0), rows)
    states = np.asarray(jax.vmap(family.initial_state, (0, None))(keys, task))
    actions = jnp.asarray(rng.uniform(-1, 1, (20, rows, family.spaces.action)), jnp.float32)
    to_ctrl = jax.jit(jax.vmap(family.to_ctrl, (0, 0, None)))
    positions = []
    for it in (family, family.reference):
        simulator, path = it.simulate([task] * rows), []
        readout = simulator.begin(states)
        for action in actions:
            readout = simulator.advance(np.asarray(to_ctrl(readout, action, task)), states)
            path.append(simulator.state[:, 1 : 1 + family.sizes.qpos].copy())
        positions.append(np.stack(path))
    return np.abs(positions[0] - positions[1]).max(axis=(1, 2))[[4, 19]]


# --- tasks ----------------------------------------------------------------------------------------------------------


def assert_independent(values: np.ndarray) -> None:
    """Refuse columns that tell something of one another."""
    correlation = np.corrcoef(values.T).reshape(values.shape[1], -1)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 4.5 / np.sqrt(len(values))


BODY = {"gravity": (2, 20), "mass": (0.5, 2), "thickness": (0.5, 2), "friction": (0.5, 2)}
YAW = (-np.pi, np.pi)
QUANTITIES = {
    "random-hopper": BODY,
    "random-walker": BODY,
    "random-reacher": {"length": (0.5, 1.5)},
    "goal-ant": {"bearing": ant.CIRCLE, "yaw": YAW},
    "goal-ant-right": {"bearing": ant.RIGHT, "yaw": YAW},
    "goal-ant-left": {"bearing": ant.LEFT, "yaw": YAW},
    "goal-ant-no-reset": {"bearing": ant.CIRCLE, "yaw": YAW},
    "fetch-reach": {"offset": (-0.15, 0.15)},
}
SIGNED = ["directional-hopper", "directional-half-cheetah", "signed-half-cheetah"]


def test_no_quantity_is_left_out():
    assert {*QUANTITIES, *SIGNED} == {*MUJOCO}
    for name, bounds in QUANTITIES.items():
        assert find_family(name).stock_task._fields == (*bounds,)


@pytest.mark.parametrize("name", QUANTITIES)
def test_tasks_have_the_stated_distribution(name):
    # Kolmogorov-Smirnov on each component, 2000 tasks, fixed keys: a bound wrong by 5 % of the range gives p < 1e-4.
    tasks = tasks_of(find_family(name))
    for field, bounds in QUANTITIES[name].items():
        for column in np.asarray(getattr(tasks, field)).reshape(TASKS, -1).T:
            assert scipy.stats.kstest(column, uniform(*bounds)).pvalue > 1e-3
    assert_independent(np.column_stack([np.asarray(leaf).reshape(TASKS, -1) for leaf in tasks]))


def on_the_disc(states: np.ndarray) -> np.ndarray:
    """Return the polar coordinates in which a target uniform on the disc of radius 0.2 is uniform."""
    x, y = states[:, 2:4].T
    return np.column_stack([(x**2 + y**2) / 0.2**2, np.arctan2(y, x) / (2 * np.pi) + 0.5])


TINY, SMALL = uniform(-5e-3, 5e-3), uniform(-0.1, 0.1)
STANCE = [0.0, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0]
STARTS = {
    "random-hopper": [(lambda states: states - np.eye(12)[1] * 1.25, TINY)],
    "directional-hopper": [(lambda states: states - np.eye(12)[1] * 1.25, TINY)],
    "random-walker": [(lambda states: states - np.eye(18)[1] * 1.25, TINY)],
    "directional-half-cheetah": [
        (lambda states: states[:, :9], SMALL),
        (lambda states: states[:, 9:], scipy.stats.norm(scale=0.1).cdf),
    ],
    "random-reacher": [
        (lambda states: states[:, :2], SMALL),
        (on_the_disc, uniform(0, 1)),
        (lambda states: states[:, 4:6], TINY),
    ],
    "goal-ant": [
        (lambda states: states[:, :15] - STANCE, SMALL),
        (lambda states: states[:, 15:], scipy.stats.norm(scale=0.1).cdf),
    ],
}


@pytest.mark.parametrize("name", STARTS)
def test_episodes_start_with_the_stated_distribution(name):
    family, keys = find_family(name), jax.random.split(jax.random.key(5), TASKS)
    states = np.asarray(jax.jit(jax.vmap(family.initial_state, (0, None)))(keys, family.stock_task), np.float64)
    parts = [(of(states), cdf) for of, cdf in STARTS[name]]
    for values, cdf in parts:
        for column in values.T:
            assert scipy.stats.kstest(column, cdf).pvalue > 1e-3
    assert_independent(np.column_stack([values for values, _ in parts]))


@pytest.mark.parametrize("name", SIGNED)
def test_both_signs_occur_alike(name):
    family = find_family(name)
    signs = np.asarray(tasks_of(family).sign)
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert scipy.stats.binomtest(int((signs > 0).sum()), TASKS).pvalue > 1e-3
    for share, factor in ((0.0, 1.0), (0.49, 1.0), (0.5, -1.0), (0.99, -1.0)):
        np.testing.assert_array_equal(family.orbit(tasks_of(family), jnp.float32(share)).sign, factor * signs)


def goals_of(name: str) -> np.ndarray:
    """Return where the goals of 2000 tasks are."""
    return np.asarray(jax.vmap(ant.position)(tasks_of(find_family(name))))


def test_arcs_part_the_goals():
    for name in ("goal-ant", "goal-ant-right", "goal-ant-left"):
        np.testing.assert_allclose(np.linalg.norm(goals_of(name), axis=1), ant.DISTANCE, rtol=1e-5)
    assert (goals_of("goal-ant-right")[:, 0] > 0).all()
    assert (goals_of("goal-ant-left")[:, 0] < 0).all()
    assert 0.45 < (goals_of("goal-ant")[:, 0] > 0).mean() < 0.55


def seen_from_the_ant(tasks) -> np.ndarray:
    """Return the goal's bearing from where the ant looks at the start, in turns, by geometry."""
    x, y = np.asarray(jax.vmap(ant.position)(tasks)).T
    yaw = np.asarray(tasks.yaw)
    ahead, left = np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x
    return np.arctan2(left, ahead) / (2 * np.pi)


def test_the_task_feature_is_where_the_ant_sees_the_goal():
    family = find_family("goal-ant")
    tasks = tasks_of(family)
    ahead, left = np.asarray(jax.vmap(family.features)(tasks)).T
    apart = np.arctan2(left, ahead) / (2 * np.pi) - seen_from_the_ant(tasks)
    np.testing.assert_allclose(np.mod(apart + 0.5, 1.0), 0.5, atol=1e-5)
    np.testing.assert_allclose(ahead**2 + left**2, 1.0, rtol=1e-5)  # in units of its distance


def test_a_goal_on_the_line_is_ahead_or_behind():
    family = find_family("goal-ant@forward-backward")
    tasks = tasks_of(family)
    assert set(np.asarray(tasks.bearing).tolist()) == {0.0, 0.5}
    for share, moved in ((0.0, tasks.bearing), (0.49, tasks.bearing), (0.5, 0.5 - tasks.bearing)):
        after = family.orbit(tasks, jnp.float32(share))
        np.testing.assert_array_equal(after.bearing, moved)
        np.testing.assert_array_equal(after.yaw, 0.0)


ARCS = {
    "goal-ant": ant.CIRCLE,
    "goal-ant-right": ant.RIGHT,
    "goal-ant-left": ant.LEFT,
    "goal-ant-no-reset": ant.CIRCLE,
}


@pytest.mark.parametrize("name", ARCS)
def test_orbit_keeps_the_arc_and_turns_the_bearing(name):
    family, arc = find_family(name), ARCS[name]
    tasks = tasks_of(family)
    for share in (0.0, 0.37, 0.5, 1.0):
        after = family.orbit(tasks, jnp.float32(share))
        moved = np.asarray(after.bearing)
        assert arc[0] <= moved.min() < moved.max() <= arc[1]  # no goal of the other side, ever
        assert scipy.stats.kstest(moved, uniform(*arc)).pvalue > 1e-3
        assert scipy.stats.kstest(np.asarray(after.yaw), uniform(-np.pi, np.pi)).pvalue > 1e-3
        shift = np.mod(moved - np.asarray(tasks.bearing) - share * (arc[1] - arc[0]) + 1e-4, arc[1] - arc[0])
        np.testing.assert_allclose(shift, 1e-4, atol=1e-5)
        around = np.mod(seen_from_the_ant(after) - seen_from_the_ant(tasks) - share + 1e-4, 1.0)
        np.testing.assert_allclose(around, 1e-4, atol=1e-5)
    if arc == ant.CIRCLE:  # the goal has gone all the way, so the ant need not turn
        np.testing.assert_array_equal(family.orbit(tasks, jnp.float32(0.37)).yaw, tasks.yaw)


# --- only the task varies -------------------------------------------------------------------------------------------

OF_THE_TASK = {"goal-ant": slice(3, 7), "goal-ant-right": slice(3, 7), "goal-ant-left": slice(3, 7)}
OF_THE_TASK["goal-ant-no-reset"] = slice(3, 7)  # the yaw at the start is the task's


@pytest.mark.parametrize("name", MUJOCO)
def test_same_reset_key_starts_alike_and_only_the_task_varies(name):
    family, number = find_family(name), 6
    tasks = tasks_of(family, number)
    states = np.asarray(jax.vmap(family.initial_state, (None, 0))(jax.random.key(0), tasks))
    start = states.copy()
    start[:, OF_THE_TASK.get(name, slice(0))] = 0.0
    np.testing.assert_array_equal(start, np.tile(start[0], (number, 1)))
    first = np.asarray(family.initial_state(jax.random.key(1), jax.tree.map(lambda leaf: leaf[0], tasks)))
    assert np.array_equal(first, states[0]) == (name == "fetch-reach")  # whose episodes all begin alike

    simulator = family.simulate(unstack(tasks, number))
    readout = simulator.begin(states)
    to_ctrl, reward_and_done = jax.jit(jax.vmap(family.to_ctrl)), jax.jit(jax.vmap(family.reward_and_done))
    action = jnp.full((number, family.spaces.action), 0.5)
    for _ in range(3):
        readout = simulator.advance(np.asarray(to_ctrl(readout, action, tasks)), states)
    reward, _ = reward_and_done(jax.vmap(family.sim_state)(jnp.asarray(readout)), action, tasks)
    observed = np.asarray(jax.vmap(family.observation)(jnp.asarray(readout), tasks))
    later = np.column_stack([observed, np.asarray(reward)])
    kinds = len(np.unique(np.column_stack(jax.tree.leaves(tasks)), axis=0))  # two, if tasks are directions
    assert kinds > 1
    assert len(np.unique(later, axis=0)) == kinds


# --- ends and resets ------------------------------------------------------------------------------------------------


def one_step(family, task, *, x: float, age: float, height: float = 0.75):
    """Return the readout after a step that brings the ant to (x, 0), the reset state, and what the step means."""
    reset_state = family.initial_state(jax.random.key(0), task)
    before = family.initial_readout(reset_state)
    after = before.at[0].set(x).at[1].set(0.0).at[2].set(height)
    step = SimStep(before, jnp.zeros(8), after, reset_state, jnp.float32(age))
    return after, reset_state, family.step_result(step, task)


EAST = ant.Goal(bearing=jnp.float32(0.0), yaw=jnp.float32(0.0))


@pytest.mark.parametrize(
    ("name", "x", "height", "age", "terminated", "truncated", "reset"),
    [
        ("goal-ant", 5.0, 0.75, 10, False, False, False),
        ("goal-ant", 5.0, 0.75, 200, False, True, True),
        ("goal-ant", 9.5, 0.75, 10, False, False, False),
        ("goal-ant", 5.0, 0.2, 10, True, False, True),
        ("goal-ant", 5.0, 1.0, 200, True, False, True),
        ("goal-ant-no-reset", 5.0, 0.75, 199, False, False, False),
        ("goal-ant-no-reset", 5.0, 0.75, 200, False, True, False),
        ("goal-ant-no-reset", 5.0, 0.1, 10, False, False, False),
        ("goal-ant-no-reset", 9.1, 0.75, 10, True, False, True),
        ("goal-ant-no-reset", 9.1, 0.75, 200, True, False, True),
        ("goal-ant-no-reset", 8.9, 0.75, 10, False, False, False),
    ],
)
def test_ends_and_resets_of_goal_ant(name, x, height, age, terminated, truncated, reset):
    family = find_family(name)
    after, reset_state, result = one_step(family, EAST, x=x, age=age, height=height)
    ends = bool(result.terminated), bool(result.truncated), bool(result.reset)
    assert ends == (terminated, truncated, reset)
    np.testing.assert_array_equal(result.next_observation, family.observation(after, EAST))  # before any reset
    size = len(reset_state)
    np.testing.assert_array_equal(result.readout[:size], reset_state if reset else after[:size])


@pytest.mark.parametrize(
    ("name", "index", "ends", "goes_on"),
    [
        ("random-hopper", 1, (0.69, -1.0), (0.71, 5.0)),
        ("random-hopper", 2, (0.51, -0.51), (0.49, -0.49)),
        ("directional-hopper", 1, (0.69,), (0.71,)),
        ("directional-hopper", 2, (), (0.51, -2.0)),
        ("random-walker", 1, (0.79, 2.01), (0.81, 1.99)),
        ("random-walker", 2, (1.01, -1.01), (0.99, -0.99)),
        ("directional-half-cheetah", 2, (), (3.0, -3.0)),
        ("random-reacher", 0, (), (3.0, -3.0)),
    ],
)
def test_episodes_end_where_the_specification_says(name, index, ends, goes_on):
    family = find_family(name)
    task = family.stock_task
    readout = family.initial_readout(family.initial_state(jax.random.key(0), task))
    still = jnp.zeros(family.spaces.action)
    done = jax.jit(lambda readout: family.reward_and_done(family.sim_state(readout), still, task)[1])
    assert not done(readout)
    for value in ends:
        assert done(readout.at[index].set(value))
    for value in goes_on:
        assert not done(readout.at[index].set(value))


def test_goal_ant_is_rewarded_for_approach():
    # Velocity (3, 4) at (0, 10): towards the goal at (10, 0) that is (3 - 4) / sqrt(2).
    family = find_family("goal-ant")
    readout = jnp.zeros(family.readout_size).at[1].set(10.0).at[2].set(0.75)
    rate = family.sizes.qpos + family.sizes.qvel
    readout = readout.at[rate].set(3.0).at[rate + 1].set(4.0)
    reward, _ = family.reward_and_done(family.sim_state(readout), jnp.zeros(8), EAST)
    np.testing.assert_allclose(reward, -1 / np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(family.features(EAST._replace(bearing=jnp.float32(0.25))), [0.0, 1.0], atol=1e-6)


def test_reversed_motors_do_the_opposite_and_earn_as_forwards(rng):
    signed, directional = find_family("signed-half-cheetah"), find_family("directional-half-cheetah")
    readout = jnp.asarray(rng.normal(size=signed.readout_size), jnp.float32)
    action = jnp.asarray(2.0 * rng.normal(size=6), jnp.float32)
    forwards = directional.to_ctrl(readout, action, directional.stock_task)
    for sign in (1.0, -1.0):
        task = signed.stock_task._replace(sign=jnp.float32(sign))
        np.testing.assert_array_equal(signed.to_ctrl(readout, action, task), sign * forwards)
        np.testing.assert_array_equal(signed.observation(readout, task), directional.observation(readout, task))
        ours = signed.reward_and_done(signed.sim_state(readout), action, task)
        theirs = directional.reward_and_done(directional.sim_state(readout), action, directional.stock_task)
        np.testing.assert_array_equal(ours, theirs)


# --- the environment of the MAML paper ------------------------------------------------------------------------------


def centre_by_mujoco(model, pose, motion):
    """Return x and z of the centre of mass of the torso and all below it, and of its velocity."""
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = pose, motion
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    return data.subtree_com[1][[0, 2]], data.subtree_linvel[1][[0, 2]]


def test_the_centre_of_mass_and_its_velocity_are_mujocos(rng):
    family = find_family("directional-half-cheetah@maml")
    model = family.simulate([family.stock_task]).models[0]
    for pose, motion in rng.normal(size=(5, 2, 9)):
        place, velocity = centre_by_mujoco(model, pose, motion)
        given = (jnp.asarray(pose, jnp.float32),), (jnp.asarray(motion, jnp.float32),)
        found = jax.jvp(half_cheetah.centre_of_mass, *given)
        np.testing.assert_allclose(found, [place, velocity], rtol=1e-5, atol=1e-5)


def test_the_half_cheetah_of_maml_sees_and_earns_what_the_original_does(rng):
    """Observation: all but x, and the centre of mass. Reward: its velocity times the sign, less 0.05 |a|²."""
    family, action = find_family("directional-half-cheetah@maml"), rng.normal(size=6)
    task = jax.tree.map(lambda it: -it, family.stock_task)  # backwards
    simulator = family.simulate([task])
    pose, motion = rng.normal(size=(2, 9))
    place, velocity = centre_by_mujoco(simulator.models[0], pose, motion)
    readout = jnp.asarray(simulator.begin(np.concatenate([pose, motion])[None])[0], jnp.float32)
    seen = family.observation(readout, task)
    np.testing.assert_allclose(seen, [*pose[1:], *motion, place[0], 0.0, place[1]], rtol=1e-4, atol=1e-5)
    reward, done = family.reward_and_done(family.sim_state(readout), jnp.asarray(action, jnp.float32), task)
    cost = 0.05 * (np.clip(action, -1, 1) ** 2).sum()
    np.testing.assert_allclose(reward, -velocity[0] - cost, rtol=1e-4)
    assert not done
    assert (family.fast.interval, family.horizon) == (0.01, 200)
