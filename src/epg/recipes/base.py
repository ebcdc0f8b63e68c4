"""What a recipe is: how to evolve a loss for one family, the paper's sizes for it, and PPO tuned on it. No JAX here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from epg.core.errors import require
from epg.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    LossInput,
    LossSettings,
    MamlSettings,
    PolicySettings,
    PPOSettings,
    RL2Settings,
    Settings,
)

PresetName = Literal["smoke", "laptop", "paper"]
PRESETS: tuple[PresetName, ...] = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class PPOTuning:
    """Settings of PPO for one family and one length of lifetime."""

    steps_per_update: int = 128
    update_epochs: int = 10
    minibatch: int = 32
    learning_rate: float = 1e-3
    learning_rate_end: float | None = None
    entropy_weight: float = 0.0
    log_std: float | None = None
    """Initial log standard deviation; by default that of the loss it is compared with."""
    obs_stats: Literal["running", "fixed"] = "running"
    """`fixed` only where the loss it is compared with has measured them."""


@dataclass(frozen=True)
class Recipe:
    """All that is chosen for one family."""

    laptop: Settings
    """Settings of the `laptop` preset. Its `family` is the family the recipe was made for."""
    paper_inputs: tuple[LossInput, ...] = ()
    """Loss inputs of the `paper` preset, beside those that every loss has."""
    paper_sizes: tuple[int, int] = (32, 256)
    """M and the number of updates in Table 1."""
    ppo: Mapping[int, PPOTuning] = field(default_factory=dict)
    """Steps of a lifetime -> PPO's best settings in a search on training tasks (tools/tune_ppo.py)."""

    maml: MamlSettings | None = None
    """MAML's settings (docs/lab.md says which were searched); None: `default_maml`."""
    rl2: RL2Settings | None = None
    """RL²'s settings (docs/lab.md says which were searched); None: `default_rl2`."""

    def tuned_ppo(self, steps: int) -> PPOTuning:
        """Return PPO's settings at the length of lifetime that is nearest in proportion; defaults without a search."""
        require(steps > 0, f"PPO's steps must be above zero, not {steps}.")
        if not self.ppo:
            return PPOTuning()
        return self.ppo[min(self.ppo, key=lambda length: abs(math.log(length / steps)))]


def default_maml(laptop: Settings) -> MamlSettings:
    """Return settings of MAML for a family without a search: an inner update on as many steps as a lifetime has."""
    return MamlSettings(batch_steps=laptop.lifetime.steps, policy=replace(laptop.policy, obs_stats="fixed"))


def default_rl2(laptop: Settings) -> RL2Settings:
    """Return settings of RL² for a family without a search: lifetimes as long as those of a loss."""
    return RL2Settings(lifetime_steps=laptop.lifetime.steps, policy=replace(laptop.policy, obs_stats="fixed"))


def default_recipe(family: str) -> Recipe:
    """Return the recipe of a family that has none: default settings, nothing tuned."""
    return Recipe(Settings(family=family))


def smoke(laptop: Settings) -> Settings:
    """Shrink the laptop preset to seconds, for tests; the networks keep their shape."""
    return replace(
        laptop,
        loss=replace(laptop.loss, window=64),
        lifetime=replace(laptop.lifetime, steps_per_update=32, minibatch=32, updates=4, scoring_episodes=3),
        evolution=replace(laptop.evolution, epochs=4, noise_vectors=4, lifetimes=8, shard=4),
    )


def paper_lifetime(recipe: Recipe) -> LifetimeSettings:
    """Return the paper's lifetime: M and updates of Table 1, minibatches of 32, each transition once."""
    steps, updates = recipe.paper_sizes
    return LifetimeSettings(steps_per_update=steps, updates=updates, learning_rate=1e-3)


def paper(recipe: Recipe, family: str) -> Settings:
    """Return section 4 and Table 1 of the paper, for a cluster."""
    return Settings(
        family=family,
        loss=LossSettings(window=512, inputs=recipe.paper_inputs, init="random"),
        lifetime=paper_lifetime(recipe),
        guidance=GuidanceSettings(learner="ppo", epochs=500),
        evolution=EvolutionSettings(
            epochs=5000,
            noise_vectors=64,
            lifetimes=256,
            task_sharing="none",
            sigma=0.01,  # not in the paper; the 2018 code's value
            step_size=1e-2,
            step_size_end=1e-3,
            anneal_epochs=2000,
            betas=(0.0, 0.999),
            l2=0.001,
        ),
    )


def for_ppo(settings: Settings, recipe: Recipe) -> Settings:
    """Return settings that evolve an initial policy for tuned PPO (PPO+I): as many steps, the same evolution."""
    ppo = ppo_settings(settings, recipe.tuned_ppo(settings.lifetime.steps), None, has_stats=True)
    return replace(ppo, seed=settings.seed, evolution=settings.evolution, evolve_init="ppo")


def ppo_settings(settings: Settings, tuning: PPOTuning, steps: int | None, has_stats: bool) -> Settings:
    """Return settings of PPO lifetimes for as many steps as a loss has, unless `steps` says otherwise.

    Policies are those of the loss, except for log-std and observation statistics where PPO prefers others.
    """
    require(steps is None or steps > 0, f"PPO's steps must be above zero, not {steps}.")
    steps = steps or settings.lifetime.steps
    size = math.gcd(tuning.steps_per_update, steps)
    lifetime = LifetimeSettings(
        steps_per_update=size,
        updates=steps // size,
        minibatch=math.gcd(tuning.minibatch, size),
        update_epochs=tuning.update_epochs,
        learning_rate=tuning.learning_rate,
        learning_rate_end=tuning.learning_rate_end,
        scoring_episodes=settings.lifetime.scoring_episodes,
    )
    log_std = settings.policy.log_std if tuning.log_std is None else tuning.log_std
    policy: PolicySettings = replace(
        settings.policy, obs_stats=tuning.obs_stats if has_stats else "running", log_std=log_std
    )
    return Settings(
        family=settings.family,
        policy=policy,
        loss=LossSettings(window=max(size, settings.loss.window)),
        lifetime=lifetime,
        ppo=PPOSettings(entropy_weight=tuning.entropy_weight),
    )
