"""card.json: a loss card, as `epg probe` writes it beside a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epg.core.errors import require
from epg.storage.checked import count, interval, read_object, with_keys

CARD = "card.json"
PROBE_GROUPS = ("control", "history", "interface", "architecture", "length")
TARGET, BLIND, FLIPPED = "its target acting, no learning", "blind to history", "actuators flipped"
"""The probes that tell a clone from a learner."""


def read_card(path: Path) -> dict[str, Any]:
    """Read a loss card; a number that was not finite is NaN."""
    card = read_object(path, "kind", "family", "tasks", "seed", "probes")
    require(card["kind"] == "loss-card", f"{path} is no loss card.")
    count(card["tasks"], "tasks", path)
    probes = card["probes"]
    require(isinstance(probes, list) and 0 < len(probes) <= 100, f"{path} is damaged: probes are missing.")
    for number, probe in enumerate(probes):
        with_keys(probe, path, ("name", "group", "steps", "interval", "difference"))
        known = isinstance(probe["name"], str) and probe["group"] in PROBE_GROUPS
        require(known, f"{path} is damaged: there is no probe {probe['name']!r} of group {probe['group']!r}.")
        if probe["steps"] != 0:
            count(probe["steps"], f"steps of {probe['name']}", path)
        probe["interval"] = interval(probe["interval"], path)
        probe["difference"] = interval(probe["difference"], path) if number > 0 else None
    return card


def main_numbers(card: dict[str, Any]) -> dict[str, float]:
    """Return the return under each probe that tells a clone from a learner, as far as the card has it."""
    found = {it["name"]: it["interval"]["value"] for it in card["probes"]}
    return {name: found[name] for name in (TARGET, BLIND, FLIPPED) if name in found}
