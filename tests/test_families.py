"""Families: the contract for every registered one, Gymnasium as an oracle, distributions, and the checker itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from outside import Outside, Slowly, outside
from probe_families import ACTION, BOTH, CHOICE, DISCOUNT, OBSERVATION, PROBES, TARGET, VALUE
from samples import TASKS, tasks_of, uniform

from epg.core.errors import BadInput
from epg.evaluation.family_check import CHECKS, HOST_CHECKS, check_family, checks_of
from epg.families.base import JaxFamily
from epg.families.native import cart_pole, pendulum
from epg.families.native.point import GOAL_DISTANCE, POINT_GOAL, POINT_REACH
from epg.families.registry import REGISTRY, VARIANTS, entry_of, find_family, is_registered, load
from epg.families.symmetry import balanced, flip_sign, rotate, wrap

pytestmark = pytest.mark.usefixtures("strict_dtypes")


ALIKE = {*VARIANTS, "goal-ant-right", "goal-ant-left", "goal-ant-no-reset", "signed-half-cheetah"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=pytest.mark.slow) if it in ALIKE else it for it in (*REGISTRY, *VARIANTS)],
)
def test_registered_family_passes_every_check(name):
    family = find_family(name)
    assert family.name == name
    checks = check_family(family)
    assert [check for check in checks if not check.passed] == []
    assert [check.name for check in checks] == list(checks_of(family))


@pytest.mark.parametrize("family", PROBES, ids=lambda it: it.name)
def test_probe_passes_every_check_but_varying(family):
    assert [check.name for check in check_family(family) if not check.passed] == ["tasks vary"]


@pytest.mark.parametrize(
    ("family", "states", "actions", "rewards", "ends"),
    [
        (VALUE, [0.0], [[0.3]], [1.0], [True]),
        (OBSERVATION, [-1.0, 1.0], [[0.3], [0.3]], [-1.0, 1.0], [True, True]),
        (DISCOUNT, [0.0, 1.0], [[0.3], [0.3]], [0.0, 1.0], [False, True]),
        (ACTION, [0.0, 0.0], [[TARGET], [TARGET + 2.0]], [0.0, -4.0], [True, True]),
        (BOTH, [1.0, -1.0], [[TARGET], [TARGET]], [0.0, -4 * TARGET**2], [True, True]),
        (CHOICE, [0.0, 0.0], [0, 1], [0.0, 1.0], [True, True]),
    ],
    ids=lambda it: getattr(it, "name", None),
)
def test_probe_has_its_analytic_answer(family, states, actions, rewards, ends):
    for state, action, reward, end in zip(states, actions, rewards, ends, strict=True):
        _, got, terminated = family.step(jnp.float32(state), jnp.asarray(action), jnp.zeros(0))
        assert (float(got), bool(terminated)) == (pytest.approx(reward), end)


# --- the checker: for each check, families it must refuse ------------------------------------------------------


def changed_step(change):
    """Return point-goal with `change` applied to what step returns."""
    return replace(POINT_GOAL, step=lambda s, a, t: change(*POINT_GOAL.step(s, a, t)))


calls = count()


def drifting(reward):
    """Add how often it was called: not a function of its arguments."""
    return reward + jnp.float32(next(calls))


def moody_reset(key, task):
    """Start elsewhere at every call."""
    state = POINT_GOAL.reset(key, task)
    return state._replace(position=state.position + 0.1 * next(calls))


@jax.custom_batching.custom_vmap
def crowded(x):
    """Return x alone, and the mean of a batch in a batch."""
    return x


@crowded.def_vmap
def _(axis_size, in_batched, x):
    return jnp.full(x.shape, jnp.mean(x)), True


BAD = {
    "is a family record": [
        object(),
        replace(POINT_GOAL, horizon=0),
        replace(POINT_GOAL, version=0),
        replace(POINT_GOAL, spaces={"observation": 4}),
    ],
    "a task is data: finite numbers": [
        replace(POINT_GOAL, sample=lambda key: {"goal": "north"}),
        replace(POINT_GOAL, sample=lambda key: jnp.array(True)),
        replace(POINT_GOAL, sample=lambda key: jnp.log(jnp.zeros(2))),
    ],
    "shapes and dtypes are as declared": [
        replace(POINT_GOAL, observe=lambda s, t: s.position),
        replace(POINT_GOAL, observe=lambda s, t: POINT_GOAL.observe(s, t).astype(jnp.int32)),
        replace(POINT_GOAL, features=lambda t: jnp.zeros(5)),
        changed_step(lambda s, r, d: (s, r.astype(jnp.int32), d)),
        changed_step(lambda s, r, d: (s, r[None], d)),
        changed_step(lambda s, r, d: (s, r, d.astype(jnp.float32))),
        changed_step(lambda s, r, d: (s, r, False)),
        changed_step(lambda s, r, d: (s.position, r, d)),
        changed_step(lambda s, r, d: (s._replace(goal=s.goal.astype(jnp.float16)), r, d)),
    ],
    "functions are pure and compile": [
        replace(POINT_GOAL, sample=lambda key: jax.tree.map(drifting, POINT_GOAL.sample(key))),
        replace(POINT_GOAL, reset=moody_reset),
        replace(POINT_GOAL, observe=lambda s, t: drifting(POINT_GOAL.observe(s, t))),
        changed_step(lambda s, r, d: (s, drifting(r), d)),
        changed_step(lambda s, r, d: (s, -r if r > 1e3 else r, d)),  # a branch on a value does not compile
    ],
    "the same keys repeat a rollout": [replace(POINT_GOAL, reset=moody_reset)],
    "rollouts stay finite": [changed_step(lambda s, r, d: (s, jnp.where(s.position[0] > 0.02, jnp.nan, r), d))],
    "huge actions stay finite": [
        replace(POINT_GOAL, step=lambda s, a, t: (s, jnp.exp(jnp.abs(a[0])), jnp.array(False))),
    ],
    "batching changes nothing": [changed_step(lambda s, r, d: (s, crowded(r), d))],
    "tasks vary": [replace(POINT_GOAL, sample=lambda key: POINT_GOAL.sample(jax.random.key(0)))],
    "the orbit starts at the task and moves it": [
        replace(POINT_GOAL, orbit=lambda task, share: task),
        replace(POINT_GOAL, orbit=lambda task, share: POINT_GOAL.orbit(task, share + 0.25)),
        replace(POINT_GOAL, orbit=lambda task, share: jax.tree.map(lambda leaf: leaf + 1.0, task)),
    ],
    "constant inputs are constant": [
        replace(POINT_GOAL, constant_inputs=((0, 0.0, 1.0),)),  # a position
        replace(POINT_GOAL, constant_inputs=((4, 0.0, 1.0),)),
        replace(POINT_GOAL, constant_inputs=((-1, 0.0, 1.0),)),
        replace(POINT_GOAL, constant_inputs=((0, 0.0, 0.0),)),
    ],
}


@dataclass(frozen=True, kw_only=True)
class Twisted(Outside):
    """A host family of which some functions return something else."""

    twist: Mapping[str, Callable] = field(default_factory=dict)

    def _twisted(self, name, value, *arguments):
        return self.twist[name](value, *arguments) if name in self.twist else value

    @property
    def readout_size(self):
        return self._twisted("readout_size", super().readout_size)

    def initial_state(self, key, task):
        return self._twisted("initial_state", super().initial_state(key, task))

    def observation(self, readout, task):
        return self._twisted("observation", super().observation(readout, task))

    def to_ctrl(self, readout, action, task):
        return self._twisted("to_ctrl", super().to_ctrl(readout, action, task), action)

    def step_result(self, step, task):
        return self._twisted("step_result", super().step_result(step, task), step)


def twisted(**twist) -> Twisted:
    """Return point-goal on the host with `twist` applied to what these functions return."""
    return outside(POINT_GOAL, Twisted, twist=twist)


def changed_result(**changes) -> Twisted:
    """Return point-goal on the host with other fields in its step result, each a function of the right one."""
    return twisted(
        step_result=lambda it, _: it._replace(**{name: to(getattr(it, name)) for name, to in changes.items()})
    )


class Doubled(Slowly):
    """Returns double precision."""

    def advance(self, ctrl, reset_states, rows=None):
        return super().advance(ctrl, reset_states, rows).astype(np.float64)


class Noisy(Slowly):
    """Draws random numbers of its own."""

    noise = np.random.default_rng(0)

    def advance(self, ctrl, reset_states, rows=None):
        return super().advance(ctrl + self.noise.normal(size=ctrl.shape).astype(np.float32), reset_states, rows)


class Crowded(Slowly):
    """Lets neighbours push each other."""

    def advance(self, ctrl, reset_states, rows=None):
        return super().advance(ctrl + ctrl.mean(axis=0), reset_states, rows)


class Contagious(Slowly):
    """Resets all rows when one has ended."""

    def reset(self, rows, states):
        super().reset(np.ones_like(rows), states)


class Tiled(Slowly):
    """Repeats the batch instead of each row."""

    def repeat(self, times):
        return Tiled(self.family, [*self.tasks] * times)

    def begin(self, states):
        readout = super().begin(states)
        readout[:, -2] = [task.goal[0] for task in self.tasks]  # which tells the tasks apart
        return readout


class Deaf(Slowly):
    """Moves all rows, whichever it is asked to."""

    def advance(self, ctrl, reset_states, rows=None):
        return super().advance(ctrl, reset_states)


HOST = outside(POINT_GOAL)
BAD_HOST = {
    "is a family record": [replace(HOST, horizon=0), replace(HOST, spaces=None)],
    "a task is data: finite numbers": [replace(HOST, sample=lambda key: {"goal": "north"})],
    "shapes and dtypes are as declared": [
        twisted(readout_size=lambda size: size + 1),
        twisted(observation=lambda seen: seen[:-1]),
        twisted(observation=lambda seen: seen.astype(jnp.float16)),
        twisted(to_ctrl=lambda ctrl, _: ctrl[0]),
        changed_result(reward=lambda it: it[None]),
        changed_result(terminated=lambda it: it.astype(jnp.float32)),
        changed_result(truncated=lambda it: False),
        changed_result(diverged=lambda it: it[None]),
        changed_result(reset=lambda it: it.astype(jnp.int32)),
        changed_result(readout=lambda it: it[:-1]),
        changed_result(next_observation=lambda it: it[:-1]),
        replace(HOST, simulator=Doubled),
        replace(HOST, features=lambda task: jnp.zeros(5)),
    ],
    "functions are pure and compile": [
        twisted(initial_state=drifting),
        twisted(observation=drifting),
        twisted(to_ctrl=lambda ctrl, _: drifting(ctrl)),
        changed_result(reward=drifting),
        twisted(to_ctrl=lambda ctrl, _: ctrl if ctrl[0] > 0 else -ctrl),
    ],
    "the same keys repeat a rollout": [replace(HOST, simulator=Noisy)],
    "rollouts stay finite": [
        twisted(step_result=lambda it, step: it._replace(reward=jnp.where(step.after[0] > 0.02, jnp.nan, it.reward)))
    ],
    "huge actions stay finite": [
        twisted(step_result=lambda it, step: it._replace(reward=jnp.exp(jnp.abs(step.action[0]))))
    ],
    "batching changes nothing": [replace(HOST, simulator=Crowded), changed_result(reward=crowded)],
    "tasks vary": [replace(HOST, sample=lambda key: POINT_GOAL.sample(jax.random.key(0)))],
    "the orbit starts at the task and moves it": [replace(HOST, orbit=lambda task, share: task)],
    "constant inputs are constant": [replace(HOST, constant_inputs=((0, 0.0, 1.0),))],
    "an action that is not a number ends the episode": [
        changed_result(diverged=jnp.zeros_like),
        changed_result(terminated=jnp.zeros_like),
        twisted(to_ctrl=lambda ctrl, action: action),
    ],
    "divergence leaves other rows alone": [replace(HOST, simulator=Contagious)],
    "rows repeat, and advance in part": [replace(HOST, simulator=Tiled), replace(HOST, simulator=Deaf)],
}


def test_every_check_has_a_bad_example():
    assert list(BAD) == list(CHECKS)
    assert list(BAD_HOST) == [*CHECKS, *HOST_CHECKS]


@pytest.mark.parametrize("name", ["point-goal", "random-cart-pole"])
def test_a_sound_host_family_passes_every_check(name):
    checks = check_family(outside(find_family(name)))
    assert [check for check in checks if not check.passed] == []
    assert [check.name for check in checks] == list(BAD_HOST)


@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for bad in (BAD, BAD_HOST) for name in bad for family in bad[name]],
)
def test_checker_refuses(name, family):
    (check,) = check_family(family, [name])
    assert check.problem


def test_checks_that_cannot_run_are_left_out():
    checks = check_family(replace(POINT_GOAL, horizon=0))
    assert [(check.name, check.passed) for check in checks] == [("is a family record", False)]


# --- physics: Gymnasium at the nominal task -----------------------------------------------------------------------


def test_nominal_pendulum_is_gymnasiums():
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    family, step = pendulum.RANDOM_PENDULUM, jax.jit(pendulum.RANDOM_PENDULUM.step)
    state, actions = family.reset(jax.random.key(0), pendulum.NOMINAL), jax.random.normal(jax.random.key(1), (200, 1))
    for action in actions:
        env.state = np.array([state.angle, state.rate], np.float64)
        state, reward, terminated = step(state, action, pendulum.NOMINAL)
        seen, expected, *_ = env.step(2.0 * np.asarray(action))
        np.testing.assert_allclose(np.stack([state.angle, state.rate]), env.state, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(family.observe(state, pendulum.NOMINAL), seen, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(reward, expected, rtol=1e-4, atol=1e-5)
        assert not terminated


def test_nominal_cart_pole_is_gymnasiums(rng):
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    step, ended = jax.jit(cart_pole.RANDOM_CART_POLE.step), 0
    state = cart_pole.RANDOM_CART_POLE.reset(jax.random.key(0), cart_pole.NOMINAL)
    for action in rng.integers(2, size=200):
        env.state, env.steps_beyond_terminated = np.asarray(state, np.float64), None
        state, reward, terminated = step(state, jnp.int32(action), cart_pole.NOMINAL)
        seen, expected, end, *_ = env.step(int(action))
        np.testing.assert_allclose(state, seen, rtol=1e-4, atol=1e-6)
        assert (float(reward), bool(terminated)) == (expected, end)
        if end:  # begin again anywhere in the box, so that both limits are met
            ended += 1
            state = jnp.asarray(rng.uniform(-1, 1, 4) * [2.4, 3.0, 0.2, 3.0], jnp.float32)
    assert ended > 5


def test_point_mass_approaches_its_terminal_velocity():
    # v' = thrust - drag v: with drag 1, velocity tends to the acceleration and the step obeys the recursion exactly.
    task = POINT_GOAL.sample(jax.random.key(0))
    state, step = POINT_GOAL.reset(jax.random.key(1), task), jax.jit(POINT_GOAL.step)
    after, reward, _ = step(state, jnp.array([100.0, -100.0]), task)
    thrust = np.asarray(after.velocity) / 0.1
    np.testing.assert_allclose(thrust, [thrust[0], -thrust[0]], rtol=1e-5)  # clipped to ±1 on both axes
    np.testing.assert_allclose(after.position, state.position + 0.1 * after.velocity, rtol=1e-5)
    before, now = (np.linalg.norm(it.position - task.goal) for it in (state, after))
    np.testing.assert_allclose(reward, (before - now) / 0.1, rtol=1e-3)  # velocity towards the goal
    for _ in range(150):
        after, *_ = step(after, jnp.array([1.0, -1.0]), task)
    np.testing.assert_allclose(after.velocity, thrust, rtol=1e-4)


def test_reach_rotates_and_scales_the_action():
    still = POINT_REACH.reset(jax.random.key(0), None)
    task = POINT_REACH.sample(jax.random.key(0))._replace(rotation=jnp.float32(jnp.pi / 6), gain=jnp.float32(2.0))
    plain = task._replace(rotation=jnp.float32(0.0), gain=jnp.float32(1.0))
    turned, straight = (
        np.asarray(POINT_REACH.step(still, jnp.array([1.0, 0.0]), it)[0].velocity) for it in (task, plain)
    )
    np.testing.assert_allclose(straight[1], 0.0, atol=1e-7)
    np.testing.assert_allclose(turned, 2 * straight[0] * np.array([np.sqrt(3) / 2, 0.5]), rtol=1e-5)


# --- randomisation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "quantity", "cdf"),
    [
        (POINT_GOAL, lambda t: np.arctan2(t.goal[:, 1], t.goal[:, 0]), uniform(-np.pi, np.pi)),
        (POINT_REACH, lambda t: t.rotation, uniform(-np.pi / 3, np.pi / 3)),
        (POINT_REACH, lambda t: np.log2(t.gain), uniform(-1, 1)),
        (pendulum.RANDOM_PENDULUM, lambda t: t.mass, uniform(0.75, 1.25)),
        (pendulum.RANDOM_PENDULUM, lambda t: t.length, uniform(0.75, 1.25)),
        (pendulum.RANDOM_PENDULUM, lambda t: t.gravity, uniform(7.5, 12.5)),
        *(
            (cart_pole.RANDOM_CART_POLE, lambda t, i=i, nominal=nominal: np.log2(t[i] / nominal), uniform(-1, 1))
            for i, nominal in enumerate([9.8, 1.0, 0.1, 0.5, 10.0])
        ),
    ],
)
def test_tasks_have_the_stated_distribution(family, quantity, cdf):
    # Kolmogorov-Smirnov, 2000 tasks, fixed keys: a bound wrong by 5 % of the range gives p below 1e-4.
    assert scipy.stats.kstest(np.asarray(quantity(tasks_of(family))), cdf).pvalue > 1e-3


def test_quantities_of_a_task_are_independent():
    for family in (POINT_REACH, pendulum.RANDOM_PENDULUM, cart_pole.RANDOM_CART_POLE):
        correlation = np.corrcoef(np.stack(jax.tree.leaves(tasks_of(family))))
        assert np.abs(correlation - np.eye(len(correlation))).max() < 4 / np.sqrt(TASKS)


def test_goals_stand_at_one_distance():
    np.testing.assert_allclose(np.linalg.norm(tasks_of(POINT_GOAL).goal, axis=1), GOAL_DISTANCE, rtol=1e-5)


def test_features_tell_the_task():
    task = cart_pole.NOMINAL._replace(force=jnp.float32(20.0), pole_mass=jnp.float32(0.05))
    np.testing.assert_allclose(cart_pole.RANDOM_CART_POLE.features(task), [0, 0, -1, 0, 1], atol=1e-5)
    rod = pendulum.PendulumTask(jnp.float32(0.8), jnp.float32(1.1), jnp.float32(9.0))
    np.testing.assert_allclose(pendulum.RANDOM_PENDULUM.features(rod), [0.8, 1.1, 0.9], rtol=1e-6)
    reach = POINT_REACH.sample(jax.random.key(0))._replace(rotation=jnp.float32(0.5), gain=jnp.float32(1.5))
    np.testing.assert_allclose(POINT_REACH.features(reach), [np.cos(0.5), np.sin(0.5), 1.5], rtol=1e-5)
    goal = POINT_GOAL.sample(jax.random.key(0))
    np.testing.assert_array_equal(POINT_GOAL.features(goal), goal.goal)


# What is simulated by MuJoCo has these tests in test_mujoco_families.py.
JAX_NATIVE = [name for name in REGISTRY if isinstance(find_family(name), JaxFamily)]
WITH_ORBIT = [name for name in JAX_NATIVE if find_family(name).orbit]


@pytest.mark.parametrize("name", WITH_ORBIT)
def test_orbit_is_closed_and_keeps_the_distribution(name):
    family, tasks = find_family(name), tasks_of(find_family(name))
    moved = {share: jax.vmap(family.orbit, (0, None))(tasks, jnp.float32(share)) for share in (0.0, 0.37, 0.5, 1.0)}
    for before, start, after in zip(*map(jax.tree.leaves, (tasks, moved[0.0], moved[1.0])), strict=True):
        np.testing.assert_allclose(start, before, atol=1e-5)
        np.testing.assert_allclose(after, before, atol=1e-5)
    angle = (lambda t: t.rotation) if name == "point-reach" else (lambda t: jnp.arctan2(t.goal[:, 1], t.goal[:, 0]))
    bound = np.pi / 3 if name == "point-reach" else np.pi
    for share in (0.37, 0.5):
        assert scipy.stats.kstest(np.asarray(angle(moved[share])), uniform(-bound, bound)).pvalue > 1e-3
        shift = np.mod(np.asarray(angle(moved[share]) - angle(tasks)), 2 * bound)
        np.testing.assert_allclose(shift, share * 2 * bound, atol=1e-4)


def test_symmetries_are_closed():
    shares = jnp.array([0.0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(jax.vmap(flip_sign, (None, 0))(jnp.float32(-1.0), shares), [-1, -1, 1, 1])
    turned = jax.vmap(rotate, (None, 0))(jnp.array([2.0, 1.0]), shares)
    np.testing.assert_allclose(turned, [[2, 1], [-1, 2], [-2, -1], [1, -2]], atol=1e-5)
    moved = jax.vmap(lambda share: wrap(jnp.float32(2.5), share, 1.0, 3.0))(shares)
    np.testing.assert_allclose(moved, [2.5, 1.0, 1.5, 2.0], atol=1e-5)


@pytest.mark.parametrize("number", [2, 3, 8])
def test_balanced_goals_sum_to_zero(number):
    goals = jax.vmap(
        lambda index: balanced(lambda: POINT_GOAL.sample(jax.random.key(0)), POINT_GOAL.orbit, index, number)
    )(jnp.arange(number, dtype=jnp.float32)).goal
    np.testing.assert_allclose(goals.sum(0), 0.0, atol=1e-5)
    assert len(np.unique(np.round(goals, 3), axis=0)) == number


@pytest.mark.parametrize("name", JAX_NATIVE)
def test_same_reset_key_starts_alike_and_only_the_task_varies(name):
    family, tasks = find_family(name), tasks_of(find_family(name), 8)
    action = jnp.int32(1) if family.spaces.discrete else jnp.full(family.spaces.action, 0.5)

    def two_steps(task):
        state = family.reset(jax.random.key(0), task)
        after, *_ = family.step(state, action, task)
        after, reward, _ = family.step(after, action, task)
        return family.observe(state, task), jnp.append(family.observe(after, task), reward)

    first, later = jax.vmap(two_steps)(tasks)
    np.testing.assert_array_equal(first, np.tile(first[0], (8, 1)))
    assert len(np.unique(np.asarray(later), axis=0)) == 8
    again = family.observe(family.reset(jax.random.key(1), jax.tree.map(lambda leaf: leaf[0], tasks)), None)
    assert not np.array_equal(again, first[0])  # the key, not the task, decides where an episode starts


@pytest.mark.parametrize("name", REGISTRY)
def test_registry_entry_says_what_the_family_says(name):
    family, entry = find_family(name), REGISTRY[name]
    assert entry.version == family.version
    assert entry.time_limit == (family.horizon if getattr(family, "resets", True) else None)
    assert entry_of(name) is entry_of(f"{name}@reference") is entry
    assert is_registered(name)
    assert load(name) is family


def test_family_is_found_by_its_module():
    assert find_family("probe_families:CHOICE") is CHOICE
    assert not is_registered("probe_families:CHOICE")
    assert find_family("random-hopper@reference").name == "random-hopper@reference"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("point-gaol", "unknown family 'point-gaol' .did you mean point-goal.*: choose one of point-goal"),
        ("", "unknown family"),
        ("json:", "unknown family"),
        (":POINT_GOAL", "unknown family"),
        (".point:POINT_GOAL", "unknown family"),
        ("no_such_module:family", "no module named 'no_such_module'"),
        ("epg.families.native.point:POINT_GAOL", "has no 'POINT_GAOL'"),
        ("epg.families.native.point:GOAL_DISTANCE", "is a float, not a family"),
        ("point-goal@reference", "only MuJoCo families have reference physics"),
    ],
)
def test_unknown_family_is_refused_in_a_sentence(name, sentence):
    with pytest.raises(BadInput, match=sentence):
        find_family(name)
