"""fetch-reach: FetchReach-v4 itself as the oracle, its documented geometry, and the arm's kinematics."""

import warnings
from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from epg.core.errors import BadInput
from epg.core.types import MetaParams
from epg.families.mujoco import fetch
from epg.families.mujoco.base import SimState
from epg.families.mujoco.fetch import CENTRE, FETCH_REACH, START, Target
from epg.families.registry import find_family
from epg.learners.registry import policy_gradient
from epg.lifetime.batch import inner_config
from epg.lifetime.host_driver import HostDriver
from epg.lifetime.normalizer import STD_FLOOR, normalize
from epg.policies.mlp import MlpPolicy
from epg.settings import LifetimeSettings, PolicySettings, Settings
from epg.simulators.mujoco import build_models

STOCK = FETCH_REACH.stock_task
observation, to_ctrl = jax.jit(FETCH_REACH.observation), jax.jit(FETCH_REACH.to_ctrl)


class _Numbers:
    """An enumeration of MuJoCo's whose members are plain numbers."""

    def __init__(self, enumeration) -> None:
        self.enumeration = enumeration

    def __getattr__(self, name: str) -> int:
        return int(getattr(self.enumeration, name))


class _OlderMujoco:
    """MuJoCo as Gymnasium-Robotics 1.4.2 expects it: enumerations that equal the numbers in a model."""

    mjtJoint, mjtEq = _Numbers(mujoco.mjtJoint), _Numbers(mujoco.mjtEq)

    def __getattr__(self, name: str):
        return getattr(mujoco, name)


@pytest.fixture(scope="module")
def oracle():
    """Return FetchReachDense-v4, which MuJoCo 3.17 lets nobody construct without a little help."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnasium_robotics
        from gymnasium_robotics.utils import mujoco_utils

        gymnasium.register_envs(gymnasium_robotics)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mujoco_utils, "mujoco", _OlderMujoco())
            environment = gymnasium.make("FetchReachDense-v4").unwrapped
            yield environment
            environment.close()


@pytest.fixture(scope="module")
def model():
    """Return the compiled model."""
    return build_models(FETCH_REACH, [STOCK])[0]


def test_kinematics_are_mujocos(model, rng):
    data = mujoco.MjData(model)
    for _ in range(20):
        data.qpos[:], data.qvel[:] = rng.uniform(-1.5, 1.5, 15), rng.normal(size=15)
        mujoco.mj_forward(model, data)
        qpos, qvel = jnp.asarray(data.qpos, jnp.float32), jnp.asarray(data.qvel, jnp.float32)
        place, turn = fetch.hand(qpos)
        np.testing.assert_allclose(place, data.body("robot0:gripper_link").xpos, atol=2e-6)
        np.testing.assert_allclose(turn, data.body("robot0:gripper_link").xquat, atol=1e-6)
        jacobian = np.zeros((3, 15))
        mujoco.mj_jacSite(model, data, jacobian, None, model.site("robot0:grip").id)
        seen = np.asarray(observation(jnp.concatenate([qpos, qvel, jnp.zeros(15), jnp.ones(1)]), STOCK))
        np.testing.assert_allclose(seen[:3], data.site("robot0:grip").xpos, atol=2e-6)
        np.testing.assert_allclose(seen[5:8], 0.04 * jacobian @ data.qvel, atol=1e-5)
        np.testing.assert_allclose(seen[[3, 4, 8, 9]], [*data.qpos[13:], *(0.04 * data.qvel[13:])], atol=1e-6)


def test_start_is_as_documented():
    # "the gripper is placed in (x, y, z) = [1.3419 0.7491 0.555] m, its orientation is [1.0, 0.0, 1.0, 0.0]",
    # "the base will always be fixed at [0.405, 0.48, 0]"; all of it rounded by its authors.
    qpos, qvel = fetch.reset(jax.random.key(0), STOCK)
    place, turn = fetch.hand(qpos)
    np.testing.assert_allclose(place, [1.3419, 0.7491, 0.555], atol=5e-4)
    np.testing.assert_allclose(turn / np.linalg.norm(turn), np.array([1, 0, 1, 0]) / np.sqrt(2), atol=5e-4)
    np.testing.assert_allclose(qpos[:3], [0.405, 0.48, 0.0], atol=2e-4)
    np.testing.assert_allclose(fetch.grip(qpos), CENTRE, atol=3e-6)
    assert np.abs(np.asarray(qvel)).max() < 0.01


def test_start_and_goals_are_the_oracles(oracle):
    seen, _ = oracle.reset(seed=0)
    np.testing.assert_allclose(np.array(START[0])[:13], oracle.data.qpos[:13], atol=1e-8)
    np.testing.assert_allclose(np.array(START[1])[:13], oracle.data.qvel[:13], atol=1e-8)
    np.testing.assert_allclose(CENTRE, oracle.initial_gripper_xpos, atol=1e-6)
    task = Target(jnp.asarray(seen["desired_goal"] - np.array(CENTRE), jnp.float32))
    np.testing.assert_allclose(fetch.goal(task), seen["desired_goal"], atol=1e-6)
    goals = np.array([oracle.reset(seed=seed)[0]["desired_goal"] for seed in range(50)]) - CENTRE
    assert 0.14 < np.abs(goals).max() <= 0.15 + 1e-5  # the cube our tasks are drawn from


@pytest.mark.parametrize("seed", [0, 1])
def test_reference_follows_the_oracle(oracle, seed):
    # 50 random actions, both pulled from where they are: gripper and reward to a tenth of a millimetre. Fingers, which
    # the oracle puts back to zero after every action, have their last word in the observation's last two numbers.
    seen, _ = oracle.reset(seed=seed)
    task = Target(jnp.asarray(seen["desired_goal"] - np.array(CENTRE), jnp.float32))
    family, rng = FETCH_REACH.reference, np.random.default_rng(seed)
    simulator = family.simulate([task])
    states = np.asarray(family.initial_state(jax.random.key(0), task))[None]
    readout = simulator.begin(states)
    rewarded = jax.jit(lambda readout: family.reward_and_done(family.sim_state(readout), jnp.zeros(4), task)[0])
    for _ in range(50):
        action = rng.uniform(-1.5, 1.5, 4).astype(np.float32)
        seen, reward, *_ = oracle.step(action)
        readout = simulator.advance(np.asarray(to_ctrl(readout[0], action, task))[None], states)
        ours = np.asarray(observation(readout[0], task))
        np.testing.assert_allclose(ours[:5], seen["observation"][:5], atol=1e-4)
        np.testing.assert_allclose(ours[5:8], seen["observation"][5:8], atol=1e-4)
        np.testing.assert_allclose(ours[10:], seen["desired_goal"], atol=1e-6)
        np.testing.assert_allclose(rewarded(readout[0]), reward, atol=1e-4)
        np.testing.assert_allclose(simulator.state[0, 1:14], oracle.data.qpos[:13], atol=1e-3)
    assert np.abs(ours[:3] - CENTRE).max() > 0.05


def test_mocap_pose_is_the_oracles(oracle):
    # What the arm is pulled to after an action, position and quaternion (MuJoCo normalizes it).
    oracle.reset(seed=0)
    readout = np.concatenate([oracle.data.qpos, oracle.data.qvel, np.zeros(15), np.ones(1)]).astype(np.float32)
    oracle.step(np.array([0.5, -0.2, 2.0, 1.0], np.float32))
    pulled = np.asarray(to_ctrl(readout, jnp.array([0.5, -0.2, 2.0, 1.0]), STOCK))
    np.testing.assert_allclose(pulled[:3], oracle.data.mocap_pos[0], atol=1e-6)
    np.testing.assert_allclose(pulled[3:], oracle.data.mocap_quat[0], atol=1e-6)


@pytest.mark.parametrize("name", ["fetch-reach", "fetch-reach@reference"])
def test_a_hand_that_walks_to_its_target_gets_there(name):
    # The policy is the straight way: action = (target - grip) / 0.05. In 50 steps it is within a centimetre.
    family = find_family(name)
    tasks = [Target(np.array(offset, np.float32)) for offset in ([0.15, 0.15, 0.15], [-0.15, 0.15, -0.1])]
    simulator, batch = family.simulate(tasks), jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
    states = np.tile(np.asarray(family.initial_state(jax.random.key(0), tasks[0])), (2, 1))
    readout = simulator.begin(states)
    look, pull = jax.jit(jax.vmap(family.observation)), jax.jit(jax.vmap(family.to_ctrl))
    for _ in range(50):
        seen = np.asarray(look(readout, batch))
        action = np.pad((seen[:, 10:] - seen[:, :3]) / 0.05, ((0, 0), (0, 1))).astype(np.float32)
        readout = simulator.advance(np.asarray(pull(readout, action, batch)), states)
    assert np.linalg.norm(seen[:, 10:] - seen[:, :3], axis=1).max() < 0.01
    assert np.abs(readout[:, 13:15]).max() < 1e-4  # the fingers stay locked


def test_without_the_models_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"comes with gymnasium-robotics: install epg\[robotics\]"):
        FETCH_REACH.simulate([STOCK])


@pytest.mark.slow
def test_running_statistics_do_not_erase_the_target():
    # The target is constant within a lifetime: normalized by its own running statistics it would be zero in every task.
    settings = Settings(
        "fetch-reach",
        policy=PolicySettings(hidden=(4,)),
        lifetime=LifetimeSettings(16, updates=2, minibatch=16, scoring_episodes=1),
    )
    policy, family = MlpPolicy(settings.policy, FETCH_REACH.spaces), replace(FETCH_REACH, horizon=8)
    learner = policy_gradient("ppo", settings, family.spaces, policy)
    offsets = np.array([[0.15, -0.1, 0.05], [-0.05, 0.12, -0.15]], np.float32)
    tasks, keys = Target(jnp.asarray(offsets)), jax.random.split(jax.random.key(0), 2)
    observed = jax.vmap(lambda task: family.observe(SimState(*map(jnp.array, START), *jnp.zeros((2, 0))), task))(tasks)
    meta = MetaParams(jnp.zeros((2, 0)), jnp.zeros(()), jnp.zeros((2, 0)))

    def normalized(family) -> list[np.ndarray]:
        """Return the normalized targets before each update, and after the last."""
        found = []

        def on_update(index, learners):
            found.append(np.asarray(jax.vmap(normalize)(learners.normalizer.observation, observed))[:, 10:])

        driver = HostDriver(inner_config(settings, learner, policy, family, None), family)
        driver.run(keys, tasks, meta, on_update)
        assert driver._update._cache_size() == 1  # the first update is not compiled apart from the others
        return found

    first, *later = normalized(family)
    np.testing.assert_allclose(first, offsets, atol=1e-6)  # nothing observed yet: only centred
    for target in later:
        np.testing.assert_allclose(target, offsets / max(STD_FLOOR, 0.15 / np.sqrt(3)), rtol=1e-5)
        assert np.abs(target[0] - target[1]).min() > 1.0
    erased = normalized(replace(family, constant_inputs=()))[-1]
    np.testing.assert_allclose(erased, 0.0, atol=1e-5)  # what the declaration is for
