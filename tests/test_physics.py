"""The MuJoCo simulator: tasks written into models, batches of them, sensors, mocap bodies, divergence."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from epg.core.errors import BadInput
from epg.core.spaces import Spaces
from epg.families.mujoco.base import Clock, MujocoFamily
from epg.families.mujoco.hopper import DIRECTIONAL_HOPPER, RANDOM_HOPPER
from epg.families.mujoco.reacher import RANDOM_REACHER, Links, fingertip
from epg.families.mujoco.walker import RANDOM_WALKER
from epg.families.registry import find_family
from epg.simulators.mujoco import BatchEngine, SeparateEngine, build_models, compile_spec, load_spec, model_path

PARTS = {"random-hopper": 4, "random-walker": 7}


def one_model(family, task):
    """Return the model of a task."""
    (model,) = build_models(family, [task])
    return model


def some_body(family, seed: int = 0):
    """Return a random task as plain numbers."""
    return jax.tree.map(np.asarray, family.sample(jax.random.key(seed)))


# --- tasks in models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [RANDOM_HOPPER, RANDOM_WALKER], ids=lambda it: it.name)
def test_mass_and_inertia_scale_together(family):
    factors = some_body(family).mass
    stock, model = one_model(family, family.stock_task), one_model(family, family.stock_task._replace(mass=factors))
    np.testing.assert_allclose(model.body_mass[1:], stock.body_mass[1:] * factors, rtol=1e-12)
    np.testing.assert_allclose(model.body_inertia[1:], stock.body_inertia[1:] * factors[:, None], rtol=1e-12)
    np.testing.assert_array_equal(model.geom_size, stock.geom_size)
    for name in ("body_ipos", "body_iquat", "geom_friction", "dof_armature", "actuator_gear"):
        np.testing.assert_array_equal(getattr(model, name), getattr(stock, name))


@pytest.mark.parametrize("family", [RANDOM_HOPPER, RANDOM_WALKER], ids=lambda it: it.name)
def test_model_of_a_task_is_one_compiled_with_explicit_numbers(family):
    # The oracle is told each part's mass before it is compiled: MuJoCo derives inertia and constants by itself.
    task = some_body(family, 3)
    model, stock = one_model(family, task), one_model(family, family.stock_task)
    spec = load_spec(family)
    spec.option.gravity[2] = -float(str(task.gravity))
    bodies = [stock.body(index).name for index in range(1, stock.nbody)]
    for index, name in enumerate(bodies):
        geom = spec.geom(f"{name}_geom")
        geom.size[0] *= float(task.thickness[index])
        geom.friction[0] *= float(task.friction[index])
        geom.mass = stock.body(name).mass[0] * float(task.mass[index])
    spec.geom("floor").friction[0] *= float(task.friction[-1])
    oracle = compile_spec(spec)
    names = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_subtreemass", "body_invweight0")
    for name in (*names, "dof_invweight0", "dof_M0", "actuator_acc0", "geom_size", "geom_friction", "geom_rbound"):
        np.testing.assert_allclose(getattr(model, name), getattr(oracle, name), rtol=1e-9, atol=1e-12, err_msg=name)
    for name in ("meanmass", "meaninertia"):  # the solver's tolerance is in units of the latter
        np.testing.assert_allclose(getattr(model.stat, name), getattr(oracle.stat, name), rtol=1e-9, err_msg=name)
    np.testing.assert_array_equal(model.opt.gravity, oracle.opt.gravity)
    assert not np.allclose(model.body_inertia, stock.body_inertia, rtol=0.05)


def test_thickness_changes_inertia_at_the_same_mass():
    task = RANDOM_HOPPER.stock_task._replace(thickness=np.array([2.0, 1.0, 1.0, 1.0], np.float32))
    stock, model = one_model(RANDOM_HOPPER, RANDOM_HOPPER.stock_task), one_model(RANDOM_HOPPER, task)
    np.testing.assert_allclose(model.body_mass, stock.body_mass, rtol=1e-12)
    assert model.geom("torso_geom").size[0] == 2 * stock.geom("torso_geom").size[0]
    # About its axis a capsule of mass m and radius r has between m r²/2 (cylinder) and 2 m r²/5 (ball).
    axis = model.body("torso").inertia.min() / (model.body("torso").mass[0] * model.geom("torso_geom").size[0] ** 2)
    assert 0.4 < axis < 0.5
    np.testing.assert_allclose(model.body_inertia[2:], stock.body_inertia[2:], rtol=1e-9)


@pytest.mark.parametrize("family", [RANDOM_HOPPER, RANDOM_WALKER], ids=lambda it: it.name)
def test_each_quantity_reaches_the_model_alone(family):
    stock, task = one_model(family, family.stock_task), some_body(family)
    parts = PARTS[family.name]
    heavy = one_model(family, family.stock_task._replace(gravity=task.gravity))
    np.testing.assert_allclose(heavy.opt.gravity, [0, 0, -task.gravity], rtol=1e-6)
    np.testing.assert_array_equal(heavy.body_inertia, stock.body_inertia)
    slippery = one_model(family, family.stock_task._replace(friction=task.friction))
    ratio = slippery.geom_friction / stock.geom_friction
    np.testing.assert_allclose(ratio[0], [task.friction[-1], 1, 1], rtol=1e-6)
    np.testing.assert_allclose(ratio[1:, 0], task.friction[:parts], rtol=1e-6)
    np.testing.assert_array_equal(ratio[:, 1:], 1.0)
    np.testing.assert_array_equal(slippery.body_inertia, stock.body_inertia)


def test_reacher_links_are_as_long_as_the_task_says():
    # The tip, by the model's own kinematics, is where the family's formula puts it; mass follows the length.
    task = Links(np.array([0.6, 1.4], np.float32))
    stock, model = one_model(RANDOM_REACHER, RANDOM_REACHER.stock_task), one_model(RANDOM_REACHER, task)
    data = mujoco.MjData(model)
    for angles in ((0.0, 0.0), (0.7, -1.3), (-2.0, 0.4)):
        data.qpos[:2] = angles
        mujoco.mj_forward(model, data)
        tip = fingertip(jnp.asarray(data.qpos, jnp.float32), task)
        np.testing.assert_allclose(data.body("fingertip").xpos[:2], tip, rtol=1e-5, atol=1e-6)
    for name, factor in (("link0", 0.6), ("link1", 1.4)):
        np.testing.assert_allclose(model.geom(name).size[1], factor * stock.geom(name).size[1], rtol=1e-6)
    assert model.body("body0").mass < stock.body("body0").mass
    assert model.body("body1").mass > stock.body("body1").mass


def test_tasks_alike_share_a_model():
    task = some_body(RANDOM_HOPPER)
    other = task._replace(gravity=np.float32(5.0))
    a, b, c = build_models(RANDOM_HOPPER, [task, other, jax.tree.map(np.copy, task)])
    assert a is c
    assert a is not b
    same = build_models(DIRECTIONAL_HOPPER, [DIRECTIONAL_HOPPER.stock_task, DIRECTIONAL_HOPPER.stock_task])
    assert same[0] is same[1]


def test_a_task_must_not_change_the_size_of_the_model():
    def grow(spec, task):
        ball = spec.worldbody.add_body(name="ball")
        ball.add_freejoint()
        ball.add_geom(size=[0.1, 0, 0])

    with pytest.raises(BadInput, match="must not change the size"):
        build_models(replace(RANDOM_HOPPER, edit=grow, scale=None), [RANDOM_HOPPER.stock_task])


def test_model_files_are_found_or_missed_in_a_sentence(tmp_path, monkeypatch):
    assert model_path("gymnasium:hopper.xml").is_file()
    with pytest.raises(BadInput, match="there is no model file"):
        model_path("gymnasium:hoper.xml")
    with pytest.raises(BadInput, match="there is no model file"):
        model_path(str(tmp_path / "none.xml"))
    bad = tmp_path / "bad.xml"
    bad.write_text("<mujoco><wordlbody/></mujoco>")
    with pytest.raises(BadInput, match="MuJoCo cannot read"):
        load_spec(replace(RANDOM_HOPPER, model=str(bad)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"install epg\[robotics\]"):
        model_path("gymnasium_robotics:fetch/reach.xml")


@pytest.mark.parametrize(
    "name", ["random-hopper", "random-walker", "directional-half-cheetah", "goal-ant", "random-reacher"]
)
def test_leaving_islands_out_changes_no_bit(name):
    # The flag is set because it is faster; MuJoCo's own search for islands is the oracle.
    family = find_family(name)
    without = compile_spec(load_spec(family))
    flag = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    assert without.opt.disableflags & flag
    searching = compile_spec(load_spec(family))
    searching.opt.disableflags &= ~flag
    rng, ends = np.random.default_rng(0), []
    ctrls = rng.uniform(-1.0, 1.0, size=(200, without.nu))
    for model in (without, searching):
        data = mujoco.MjData(model)
        for ctrl in ctrls:
            data.ctrl[:] = ctrl
            mujoco.mj_step(model, data)
        ends.append(np.concatenate([data.qpos, data.qvel]))
    np.testing.assert_array_equal(*ends)
    assert np.abs(ends[0]).max() < 1e3


def test_what_only_a_camera_sees_is_left_out():
    assert load_spec(RANDOM_HOPPER).compile().ntex == 0
    assert load_spec(RANDOM_HOPPER, visible=True).compile().ntex > 0


# --- batches --------------------------------------------------------------------------------------------------------

SWING = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="puller" mocap="true" pos="0 0 1"/>
    <body name="pole" pos="0 0 1">
      <joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05"/>
      <site name="tip" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" gear="2"/></actuator>
  <sensor><framepos objtype="site" objname="tip"/><framequat objtype="body" objname="puller"/></sensor>
</mujoco>
"""


@pytest.fixture
def swing(tmp_path):
    """Return a family with sensors and a mocap body: tasks are gravities."""
    path = tmp_path / "swing.xml"
    path.write_text(SWING)
    return MujocoFamily(
        name="swing",
        version=1,
        summary="",
        spaces=Spaces(observation=3, action=1),
        horizon=20,
        sample=lambda key: jax.random.uniform(key, minval=5.0, maxval=15.0),
        model=str(path),
        fast=Clock(0.02, 2),
        stock=Clock(0.01, 4, "euler", separate=True),
        reset=lambda key, task: (jax.random.uniform(key, (1,)), jnp.zeros(1)),
        observe=lambda state, task: state.sensors[:3],
        reward_and_done=lambda state, action, task: (state.sensors[2], jnp.array(False)),
        action_to_ctrl=lambda state, action, task: jnp.concatenate(
            [action, jnp.array([0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0])]
        ),
        edit=lambda spec, task: spec.option.gravity.__setitem__(2, -float(task)),
    )


def tip(angle):
    """Return where the tip of the pole is."""
    return np.stack([-0.5 * np.sin(angle), 0 * angle, 1 - 0.5 * np.cos(angle)], axis=-1)


@pytest.mark.parametrize("reference", [False, True])
def test_sensors_tell_the_initial_state_and_then_one_substep_before(swing, reference):
    family = swing.reference if reference else swing
    assert family.sizes == (1, 1, 7)
    simulator = family.simulate([np.float32(5.0), np.float32(15.0)])
    states = simulator.prepare(np.array([[[0.3, 0.0], [1.0, 0.0]], [[0.5, 0.0], [-0.2, 1.0]]], np.float32))
    np.testing.assert_allclose(states[..., 2:5], tip(states[..., 0]), atol=1e-6)
    readout = simulator.begin(states[0])
    np.testing.assert_allclose(family.sim_state(readout[1]).sensors[:3], tip(1.0), atol=1e-6)
    before = readout[:, 0]
    readout = simulator.advance(np.tile([0.5, 0, 0, 1, 0, 0, 1, 0], (2, 1)), states[0])
    sensed = readout[:, 3:6]
    angle = np.arcsin(np.clip(-sensed[:, 0] / 0.5, -1, 1))
    assert (np.abs(angle - readout[:, 0]) > 1e-6).all()  # not the newest state
    nearer = np.abs(angle - readout[:, 0]) < np.abs(before - readout[:, 0])
    assert nearer.all()  # but nearer to it than the one before
    np.testing.assert_allclose(readout[:, 6:10], np.tile([0, 0, 1, 0], (2, 1)), atol=1e-6)  # the mocap body has turned
    np.testing.assert_allclose(readout[:, 2], (readout[:, 0] - before) / 0.04, rtol=1e-4)  # mean velocity
    np.testing.assert_array_equal(readout[:, -1], 1.0)


def test_a_reset_of_one_row_begins_at_its_sensed_state(swing):
    simulator = swing.simulate([np.float32(9.0)] * 2)
    states = simulator.prepare(np.array([[0.3, 0.0], [1.0, 0.0]], np.float32))
    simulator.begin(states)
    ctrl = np.tile([0.5, 0, 0, 1, 1, 0, 0, 0], (2, 1)).astype(float)
    simulator.advance(ctrl, states)
    moved = simulator.state.copy()
    simulator.reset(np.array([False, True]), states)
    np.testing.assert_array_equal(simulator.state[0], moved[0])
    np.testing.assert_allclose(simulator.state[1, 1:], [1.0, 0.0])
    np.testing.assert_array_equal(swing.initial_readout(jnp.asarray(states[1]))[:2], states[1][:2])


def batch(family, tasks, poses=None):
    """Return a simulator at the start of episodes, with their initial states."""
    simulator = family.simulate(tasks)
    keys = jax.random.split(jax.random.key(0), len(tasks))
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *tasks)
    states = np.asarray(jax.vmap(family.initial_state)(keys, stacked)) if poses is None else poses
    simulator.begin(states)
    return simulator, states


@pytest.mark.parametrize("name", ["random-hopper", "random-hopper@reference"])
def test_rows_are_independent(name):
    family = find_family(name)
    tasks, rng = [some_body(family, seed) for seed in range(3)], np.random.default_rng(0)
    simulator, states = batch(family, tasks)
    alone = [batch(family, [task], states[row : row + 1])[0] for row, task in enumerate(tasks)]
    for _ in range(30):
        ctrl = rng.uniform(-1, 1, (3, 3))
        readout = simulator.advance(ctrl, states)
        for row, one in enumerate(alone):
            np.testing.assert_array_equal(one.advance(ctrl[row : row + 1], states[row : row + 1])[0], readout[row])


@pytest.mark.parametrize("name", ["random-hopper", "random-hopper@reference"])
@pytest.mark.parametrize(
    ("columns", "value"),
    [(slice(1, 2), 1e9), (slice(7, 13), 1e9), (slice(7, 13), 1e200), (slice(7, 8), np.nan)],
    ids=["far", "fast", "immensely", "nan"],
)
def test_divergence_is_flagged_and_leaves_neighbours_bits(name, columns, value):
    family = find_family(name)
    tasks, rng = [some_body(family, seed) for seed in range(3)], np.random.default_rng(0)
    (sound, states), (simulator, _) = batch(family, tasks), batch(family, tasks)
    for step in range(20):
        ctrl = rng.uniform(-1, 1, (3, 3))
        expected = sound.advance(ctrl, states)
        if step == 5:
            simulator.state[1, columns] = value
        readout = simulator.advance(ctrl, states)
        assert readout.dtype == np.float32
        assert np.isfinite(readout).all()
        np.testing.assert_array_equal(readout[[0, 2]], expected[[0, 2]])
        assert readout[1, -1] == (step != 5)
        if step == 5:
            np.testing.assert_array_equal(readout[1], 0.0)
            for it in (sound, simulator):
                it.reset(np.array([False, True, False]), states)
        if step > 5:
            np.testing.assert_array_equal(readout[1], expected[1])  # nothing is left of it


def masses(family, torso: float, next_part: float):
    """Return the stock task with these factors on the masses, by turns from the torso outwards."""
    factors = np.where(np.arange(PARTS[family.name.partition("@")[0]]) % 2, next_part, torso)
    return jax.tree.map(np.asarray, family.stock_task._replace(mass=factors.astype(np.float32)))


@pytest.mark.parametrize("name", ["random-hopper", "random-hopper@reference", "random-walker"])
@pytest.mark.parametrize(
    ("torso", "next_part", "diverges"),
    [
        (1e-12, 1e-12, False),
        (1e12, 1e12, False),
        (1e-12, 1e12, None),
        (1e12, 1e-12, None),
        (1e-30, 1e30, True),
        (0.0, 0.0, False),
        (-1.0, 1.0, True),
        (np.inf, 1.0, True),
    ],
)
def test_absurd_masses_are_flagged_and_leave_neighbours_bits(name, torso, next_part, diverges):
    # Within 30 steps a body diverges, or not; None: that depends on its last bits.
    family, rng = find_family(name), np.random.default_rng(0)
    tasks = [some_body(family, seed) for seed in range(3)]
    (sound, states), diverged = batch(family, tasks), False
    tasks[1] = masses(family, torso, next_part)
    simulator, _ = batch(family, tasks)
    for _ in range(30):
        ctrl = rng.uniform(-1, 1, (3, family.spaces.action))
        expected, readout = sound.advance(ctrl, states), simulator.advance(ctrl, states)
        assert np.isfinite(readout).all()
        np.testing.assert_array_equal(readout[[0, 2]], expected[[0, 2]])
        diverged |= bool(readout[1, -1] == 0.0)
        simulator.reset(readout[:, -1] == 0.0, states)
    assert diverges in (None, diverged)


@pytest.mark.parametrize("name", ["random-hopper", "random-hopper@reference"])
@pytest.mark.parametrize("ctrl", [1e11, -1e30, np.inf, np.nan])
def test_a_ctrl_that_mujoco_would_take_for_zero_is_divergence(name, ctrl):
    family = find_family(name)
    tasks = [some_body(family, seed) for seed in range(3)]
    (sound, states), (simulator, _) = batch(family, tasks), batch(family, tasks)
    push = np.full((3, 3), 0.3)
    expected, wild = sound.advance(push, states), push.copy()
    wild[1, 2] = ctrl
    readout = simulator.advance(wild, states)
    np.testing.assert_array_equal(readout[[0, 2]], expected[[0, 2]])
    np.testing.assert_array_equal(readout[1], 0.0)
    np.testing.assert_array_equal(simulator.state[1, 1:], states[1])  # where it stood


def test_a_ctrl_that_divides_by_zero_is_not_taken_for_zero():
    family = replace(RANDOM_HOPPER, action_to_ctrl=lambda state, action, task: action / state.qpos_rate[0])
    ctrl = family.to_ctrl(jnp.zeros(family.readout_size), jnp.array([1.0, 0.0, -1.0]), family.stock_task)
    np.testing.assert_array_equal(ctrl, np.nan)


@pytest.mark.parametrize(
    ("name", "engine"), [("random-hopper", BatchEngine), ("random-hopper@reference", SeparateEngine)]
)
def test_the_clock_chooses_the_engine(name, engine):
    family = find_family(name)
    simulator = family.simulate([family.stock_task])
    assert type(simulator._engine) is engine
    assert simulator._engine.frame_skip == family.fast.frame_skip
    assert simulator.interval == pytest.approx(0.008)  # the control interval of both clocks


def test_partial_advance_moves_only_those_rows():
    tasks = [some_body(RANDOM_HOPPER, seed) for seed in range(4)]
    (every, states), (part, _) = batch(RANDOM_HOPPER, tasks), batch(RANDOM_HOPPER, tasks)
    ctrl, rows, before = np.full((4, 3), 0.3), np.array([1, 3]), part.state.copy()
    whole, some = every.advance(ctrl, states), part.advance(ctrl, states, rows)
    np.testing.assert_array_equal(some[rows], whole[rows])
    np.testing.assert_array_equal(part.state[rows], every.state[rows])
    np.testing.assert_array_equal(part.state[[0, 2]], before[[0, 2]])
    assert np.isfinite(some).all()


def test_sensors_that_are_not_finite_are_divergence(swing):
    simulator = swing.simulate([np.float32(9.0)] * 2)
    states = simulator.prepare(np.array([[0.3, 0.0], [1.0, 0.0]], np.float32))
    simulator.begin(states)
    ctrl = np.tile([0.5, 0, 0, 1, 1, 0, 0, 0], (2, 1)).astype(float)
    ctrl[1, 4:] = np.nan  # how the mocap body is turned: nothing but a sensor tells
    readout = simulator.advance(ctrl, states)
    assert np.isfinite(readout).all()
    np.testing.assert_array_equal(readout[:, -1], [1.0, 0.0])
