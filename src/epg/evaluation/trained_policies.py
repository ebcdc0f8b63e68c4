"""Policies of the trained baselines on held-out tasks: MAML after its updates, RL² and fixed policies as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jax.flatten_util import ravel_pytree

from epg.baselines.maml import Maml
from epg.core.errors import require
from epg.evaluation.protocol import Method
from epg.families.registry import find_family
from epg.learners.base import Learner
from epg.learners.frozen import Frozen
from epg.lifetime.normalizer import FixedStats
from epg.policies.mlp import MlpPolicy
from epg.policies.trained import TrainedPolicy
from epg.settings import LifetimeSettings, LossSettings, MamlSettings, Settings, from_dict, to_dict

LABELS = {
    "fixed": "best fixed linear policy",
    "fixed-ppo": "best fixed {sizes} policy (PPO)",
    "maml": "MAML",
    "rl2": "RL²",
}
"""Names in tables; sizes are the widths of the hidden layers."""
MAML_METHODS = (("maml", "1 update", 1), ("maml-10", "10 updates", 10))
"""After how many updates MAML is scored (paper, Figures 9 and 18)."""


def policy_methods(trained: TrainedPolicy, settings: Settings, steps: int | None = None) -> list[Method]:
    """Return how a trained policy lives on tasks: MAML for 1 and 10 updates of so many steps, others for so many steps.

    By default the steps are those it was trained with; for a fixed policy those of the settings' lifetime.
    """
    _check_fit(trained, settings.family)
    name = trained.manifest["baseline"]
    options = trained.manifest["options"]
    if name != "maml":
        lived = _lived(settings, steps or options.get("lifetime_steps", settings.lifetime.steps), 1)
        return [_method(name, _label(trained), trained, lived, Frozen())]
    maml = from_dict(MamlSettings, options, "the policy's options")
    steps = maml.batch_steps if steps is None else steps
    require(steps > 0, f"the steps of an update of MAML must be above zero, not {steps}.")
    learner = Maml(maml, settings.ppo, trained.policy)
    return [
        _method(short, f"MAML, {label}", trained, _lived(settings, steps, updates), learner)
        for short, label, updates in MAML_METHODS
    ]


def _lived(settings: Settings, steps: int, updates: int) -> Settings:
    """Return settings of lifetimes of so many updates, each on so many steps."""
    episodes = settings.lifetime.scoring_episodes
    return Settings(
        family=settings.family,
        policy=replace(settings.policy, obs_stats="fixed"),
        loss=LossSettings(window=steps, temporal="none"),
        lifetime=LifetimeSettings(steps, updates=updates, minibatch=steps, scoring_episodes=episodes),
        ppo=settings.ppo,
    )


def _label(trained: TrainedPolicy) -> str:
    """Return the name of a policy in tables."""
    sizes = trained.policy.settings.hidden if isinstance(trained.policy, MlpPolicy) else ()
    return LABELS[trained.manifest["baseline"]].format(sizes=" x ".join(map(str, sizes)))


def _method(name: str, label: str, trained: TrainedPolicy, settings: Settings, learner: Learner) -> Method:
    stats, spent = FixedStats(trained.mean, trained.std), trained.manifest["env_steps"]
    init = ravel_pytree(trained.params)[0]
    return Method(name, label, settings, learner, np.zeros(0, np.float32), stats, False, trained.policy, init, spent)


def _check_fit(trained: TrainedPolicy, family: str) -> None:
    """Refuse a policy that no baseline trained, or that was trained for other spaces."""
    require(
        trained.manifest.get("baseline") in LABELS,
        f"the policy was trained by {trained.manifest['trained_by']}: name one of epg baseline {', '.join(LABELS)}.",
    )
    spaces = to_dict(find_family(family).spaces)
    made_for = {name: trained.manifest["spaces"][name] for name in ("observation", "action", "discrete")}
    require(
        all(spaces[name] == size for name, size in made_for.items()),
        f"the policy does not fit {family}: it was trained for {trained.manifest['family']}.",
    )
