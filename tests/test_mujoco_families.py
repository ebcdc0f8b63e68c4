"""The MuJoCo families: Gymnasium's environments as oracles, drift of the fast clock, tasks and their distributions."""

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import scipy.stats
from samples import TASKS, tasks_of, uniform

from epg.baselines.fixed_policy import turned
from epg.families import REGISTRY, ant, load_family
from epg.families.base import Step, unstack
from epg.families.mujoco.base import MujocoFamily
from epg.simulators.mujoco import model_path
from epg.settings import LossSettings, PolicySettings, SearchSettings, Settings

pytestmark = pytest.mark.usefixtures("strict_dtypes")

STOCK = {
    "random-hopper": "Hopper-v5",
    "random-walker": "Walker2d-v5",
    "directional-half-cheetah": "HalfCheetah-v5",
    "goal-ant": "Ant-v5",
    "random-reacher": "Reacher-v5",
}
MUJOCO = [name for name in REGISTRY if isinstance(load_family(name), MujocoFamily)]


def begin_at(simulator, pose: np.ndarray) -> np.ndarray:
    """Begin with every row at this pose, in double precision, and return it as a batch."""
    fresh = np.tile(pose, (len(simulator.models), 1))
    simulator.begin(fresh)
    simulator.state[:, 1:] = fresh
    return fresh


def pose_of(environment) -> np.ndarray:
    """Return positions and velocities of a Gymnasium environment."""
    return np.concatenate([environment.data.qpos, environment.data.qvel])


# --- reference mode is Gymnasium ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", STOCK)
def test_reference_states_are_gymnasiums(name, seed):
    # 200 random actions; no episode is ended, so that falling, lying and tumbling bodies are compared too.
    family, environment = load_family(f"{name}@reference"), gymnasium.make(STOCK[name]).unwrapped
    environment.reset(seed=seed)
    simulator, rng = family.simulate([family.stock_task] * 2), np.random.default_rng(seed)
    fresh, first = begin_at(simulator, pose_of(environment)), pose_of(environment)
    for _ in range(200):
        action = rng.uniform(-1, 1, family.spaces.action)
        environment.step(action)
        simulator.advance(np.tile(action, (2, 1)), fresh)
        np.testing.assert_allclose(simulator.state[:, 1:], np.tile(pose_of(environment), (2, 1)), rtol=0, atol=1e-9)
    assert np.abs(pose_of(environment) - first).max() > 1.0
    environment.close()


@pytest.mark.parametrize("name", ["random-hopper", "random-walker", "directional-half-cheetah", "goal-ant"])
def test_observation_is_gymnasiums(name):
    family = load_family(f"{name}@reference")
    options = {"include_cfrc_ext_in_observation": False} if name == "goal-ant" else {}
    environment = gymnasium.make(STOCK[name], **options).unwrapped
    seen, _ = environment.reset(seed=3)
    simulator, view, rng = family.simulate([family.stock_task]), jax.jit(family.view), np.random.default_rng(3)
    fresh = begin_at(simulator, pose_of(environment))
    raw = simulator.begin(fresh.astype(np.float32))
    simulator.state[:, 1:] = fresh
    for _ in range(50):
        np.testing.assert_allclose(view(raw[0], family.stock_task), seen, rtol=1e-6, atol=1e-6)
        action = rng.uniform(-1, 1, family.spaces.action)
        seen, *_ = environment.step(action)
        raw = simulator.advance(action[None], fresh)
    environment.close()


def test_reacher_observation_is_gymnasiums_without_the_lag():
    # Reacher-v5 reads the fingertip one substep late; of a state at rest both say the same.
    family, environment = load_family("random-reacher"), gymnasium.make("Reacher-v5").unwrapped
    seen, _ = environment.reset(seed=0)
    simulator, rng = family.simulate([family.stock_task]), np.random.default_rng(0)
    for _ in range(20):
        qpos = np.concatenate([rng.uniform(-3, 3, 2), rng.uniform(-0.2, 0.2, 2)])
        environment.set_state(qpos, np.concatenate([rng.uniform(-5, 5, 2), np.zeros(2)]))
        seen = environment._get_obs()
        raw = simulator.begin(pose_of(environment)[None].astype(np.float32))
        np.testing.assert_allclose(family.view(jnp.asarray(raw[0]), family.stock_task), seen, rtol=1e-5, atol=1e-6)
    environment.close()


@pytest.mark.parametrize(
    ("name", "sign"),
    [("random-hopper", 1), ("random-walker", 1), ("directional-hopper", -1), ("directional-half-cheetah", -1)],
)
def test_reward_is_gymnasiums_velocity(name, sign):
    family, stock = load_family(f"{name}@reference"), STOCK.get(name, "Hopper-v5")
    task = family.stock_task if sign > 0 else family.stock_task._replace(sign=jnp.float32(-1.0))
    environment = gymnasium.make(stock).unwrapped
    environment.reset(seed=0)
    simulator, rng = family.simulate([task]), np.random.default_rng(0)
    fresh, judge = begin_at(simulator, pose_of(environment)), jax.jit(family.judge)
    for _ in range(10):
        action = rng.uniform(-1, 1, family.spaces.action).astype(np.float32)
        *_, info = environment.step(action)
        raw = simulator.advance(action[None].astype(np.float64), fresh)
        cost = 0.05 * np.square(action).sum() if "cheetah" in name else 0.0
        reward, _ = judge(family.body(jnp.asarray(raw[0])), jnp.asarray(action), task)
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
    drift = drift_of(load_family(name))
    assert (drift <= np.array(DRIFT[name])).all(), drift
    assert (drift > 1e-7).all()  # it is another clock


def drift_of(family, rows: int = 8) -> np.ndarray:
    """Return the largest difference of positions after 5 and after 20 actions."""
    task, rng = family.stock_task, np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0), rows)
    fresh = np.asarray(jax.vmap(family.fresh, (0, None))(keys, task))
    actions = jnp.asarray(rng.uniform(-1, 1, (20, rows, family.spaces.action)), jnp.float32)
    steer = jax.jit(jax.vmap(family.steer, (0, 0, None)))
    positions = []
    for it in (family, family.reference):
        simulator, path = it.simulate([task] * rows), []
        raw = simulator.begin(fresh)
        for action in actions:
            raw = simulator.advance(np.asarray(steer(raw, action, task)), fresh)
            path.append(simulator.state[:, 1 : 1 + family.sizes.qpos].copy())
        positions.append(np.stack(path))
    return np.abs(positions[0] - positions[1]).max(axis=(1, 2))[[4, 19]]


# --- tasks ----------------------------------------------------------------------------------------------------------


def assert_independent(values: np.ndarray) -> None:
    """Refuse columns that tell something of one another."""
    correlation = np.corrcoef(values.T).reshape(values.shape[1], -1)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 4.5 / np.sqrt(len(values))


PHYSIQUE = {"gravity": (2, 20), "mass": (0.5, 2), "thickness": (0.5, 2), "friction": (0.5, 2)}
YAW = (-np.pi, np.pi)
QUANTITIES = {
    "random-hopper": PHYSIQUE,
    "random-walker": PHYSIQUE,
    "random-reacher": {"length": (0.5, 1.5)},
    "goal-ant": {"bearing": ant.CIRCLE, "yaw": YAW},
    "goal-ant-right": {"bearing": ant.RIGHT, "yaw": YAW},
    "goal-ant-left": {"bearing": ant.LEFT, "yaw": YAW},
    "goal-ant-no-reset": {"bearing": ant.CIRCLE, "yaw": YAW},
    "fetch-reach": {"offset": (-0.15, 0.15)},
}
DIRECTIONAL = ["directional-hopper", "directional-half-cheetah"]


def test_no_quantity_is_left_out():
    assert {*QUANTITIES, *DIRECTIONAL} == {*MUJOCO}
    for name, bounds in QUANTITIES.items():
        assert load_family(name).stock_task._fields == (*bounds,)


@pytest.mark.parametrize("name", QUANTITIES)
def test_tasks_have_the_stated_distribution(name):
    # Kolmogorov-Smirnov on each component, 2000 tasks, fixed keys: a bound wrong by 5 % of the range gives p < 1e-4.
    tasks = tasks_of(load_family(name))
    for field, bounds in QUANTITIES[name].items():
        for column in np.asarray(getattr(tasks, field)).reshape(TASKS, -1).T:
            assert scipy.stats.kstest(column, uniform(*bounds)).pvalue > 1e-3
    assert_independent(np.column_stack([np.asarray(leaf).reshape(TASKS, -1) for leaf in tasks]))


def on_the_disc(fresh: np.ndarray) -> np.ndarray:
    """Return the polar coordinates in which a target uniform on the disc of radius 0.2 is uniform."""
    x, y = fresh[:, 2:4].T
    return np.column_stack([(x**2 + y**2) / 0.2**2, np.arctan2(y, x) / (2 * np.pi) + 0.5])


TINY, SMALL = uniform(-5e-3, 5e-3), uniform(-0.1, 0.1)
STANCE = [0.0, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0]
STARTS = {
    "random-hopper": [(lambda fresh: fresh - np.eye(12)[1] * 1.25, TINY)],
    "directional-hopper": [(lambda fresh: fresh - np.eye(12)[1] * 1.25, TINY)],
    "random-walker": [(lambda fresh: fresh - np.eye(18)[1] * 1.25, TINY)],
    "directional-half-cheetah": [
        (lambda fresh: fresh[:, :9], SMALL),
        (lambda fresh: fresh[:, 9:], scipy.stats.norm(scale=0.1).cdf),
    ],
    "random-reacher": [
        (lambda fresh: fresh[:, :2], SMALL),
        (on_the_disc, uniform(0, 1)),
        (lambda fresh: fresh[:, 4:6], TINY),
    ],
    "goal-ant": [
        (lambda fresh: fresh[:, :15] - STANCE, SMALL),
        (lambda fresh: fresh[:, 15:], scipy.stats.norm(scale=0.1).cdf),
    ],
}


@pytest.mark.parametrize("name", STARTS)
def test_episodes_start_with_the_stated_distribution(name):
    family, keys = load_family(name), jax.random.split(jax.random.key(5), TASKS)
    fresh = np.asarray(jax.jit(jax.vmap(family.fresh, (0, None)))(keys, family.stock_task), np.float64)
    parts = [(of(fresh), cdf) for of, cdf in STARTS[name]]
    for values, cdf in parts:
        for column in values.T:
            assert scipy.stats.kstest(column, cdf).pvalue > 1e-3
    assert_independent(np.column_stack([values for values, _ in parts]))


@pytest.mark.parametrize("name", DIRECTIONAL)
def test_both_directions_occur_alike(name):
    family = load_family(name)
    signs = np.asarray(tasks_of(family).sign)
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert scipy.stats.binomtest(int((signs > 0).sum()), TASKS).pvalue > 1e-3
    for share, factor in ((0.0, 1.0), (0.49, 1.0), (0.5, -1.0), (0.99, -1.0)):
        np.testing.assert_array_equal(family.orbit(tasks_of(family), jnp.float32(share)).sign, factor * signs)


def goals_of(name: str) -> np.ndarray:
    """Return where the goals of 2000 tasks are."""
    return np.asarray(jax.vmap(ant.position)(tasks_of(load_family(name))))


def test_arcs_part_the_goals():
    for name in ("goal-ant", "goal-ant-right", "goal-ant-left"):
        np.testing.assert_allclose(np.linalg.norm(goals_of(name), axis=1), ant.DISTANCE, rtol=1e-5)
    assert (goals_of("goal-ant-right")[:, 0] > 0).all()
    assert (goals_of("goal-ant-left")[:, 0] < 0).all()
    assert 0.45 < (goals_of("goal-ant")[:, 0] > 0).mean() < 0.55


@pytest.mark.parametrize("name", ["goal-ant", "goal-ant-right", "goal-ant-left"])
def test_orbit_keeps_the_arc(name):
    family, arcs = load_family(name), {"goal-ant": ant.CIRCLE, "goal-ant-right": ant.RIGHT, "goal-ant-left": ant.LEFT}
    tasks, arc = tasks_of(family), arcs[name]
    for share in (0.0, 0.37, 0.5, 1.0):
        after = family.orbit(tasks, jnp.float32(share))
        moved = np.asarray(after.bearing)
        assert arc[0] <= moved.min() < moved.max() <= arc[1]  # no goal of the other side, ever
        assert scipy.stats.kstest(moved, uniform(*arc)).pvalue > 1e-3
        assert scipy.stats.kstest(np.asarray(after.yaw), uniform(-np.pi, np.pi)).pvalue > 1e-3
        shift = np.mod(moved - np.asarray(tasks.bearing) - share * (arc[1] - arc[0]) + 1e-4, arc[1] - arc[0])
        np.testing.assert_allclose(shift, 1e-4, atol=1e-5)
        around = np.mod(np.asarray(family.place(after) - family.place(tasks)) - share + 1e-4, 1.0)
        np.testing.assert_allclose(around, 1e-4, atol=1e-5)
    if arc == ant.CIRCLE:  # the goal has gone all the way, so the ant need not turn
        np.testing.assert_array_equal(family.orbit(tasks, jnp.float32(0.37)).yaw, tasks.yaw)


def test_place_is_where_the_ant_sees_the_goal():
    family, tasks = load_family("goal-ant"), tasks_of(load_family("goal-ant"))
    x, y = np.asarray(jax.vmap(ant.position)(tasks)).T
    yaw = np.asarray(tasks.yaw)
    ahead, left = np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x
    turns = np.mod(np.arctan2(left, ahead) / (2 * np.pi) - np.asarray(family.place(tasks)) + 0.5, 1.0)
    np.testing.assert_allclose(turns, 0.5, atol=1e-5)


def test_a_turned_ant_is_an_ant():
    """MuJoCo moves an ant, and the same ant with its legs named from the left, alike; checked by where its feet are."""
    model = mujoco.MjModel.from_xml_path(str(model_path("gymnasium:ant.xml")))
    here, there = mujoco.MjData(model), mujoco.MjData(model)
    rng = np.random.default_rng(0)
    pose = np.array([0.0, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])
    here.qpos[:], here.qvel[:] = pose + rng.uniform(-0.1, 0.1, 15), 0.3 * rng.normal(size=14)
    here.qpos[3:7] /= np.linalg.norm(here.qpos[3:7])

    def seen(data):
        return np.concatenate([data.qpos[2:], data.qvel])

    named_anew = np.asarray(ant.turned_observation(jnp.asarray(seen(here))), np.float64)
    there.qpos[:], there.qvel[:] = np.concatenate([here.qpos[:2], named_anew[:13]]), named_anew[13:]
    feet = [model.geom(f"{leg}_ankle_geom").id for leg in ("left", "right", "third", "fourth")]
    for _ in range(20):
        here.ctrl[:] = rng.uniform(-1.0, 1.0, 8)
        there.ctrl[:] = ant.turned_action(jnp.asarray(here.ctrl))
        for data in (here, there):
            mujoco.mj_step(model, data, nstep=3)
        np.testing.assert_allclose(there.geom_xpos[feet], here.geom_xpos[np.roll(feet, -1)], atol=1e-4)
        expected = ant.turned_observation(jnp.asarray(seen(here)))
        np.testing.assert_allclose(seen(there), expected, atol=2e-3)
    assert np.abs(here.qpos[:2]).max() > 0.01


def test_an_ant_that_turns_left_sees_its_goal_a_quarter_before():
    family, tasks = load_family("goal-ant"), tasks_of(load_family("goal-ant"))
    seen = jax.vmap(lambda task: family.view(family._begin(family.fresh(jax.random.key(0), task)), task))(tasks)
    anew = jax.vmap(family.turns.observation)(seen)
    yaws = (np.arctan2(it[:, 4], it[:, 1]) / np.pi for it in (np.asarray(seen), np.asarray(anew)))  # in turns
    before, after = (np.asarray(tasks.bearing) - yaw for yaw in yaws)
    np.testing.assert_allclose(np.mod(before - family.place(tasks) + 0.5, 1.0), 0.5, atol=0.05)  # noise turns it a bit
    np.testing.assert_allclose(np.mod(before - after, 1.0), 1 / family.turns.number, atol=1e-5)


@pytest.mark.parametrize(("sides", "side", "times"), [(4, 1, 1), (4, 2, 2), (2, 1, 2), (4, 3, 3)])
def test_a_target_is_turned_as_the_ant_is(sides, side, times):
    rng = np.random.default_rng(1)
    mean, deviation = 0.5 * rng.normal(size=27), rng.uniform(0.5, 2.0, 27)
    usual = {"normalise": "family", "usual_mean": tuple(mean), "usual_deviation": tuple(deviation)}
    several = LossSettings(reward=True, products=True, init_temporal="correlation", init_sides=sides)
    settings = Settings("goal-ant", policy=PolicySettings(**usual), loss=several, search=SearchSettings(epochs=1))
    weights, seen = rng.normal(size=8 * 28).astype(np.float32), rng.normal(size=27)

    def act(weights, seen):
        return weights.reshape(8, 28) @ np.append((seen - mean) / deviation, 1.0)

    named_anew = seen
    for _ in range(times):
        named_anew = np.array(ant.turned_observation(jnp.asarray(named_anew)))
    if times == 3:  # one turn to the right: the same but for the quaternion's sign
        named_anew[1:5] *= -1
    done = act(turned(weights, side, settings), seen)
    for _ in range(times):
        done = np.asarray(ant.turned_action(jnp.asarray(done)))
    np.testing.assert_allclose(done, act(weights, named_anew), rtol=1e-3, atol=1e-3)


# --- only the task varies -------------------------------------------------------------------------------------------

OF_THE_TASK = {"goal-ant": slice(3, 7), "goal-ant-right": slice(3, 7), "goal-ant-left": slice(3, 7)}
OF_THE_TASK["goal-ant-no-reset"] = slice(3, 7)  # the yaw at the start is the task's


@pytest.mark.parametrize("name", MUJOCO)
def test_same_reset_key_starts_alike_and_only_the_task_varies(name):
    family, number = load_family(name), 6
    tasks = tasks_of(family, number)
    fresh = np.asarray(jax.vmap(family.fresh, (None, 0))(jax.random.key(0), tasks))
    start = fresh.copy()
    start[:, OF_THE_TASK.get(name, slice(0))] = 0.0
    np.testing.assert_array_equal(start, np.tile(start[0], (number, 1)))
    first = np.asarray(family.fresh(jax.random.key(1), jax.tree.map(lambda leaf: leaf[0], tasks)))
    assert np.array_equal(first, fresh[0]) == (name == "fetch-reach")  # whose episodes all begin alike

    simulator = family.simulate(unstack(tasks, number))
    raw = simulator.begin(fresh)
    steer, judge = jax.jit(jax.vmap(family.steer)), jax.jit(jax.vmap(family.judge))
    action = jnp.full((number, family.spaces.action), 0.5)
    for _ in range(3):
        raw = simulator.advance(np.asarray(steer(raw, action, tasks)), fresh)
    reward, _ = judge(jax.vmap(family.body)(jnp.asarray(raw)), action, tasks)
    later = np.column_stack([np.asarray(jax.vmap(family.view)(jnp.asarray(raw), tasks)), np.asarray(reward)])
    kinds = len(np.unique(np.column_stack(jax.tree.leaves(tasks)), axis=0))  # two, if tasks are directions
    assert kinds > 1
    assert len(np.unique(later, axis=0)) == kinds


# --- ends and resets ------------------------------------------------------------------------------------------------


def read(family, task, *, x: float, age: float, height: float = 0.75):
    """Read a step after which the ant is at (x, 0)."""
    nq, fresh = family.sizes.qpos, family.fresh(jax.random.key(0), task)
    before = jnp.concatenate([fresh, jnp.zeros(nq), jnp.ones(1)])
    after = before.at[0].set(x).at[1].set(0.0).at[2].set(height)
    return after, fresh, family.read(Step(before, jnp.zeros(8), after, fresh, jnp.float32(age)), task)


EAST = ant.Goal(bearing=jnp.float32(0.0), yaw=jnp.float32(0.0))


@pytest.mark.parametrize(
    ("name", "x", "height", "age", "terminated", "truncated", "restart"),
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
def test_ends_and_restarts_of_goal_ant(name, x, height, age, terminated, truncated, restart):
    family = load_family(name)
    after, fresh, reading = read(family, EAST, x=x, age=age, height=height)
    ends = bool(reading.terminated), bool(reading.truncated), bool(reading.restart)
    assert ends == (terminated, truncated, restart)
    np.testing.assert_array_equal(reading.next_observation, family.view(after, EAST))  # before any restart
    np.testing.assert_array_equal(reading.raw[: len(fresh)], fresh if restart else after[: len(fresh)])


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
    family = load_family(name)
    task = family.stock_task
    fresh = family.fresh(jax.random.key(0), task)
    raw = jnp.concatenate([fresh, jnp.zeros(family.sizes.qpos), jnp.ones(1)])
    judge = jax.jit(lambda raw: family.judge(family.body(raw), jnp.zeros(family.spaces.action), task)[1])
    assert not judge(raw)
    for value in ends:
        assert judge(raw.at[index].set(value))
    for value in goes_on:
        assert not judge(raw.at[index].set(value))


def test_goal_ant_is_rewarded_for_approach():
    # Speed (3, 4) at (0, 10): towards the goal at (10, 0) that is (3 - 4) / sqrt(2).
    family = load_family("goal-ant")
    raw = jnp.zeros(family.width).at[1].set(10.0).at[2].set(0.75)
    speed = family.sizes.qpos + family.sizes.qvel
    raw = raw.at[speed].set(3.0).at[speed + 1].set(4.0)
    reward, _ = family.judge(family.body(raw), jnp.zeros(8), EAST)
    np.testing.assert_allclose(reward, -1 / np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(family.features(EAST._replace(bearing=jnp.float32(0.25))), [0.0, 1.0], atol=1e-6)
