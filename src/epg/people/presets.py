"""Presets as typed objects: what to evolve with, per family, and the tuned opponent. No JAX here.

smoke  : seconds, for tests; the loss it gives is worth nothing.
laptop : minutes to an hour on 2 to 8 cores; evolves past PPO.
paper  : section 4 and Table 1, for a cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from epg.words.settings import (
    EvolutionSettings,
    GuidanceSettings,
    LifetimeSettings,
    LossSettings,
    PolicyGradientSettings,
    PolicySettings,
    SearchSettings,
    Settings,
    require,
)

PresetName = Literal["smoke", "laptop", "paper"]
PRESETS: tuple[PresetName, ...] = ("smoke", "laptop", "paper")

SEES_REWARD = ("point-goal", "directional-hopper", "directional-half-cheetah", "goal-ant")
"""Families whose task cannot be found out without the reward."""


PACE: dict[str, Any] = {"learning_rate": 0.01, "learning_rate_end": 0.0}
"""Large first steps that fall to none: what lets a policy follow a loss within a thousand steps."""

MANY = EvolutionSettings(
    epochs=140,
    noise_vectors=128,
    lifetimes=128,
    paired_tasks=True,
    sigma_end=0.025,
    step_size=0.02,
    step_size_end=0.005,
    step_size_epochs=120,
    shard=64,
)
"""Many losses, each pair of them with tasks of its own: the most signal per lifetime."""

BOTH_WAYS = replace(MANY, epochs=150, step_size_epochs=150, sigma_end=None, noise_vectors=64)
"""The same with two tasks for each pair, one in each direction."""

FOUND: dict[str, Any] = {"sigma": 0.025, "sigma_end": 0.0125, "step_size": 0.008, "step_size_end": 0.002}
"""Small steps, for evolution that begins with a target that was searched for."""

CLOSELY: dict[str, Any] = {"minibatch": 64, "passes": 4, **PACE}
"""Updates that follow such a target closely: four passes over whole updates of 64 steps."""

DIRECTED: dict[str, Any] = {"window": 256, "reward": True, "products": True, "init_temporal": "correlation"}
"""Loss of a family that hides a direction: it is found by the reward's correlation with what is seen."""


LAPTOP: dict[str, Settings] = {
    "point-goal": Settings(
        family="point-goal",
        policy=PolicySettings(log_std=-0.5),
        loss=LossSettings(reward=True, products=True, init_temporal="correlation"),
        lifetime=LifetimeSettings(updates=64, minibatch=16, learning_rate=4e-3, scoring_episodes=8),
        evolution=EvolutionSettings(
            epochs=50, lifetimes=128, step_size=0.03, step_size_end=0.01, step_size_epochs=50, momentum=0.9
        ),
    ),
    "point-reach": Settings(
        family="point-reach",
        policy=PolicySettings(log_std=-0.5),
        lifetime=LifetimeSettings(updates=32, learning_rate=5e-3, scoring_episodes=8),
        evolution=EvolutionSettings(
            epochs=100, lifetimes=128, step_size=0.02, step_size_end=0.005, step_size_epochs=100, momentum=0.9
        ),
    ),
    "random-hopper": Settings(
        family="random-hopper",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(window=512),
        lifetime=LifetimeSettings(64, updates=32, scoring_episodes=4, **(CLOSELY | {"passes": 8})),
        evolution=replace(MANY, horizon=500, epochs=12, step_size_epochs=12, **FOUND),
        search=SearchSettings(epochs=400),
    ),
    "random-walker": Settings(
        family="random-walker",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(window=512),
        lifetime=LifetimeSettings(64, updates=32, scoring_episodes=4, **(CLOSELY | {"passes": 8})),
        evolution=replace(MANY, horizon=500, epochs=12, step_size_epochs=12, **FOUND),
        search=SearchSettings(epochs=400),
    ),
    "random-reacher": Settings(
        family="random-reacher",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(window=128, pairs=True),
        lifetime=LifetimeSettings(128, updates=16, passes=8, scoring_episodes=8, **PACE),
        evolution=replace(MANY, epochs=15, step_size_epochs=15, **FOUND),
        search=SearchSettings(epochs=1000),
    ),
    "directional-hopper": Settings(
        family="directional-hopper",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(init_switch=5, **DIRECTED),
        lifetime=LifetimeSettings(64, updates=24, scoring_episodes=2, **CLOSELY),
        evolution=replace(BOTH_WAYS, horizon=500, epochs=20, step_size_epochs=20, **FOUND),
        search=SearchSettings(epochs=200),
    ),
    "directional-half-cheetah": Settings(
        family="directional-half-cheetah",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(init_switch=8, hidden=32, **DIRECTED),
        lifetime=LifetimeSettings(64, updates=24, scoring_episodes=2, **CLOSELY),
        evolution=replace(BOTH_WAYS, epochs=25, step_size_epochs=25, **FOUND),
        search=SearchSettings(epochs=300),
    ),
    "goal-ant": Settings(
        family="goal-ant",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(init_sides=2, init_gate=6.0, hidden=40, **(DIRECTED | {"window": 512})),
        lifetime=LifetimeSettings(64, updates=32, scoring_episodes=2, **CLOSELY),
        evolution=replace(BOTH_WAYS, epochs=12, step_size_epochs=12, **{name: it / 2 for name, it in FOUND.items()}),
        search=SearchSettings(epochs=600, noise_vectors=128, sigma=0.1, step_size=0.06, starts=2, turned=True),
    ),
    "fetch-reach": Settings(
        family="fetch-reach",
        policy=PolicySettings(log_std=-1.0, normalise="family"),
        loss=LossSettings(window=128),
        lifetime=LifetimeSettings(64, updates=16, scoring_episodes=8, **CLOSELY),
        evolution=replace(MANY, epochs=8, step_size_epochs=8, noise_vectors=64, lifetimes=64, **FOUND),
        search=SearchSettings(epochs=200),
    ),
}
"""Recipes per family; docs/lab.md tells which of them beat PPO on held-out tasks, and how they came about."""


TABLE_1: dict[str, tuple[int, int]] = {
    "random-hopper": (64, 128),
    "random-walker": (128, 256),
    "random-reacher": (128, 512),
    "directional-hopper": (64, 128),
    "directional-half-cheetah": (32, 256),
    "goal-ant": (32, 512),
    "fetch-reach": (32, 256),
}
"""Steps per update and updates of a lifetime in the paper; variants of a family have the family's."""


def table_1(family: str) -> LifetimeSettings:
    """Return the paper's lifetime for a family; (32, 256) for families that are not in the paper."""
    found = [numbers for name, numbers in TABLE_1.items() if family.startswith(name)]
    steps, updates = found[0] if found else (32, 256)
    return LifetimeSettings(steps_per_update=steps, updates=updates, learning_rate=1e-3)


def _sees(family: str) -> bool:
    return family.partition("@")[0].startswith(SEES_REWARD)


def _paper(family: str) -> Settings:
    return Settings(
        family=family,
        loss=LossSettings(window=512, reward=_sees(family), init="plain"),
        lifetime=table_1(family),
        guidance=GuidanceSettings(learner="ppo", mode="blend", epochs=500),
        evolution=EvolutionSettings(
            epochs=5000,
            noise_vectors=64,
            lifetimes=256,
            antithetic=False,
            common_tasks=False,
            sigma=0.01,  # not in the paper; the 2018 code's value
            step_size=1e-2,
            step_size_end=1e-3,
            step_size_epochs=2000,
            momentum=0.0,
            second_moment=0.999,
            l2=0.001,
        ),
    )


def _smoke(family: str) -> Settings:
    """Shrink the laptop preset to seconds; the networks keep their shape."""
    settings = preset(family, "laptop")
    return replace(
        settings,
        loss=replace(settings.loss, window=64),
        lifetime=replace(settings.lifetime, steps_per_update=32, minibatch=32, updates=4, scoring_episodes=3),
        evolution=replace(settings.evolution, epochs=4, noise_vectors=4, lifetimes=8, shard=4, objective="final"),
        search=replace(settings.search, epochs=min(2, settings.search.epochs), noise_vectors=8, starts=1),
    )


def preset(family: str, name: PresetName) -> Settings:
    """Return the settings to evolve a loss for `family` with; a family without a recipe gets the default one."""
    if name == "paper":
        return _paper(family)
    if name == "smoke":
        return _smoke(family)
    for known, settings in LAPTOP.items():
        if family.startswith(known):  # a variant has its family's recipe
            return replace(settings, family=family)
    return Settings(family=family, loss=LossSettings(reward=_sees(family)))


@dataclass(frozen=True)
class Opponent:
    """How PPO is set against a loss: its own update size, passes, minibatch and step size."""

    steps_per_update: int = 128
    passes: int = 10
    minibatch: int = 32
    learning_rate: float = 1e-3
    learning_rate_end: float | None = None
    entropy_weight: float = 0.0
    log_std: float | None = None
    """Initial log standard deviation; by default that of the loss it is set against."""
    normalise: Literal["lifetime", "family"] = "lifetime"
    """By what observations are normalised; `family` only where the loss it is set against has measured it."""


TUNED_PPO: dict[str, dict[int, Opponent]] = {
    "point-goal": {2048: Opponent(steps_per_update=128, passes=10, learning_rate=6e-3)},
    "point-reach": {1024: Opponent(steps_per_update=128, passes=20, learning_rate=5e-4)},
    "random-hopper": {
        1024: Opponent(steps_per_update=128, learning_rate=3e-3, log_std=0.0, normalise="family"),
        2048: Opponent(256, passes=20, entropy_weight=0.01, log_std=0.0, normalise="family"),
        8192: Opponent(steps_per_update=256, learning_rate_end=0.0, log_std=0.0),
    },
    "random-walker": {
        2048: Opponent(128, 10, 128, learning_rate=3e-3, learning_rate_end=0.0, log_std=-1.0, normalise="family"),
        8192: Opponent(minibatch=64, learning_rate=3e-4, log_std=-1.0, normalise="family"),
    },
    "random-reacher": {
        2048: Opponent(256, passes=20, learning_rate=3e-3, log_std=-1.0, normalise="family"),
        8192: Opponent(steps_per_update=256, passes=20, log_std=0.0),
    },
    "directional-hopper": {
        1536: Opponent(log_std=0.0, normalise="family"),
        8192: Opponent(steps_per_update=256, learning_rate_end=0.0, log_std=0.0, normalise="family"),
    },
    "directional-half-cheetah": {
        1536: Opponent(steps_per_update=128, learning_rate=3e-3, learning_rate_end=0.0),
        8192: Opponent(steps_per_update=256, learning_rate=3e-3, learning_rate_end=0.0),
    },
    "goal-ant": {
        2048: Opponent(256, 10, 64, learning_rate=3e-3, learning_rate_end=0.0, log_std=0.0, normalise="family"),
        8192: Opponent(learning_rate=3e-4, log_std=-1.0),
    },
    "fetch-reach": {
        1024: Opponent(steps_per_update=256, passes=20, learning_rate=3e-3, log_std=-1.0),
        8192: Opponent(steps_per_update=256, log_std=-1.0, normalise="family"),
    },
}
"""Family -> steps of a lifetime -> the best of a search on training tasks (tools/tune_ppo.py, docs/lab.md)."""


def tuned_ppo(family: str, steps: int) -> Opponent:
    """Return PPO as it was tuned for a family, at the length of lifetime that is nearest in proportion."""
    found = TUNED_PPO.get(family, {steps: Opponent()})
    return found[min(found, key=lambda length: abs(math.log(length / steps)))]


def opponent(settings: Settings, family: str, steps: int | None = None, how: Opponent | None = None) -> Settings:
    """Return PPO's settings: tuned, and for as many steps, unless told otherwise.

    Its policies are those of the loss, but for log-std and normalisation where others suit it better.
    """
    require(steps is None or steps > 0, f"PPO's steps must be above zero, not {steps}.")
    steps = steps or settings.lifetime.steps
    tuned = how or tuned_ppo(family, steps)
    size = math.gcd(tuned.steps_per_update, steps)
    lifetime = LifetimeSettings(
        steps_per_update=size,
        updates=steps // size,
        minibatch=math.gcd(tuned.minibatch, size),
        passes=tuned.passes,
        learning_rate=tuned.learning_rate,
        learning_rate_end=tuned.learning_rate_end,
        scoring_episodes=settings.lifetime.scoring_episodes,
    )
    policy = settings.policy
    if tuned.normalise == "lifetime" or policy.to_be_measured:
        policy = replace(policy, normalise="lifetime", usual_mean=(), usual_deviation=())
    return Settings(
        family=family,
        policy=policy if tuned.log_std is None else replace(policy, log_std=tuned.log_std),
        loss=LossSettings(window=max(size, settings.loss.window)),
        lifetime=lifetime,
        ppo=PolicyGradientSettings(entropy_weight=tuned.entropy_weight),
    )
