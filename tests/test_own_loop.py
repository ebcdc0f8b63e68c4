"""A loss in somebody's own loop: the learner's lifetime is that of `epg.learn`, and gradients in outputs are right."""

import importlib.util
from pathlib import Path
from types import ModuleType

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import CONTINUOUS, DISCRETE, fresh_loss, small_loss, small_settings, some_rollout

import epg
from epg.core.errors import BadInput
from epg.core.rng import Stream, run_key
from epg.core.spaces import Spaces
from epg.core.types import InnerParams, MetaParams
from epg.learners.learned import LearnedLoss
from epg.lifetime.outside import LossWindow, OutsideLoss, PolicyOutputs
from epg.lifetime.policy_init import FRESH
from epg.policies.base import distribution
from epg.policies.mlp import MlpPolicy
from epg.settings import EvolutionSettings, LifetimeSettings, PolicySettings
from epg.storage.loss_artefact import LossArtefact
from epg.zoo import Loss

EXAMPLES = Path(__file__).parents[1] / "examples"


def pendulum(seed: int) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1", max_episode_steps=24, g=2.0 + seed % 9)


def cart_pole(seed: int) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=24)


PENDULUMS, CART_POLES = epg.gym_family("pendulums", pendulum), epg.gym_family("cart-poles", cart_pole)
MAKE = {"PENDULUMS": pendulum, "CART_POLES": cart_pole}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loss_for(family: str) -> LossArtefact:
    return fresh_loss(small_settings(f"{__name__}:{family}", 4, EvolutionSettings()))


def pendulum_learner(**options: object) -> epg.Learner:
    env = pendulum(0)
    return epg.Learner(loss_for("PENDULUMS"), env.observation_space, env.action_space, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["PENDULUMS", pytest.param("CART_POLES", marks=pytest.mark.slow)])
def test_the_example_is_the_lifetime_of_learn(family: str, tmp_path: Path) -> None:
    """Same task, same seed: the same episodes and the same policy, up to rounding."""
    assert len((EXAMPLES / "own_loop.py").read_text().splitlines()) <= 30
    loss = loss_for(family)
    result = epg.learn(loss, f"{__name__}:{family}", tasks=2, seed=3, lifetimes=1, run=tmp_path / "run")
    env = MAKE[family](int(result.tasks[0].seed))
    policy, returns = example("own_loop").train(loss, env, seed=3)
    ended = result.first.episode_return[0]
    np.testing.assert_allclose(returns, ended[np.isfinite(ended)], rtol=1e-4)
    assert len(returns) > 1
    for ours, theirs in zip(jax.tree.leaves(policy.params), jax.tree.leaves(result.policies[0].params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(policy.mean, result.policies[0].mean, rtol=1e-4, atol=1e-5)
    again = epg.load_policy(policy.save(tmp_path / "policy"))
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(again(observation))


def test_the_policy_changes_every_m_steps_until_the_lifetime_is_over() -> None:
    learner, rng = pendulum_learner(updates=2), np.random.default_rng(0)
    changed, actions = [], []
    for _ in range(3 * 16):
        seen = rng.normal(size=3)
        actions.append(float(learner.act(seen)[0]))
        before = learner.policy(seen)
        changed.append(learner.observe(seen, learner.act(seen), 1.0, False, False, seen))
        assert changed[-1] == (not np.array_equal(before, learner.policy(seen)))
    assert [index for index, it in enumerate(changed) if it] == [15, 31]
    assert learner.done
    assert learner.updates == 2
    assert all(-2 <= it <= 2 for it in actions)


def test_wrong_use_of_a_learner_is_refused() -> None:
    env, seen = pendulum(0), np.zeros(3)
    learner = pendulum_learner()
    with pytest.raises(BadInput, match="observe needs the action that act returned last"):
        learner.observe(seen, np.zeros(1), 0.0, False, False, seen)
    action = learner.act(seen)
    with pytest.raises(BadInput, match="a reward must be a finite number, not nan"):
        learner.observe(seen, action, float("nan"), False, False, seen)
    with pytest.raises(BadInput, match=r"does not fit these spaces, it was evolved for .*: action 1 instead of 3"):
        epg.Learner(loss_for("PENDULUMS"), env.observation_space, gymnasium.spaces.Box(-1, 1, (3,)))
    with pytest.raises(BadInput, match="observations must be a Box or Discrete space, not Dict"):
        epg.Learner(loss_for("PENDULUMS"), gymnasium.spaces.Dict(), env.action_space)


@pytest.mark.parametrize("spaces", [CONTINUOUS, DISCRETE])
@pytest.mark.parametrize(
    "changes", [{}, {"temporal": "none"}, pytest.param({"temporal": "experience"}, marks=pytest.mark.slow)]
)
def test_the_gradient_in_outputs_is_that_of_the_learner(spaces: Spaces, changes: dict[str, str]) -> None:
    """Backpropagated through a policy, dL/d(outputs) is the learner's own gradient in theta and memory."""
    lifetime, replay = LifetimeSettings(8, minibatch=4), bool(changes)
    policy = MlpPolicy(PolicySettings(hidden=(5,)), spaces)
    learner = LearnedLoss(small_loss("reward", **changes), policy, spaces, replay)
    phi, rng = np.asarray(learner.initial_phi(run_key(1, Stream.LOSS))), np.random.default_rng(2)
    window = LossWindow(learner, lifetime, None, seed=5)
    rollout = some_rollout(rng, spaces, 16)
    ready = [window.add(*(np.asarray(column)[row] for column in list(vars(rollout).values())[:5])) for row in range(16)]
    assert [index for index, it in enumerate(ready) if it] == [7, 15]
    params = InnerParams(policy.init(jax.random.key(0)), jnp.asarray(window.initial_memory))
    rows = window.minibatches()[1]
    assert rows.shape == (4,)
    meta = MetaParams(jnp.asarray(phi), jnp.zeros(()), FRESH)
    assert window.experience is not None
    prepared = learner.prepare(params, window.experience, meta)
    theirs = learner.gradient(params, window.experience, prepared, jnp.asarray(rows), meta)

    def outputs(it: InnerParams) -> PolicyOutputs:
        emitted = distribution(policy, it.policy, window.observations)
        mean = emitted.logits if spaces.discrete else emitted.mean  # type: ignore[union-attr]
        return PolicyOutputs(mean, it.policy.log_std, it.learner)

    made, pull = jax.vjp(outputs, params)
    gradient = OutsideLoss(learner, phi).gradient(window, made, rows)
    assert all(isinstance(it, np.ndarray) for it in gradient)
    (ours,) = pull(PolicyOutputs(*map(jnp.asarray, gradient)))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert any(np.abs(it).max() > 0 for it in jax.tree.leaves(ours))


def test_a_loss_has_a_window_and_refuses_an_empty_one() -> None:
    artefact = loss_for("PENDULUMS")
    loss = Loss(artefact.phi, artefact.tensors, artefact.manifest)
    window = loss.window()
    outputs = PolicyOutputs(np.zeros((24, 1)), np.zeros(1), window.initial_memory)
    with pytest.raises(BadInput, match="the window is empty"):
        loss.gradient(window, outputs, np.arange(8))
    for _ in range(16):
        window.add(np.zeros(3), np.zeros(1), 1.0, False, False)
    assert (window.updates, window.done, window.learning_rate) == (1, False, pytest.approx(1e-2))
    assert loss.gradient(window, outputs, np.arange(8)).mean.shape == (24, 1)
    with pytest.raises(BadInput, match=r"mean must have the shape \(24, 1\), not \(8, 1\)"):
        loss.gradient(window, outputs._replace(mean=np.zeros((8, 1))), np.arange(8))
