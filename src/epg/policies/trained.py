"""A trained policy: from observations to actions, in NumPy; saved and loaded with its observation statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from epg.core.errors import require
from epg.core.runtime import jit
from epg.core.spaces import Spaces
from epg.families.base import Family
from epg.families.gym_factory import GymFamily
from epg.policies.base import Params, distribution
from epg.policies.linear import LinearPolicy
from epg.policies.mlp import MlpPolicy
from epg.policies.recurrent import RecurrentPolicy
from epg.settings import PolicySettings, Settings, from_dict, to_dict
from epg.simulators.gym import space_from_dict, space_to_dict, to_env_action, to_vector
from epg.storage import policy_artefact

Architecture = MlpPolicy | LinearPolicy | RecurrentPolicy
"""What can be saved."""


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy that acts. `policy(observation)` is its most likely action, `policy(observation, rng)` a sampled one."""

    policy: Architecture
    """Architecture."""
    params: Params
    """Parameters, theta."""
    mean: np.ndarray
    """Mean by which observations are normalized, [O]."""
    std: np.ndarray
    """Their standard deviation, [O]."""
    manifest: dict[str, Any]
    """Family, spaces, who trained it, for how many steps, and the environment's own spaces if it has any."""

    def __call__(self, observation: Any, rng: np.random.Generator | None = None) -> Any:
        """Return the action at an observation of its environment; sampled if there is a generator.

        Of a family made by `epg.gym_family` it is an action of the environment's space, else one in [-1, 1], not
        clipped, or the number of a choice.
        """
        env = self.manifest.get("env")
        if env is None:
            return self.emit(observation, rng)
        seen = to_vector(space_from_dict(env["observation"]), observation)
        return to_env_action(space_from_dict(env["action"]), self.emit(seen, rng))

    def emit(self, observation: Any, rng: np.random.Generator | None = None) -> np.ndarray:
        """Return the action as the policy emits it at a flat observation, [..., O] -> [..., A] or [...]."""
        seen, spaces = np.asarray(observation, np.float32), self.manifest["spaces"]
        size = spaces["observation"]
        require(seen.shape[-1:] == (size,), f"the policy observes {size} numbers, not an array of shape {seen.shape}.")
        noise = None
        if rng is not None:
            shape = (*seen.shape[:-1], spaces["action"])
            noise = (rng.gumbel(size=shape) if spaces["discrete"] else rng.standard_normal(shape)).astype(np.float32)
        architecture: Any = self.policy  # hashable: a frozen record
        remembers = isinstance(architecture, RecurrentPolicy)
        require(not remembers, "a recurrent policy acts within a lifetime only: see epg baseline rl2 and epg compare.")
        return np.asarray(_program(architecture)(self.params, (seen - self.mean) / self.std, noise))

    def save(self, path: str | Path) -> Path:
        """Write it into a directory, for `epg.load_policy`."""
        save_policies(path, [self])
        return Path(path)


@cache
def _program(policy: Any) -> Any:
    """Compile an architecture once for all policies of it."""

    def act(params: Params, observation: Array, noise: Array | None) -> Array:
        emitted = distribution(policy, params, observation)
        return emitted.mode() if noise is None else emitted.sample(noise)

    return jit(act)


def describe(policy: Architecture, settings: Settings, trained_by: str, family: Family | None) -> dict[str, Any]:
    """Return the manifest of a policy that was trained in a family, or (None) in some environment."""
    return {
        "family": settings.family if family is not None else "an environment of your own",
        "family_version": family.version if family is not None else 0,
        "spaces": to_dict(policy.spaces),
        "env_steps": settings.lifetime.steps,
        "trained_by": trained_by,
        "policy": _description(policy),
        "env": env_spaces(family.observation_space, family.action_space) if isinstance(family, GymFamily) else None,
    }


def _description(policy: Architecture) -> dict[str, Any]:
    """Return what `_architecture` rebuilds a policy from."""
    if isinstance(policy, LinearPolicy):
        return {"type": "linear", "log_std": policy.log_std, "products": policy.products}
    recurrent = {"units": policy.units} if isinstance(policy, RecurrentPolicy) else {}
    return {"type": "recurrent" if recurrent else "mlp", **to_dict(policy.settings), **recurrent}


def env_spaces(observation: Any, action: Any) -> dict[str, Any]:
    """Describe the environment that a policy takes observations from and gives actions to."""
    return {"observation": space_to_dict(observation), "action": space_to_dict(action)}


def save_policies(directory: str | Path, policies: Sequence[TrainedPolicy]) -> None:
    """Write a policy, or those of the tasks from 0 on into one artefact."""
    several = {} if len(policies) == 1 else {"tasks": len(policies), "task": 0}
    each = [_tensors(it) for it in policies]
    tensors = {name: np.stack([it[name] for it in each]) if several else each[0][name] for name in each[0]}
    policy_artefact.save_policy(directory, tensors, {**policies[0].manifest, **several})


def load_policy(path: str | Path, task: int = 0) -> TrainedPolicy:
    """Load a policy from its directory, or from a run: the one that its loss trained on the task of this number."""
    artefact = policy_artefact.load_policy(path, task)
    manifest = {name: value for name, value in artefact.manifest.items() if name != "tasks"}
    manifest |= {"task": task} if "tasks" in artefact.manifest else {}
    spaces = from_dict(Spaces, manifest["spaces"], f"{path}: spaces")
    policy = _architecture(manifest["policy"], spaces, f"{path}: policy")
    template = jax.eval_shape(policy.init, jax.random.key(0))
    wanted = {name: leaf.shape for name, leaf in _named(template).items()}
    wanted |= dict.fromkeys(("obs_mean", "obs_std"), (spaces.observation,))
    found = {name: value.shape for name, value in artefact.tensors.items()}
    require(found == wanted, f"{path} is damaged: its tensors are not those of its architecture.")
    require(bool((artefact.tensors["obs_std"] > 0).all()), f"{path} is damaged: obs_std must be above zero.")
    leaves = [jnp.asarray(artefact.tensors[name]) for name in _named(template)]  # on the device: calls are faster
    params = jax.tree.unflatten(jax.tree.structure(template), leaves)
    return TrainedPolicy(policy, params, artefact.tensors["obs_mean"], artefact.tensors["obs_std"], manifest)


def _architecture(described: dict[str, Any], spaces: Spaces, where: str) -> Architecture:
    kind, rest = described.get("type"), {name: it for name, it in described.items() if name != "type"}
    require(kind in ("mlp", "linear", "recurrent"), f"{where} is of an unknown type: {kind!r}.")
    if kind == "mlp":
        return MlpPolicy(from_dict(PolicySettings, rest, where), spaces)
    if kind == "recurrent":
        units = rest.pop("units", None)
        require(type(units) is int and units > 0, f"{where}: units must be above zero, not {units!r}.")
        return RecurrentPolicy(from_dict(PolicySettings, rest, where), spaces, units)
    return from_dict(LinearPolicy, {**rest, "spaces": to_dict(spaces)}, where)


def _named(params: Params) -> dict[str, Any]:
    """Return the leaves of a policy's parameters by name; a lone one is called weights."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator=".") or "weights": leaf for path, leaf in leaves}


def _tensors(policy: TrainedPolicy) -> dict[str, np.ndarray]:
    tensors = {name: np.asarray(leaf) for name, leaf in _named(policy.params).items()}
    return tensors | {"obs_mean": policy.mean, "obs_std": policy.std}
