"""Transfer: what differs from its evolution when a loss trains policies. Another family, policy or length. No JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from epg.core.errors import require, require_count
from epg.settings import Settings, UnstretchedLifetime, flat, with_values


@dataclass(frozen=True)
class Transfer:
    """What a user changes at test time (paper, section 4.3)."""

    updates: int | None = None
    """Length of a lifetime in updates; None: that of the evolution."""
    stretch: bool = False
    """Whether the schedule of the inner step size is stretched to that length, or stays as it was evolved."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the policy: `hidden`, `activation`, ..."""

    def __post_init__(self) -> None:
        require(not self.stretch or self.updates is not None, "stretch needs updates: the length to stretch to.")

    def apply(self, settings: Settings) -> Settings:
        """Return the settings of an evolution with these changes."""
        changed = with_values(settings, {"policy": self.policy}, "at test time")
        return with_updates(changed, self.updates, self.stretch)


def with_updates(settings: Settings, updates: int | None, stretch: bool = False) -> Settings:
    """Return settings with another number of updates in a lifetime; step sizes as they were, unless stretched."""
    if updates is None:
        return settings
    require_count("updates", updates)
    lifetime = settings.lifetime
    if stretch or lifetime.learning_rate_end is None or updates == lifetime.updates:
        return replace(settings, lifetime=replace(lifetime, updates=updates))
    values = vars(lifetime) | {"updates": updates, "anneal_updates": lifetime.annealed}
    return replace(settings, lifetime=UnstretchedLifetime(**values))


def differences(evolved: Settings, used: Settings) -> tuple[str, ...]:
    """Return a phrase for everything in which lifetimes differ from those of the evolution."""
    found = [] if used.family == evolved.family else [f"family {used.family} instead of {evolved.family}"]
    before, now = flat(evolved.policy), flat(used.policy)
    found += [f"policy.{it} {_text(now[it])} instead of {_text(before[it])}" for it in now if now[it] != before[it]]
    first, second = evolved.lifetime, used.lifetime
    if first.updates != second.updates:
        sizes = "" if first.annealed == second.annealed else ", step sizes stretched"
        sizes = sizes if first.learning_rate_end is None or sizes else ", step sizes as evolved"
        found.append(f"{second.updates:,} updates instead of {first.updates:,}{sizes}")
    return tuple(found)


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
