"""Start from a policy: a loss whose target action starts as a given linear policy (baselines/fixed_policy.py).

What such a loss teaches at first is that policy. Only what evolution adds over the policy's own return counts, so the
start is declared in the manifest and in every table.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from epg.core.errors import require
from epg.core.rng import Stream, run_key
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.loss.init import shift_targets
from epg.policies.mlp import MlpPolicy
from epg.settings import Settings
from epg.storage.policy_artefact import load_policy
from epg.warm_starts import WarmStart


def start_from_policy(path: str | Path, settings: Settings) -> WarmStart:
    """Return the initial loss with its target action moved to a linear policy."""
    artefact = load_policy(path)
    manifest, spaces = artefact.manifest, find_family(settings.family).spaces
    require(manifest["policy"].get("type") == "linear", f"{path} is not a linear policy: only one can start a loss.")
    require(
        manifest["family"] == settings.family, f"{path} is a policy for {manifest['family']}, not {settings.family}."
    )
    require(settings.loss.init == "target-action", "a start from a policy needs --loss.init target-action.")
    require(settings.has_loss, "a start from a policy needs a loss: no --evolve-init ppo.")
    require(settings.policy.obs_stats == "fixed", "a start from a policy needs --policy.obs_stats fixed.")
    learned = LearnedLoss(settings.loss, MlpPolicy(settings.policy, spaces), spaces)
    fresh = learned.unravel(learned.initial_phi(run_key(settings.seed, Stream.LOSS)))
    moved = shift_targets(fresh, jnp.asarray(artefact.tensors["weights"]), settings.loss, spaces)
    stats = {name: artefact.tensors[name] for name in ("obs_mean", "obs_std")}
    source = {"kind": "policy", "family": manifest["family"], "sha256": manifest["sha256"]}
    steps = manifest["env_steps"]
    return WarmStart(np.asarray(ravel_pytree(moved)[0]), stats, steps, {**source, "env_steps": steps})
