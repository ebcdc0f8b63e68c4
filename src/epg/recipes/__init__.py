"""Recipes: one file per family. Presets by name.

smoke  : seconds, for tests; the loss it gives is worth nothing.
laptop : minutes to hours on 2 to 8 cores.
paper  : section 4 and Table 1 of the paper, for a cluster.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Literal

from epg.core.errors import did_you_mean, require
from epg.families.registry import check_known, entry_of, name_of
from epg.recipes.base import (
    PRESETS,
    PPOTuning,
    PresetName,
    Recipe,
    default_maml,
    default_recipe,
    default_rl2,
    for_ppo,
    paper,
    ppo_settings,
    smoke,
)
from epg.settings import MamlSettings, RL2Settings, Settings, with_values

__all__ = ["PRESETS", "PPOTuning", "PresetName", "Recipe", "meta_learner", "ppo_settings", "preset", "recipe_of"]


def recipe_of(family: str) -> Recipe:
    """Return the recipe of a family; a variant (NAME@reference, an arc of goal-ant) has its family's."""
    entry = entry_of(family)
    if entry is None:
        return default_recipe(family)
    recipe: Recipe = importlib.import_module(f"epg.recipes.{entry.recipe}").RECIPE
    return recipe


def preset(family: Any, name: PresetName = "laptop", **values: Any) -> Settings:
    """Return the settings to evolve a loss for `family` with; `values` change some: `**{"evolution.epochs": 20}`.

    With `evolve_init="ppo"` they evolve an initial policy for PPO (PPO+I), in PPO's tuned settings.
    """
    family = name_of(family)
    check_known(family)
    choices = ", ".join(PRESETS)
    require(name in PRESETS, f"unknown preset {name!r}{did_you_mean(str(name), PRESETS)}: choose one of {choices}.")
    recipe = recipe_of(family)
    laptop = replace(recipe.laptop, family=family)
    settings = {"paper": lambda: paper(recipe, family), "smoke": lambda: smoke(laptop)}.get(name, lambda: laptop)()
    if values.get("evolve_init") == "ppo":
        settings = for_ppo(settings, recipe)
    return with_values(settings, values, f"preset {name} of {family}")


def meta_learner(family: str, name: Literal["maml", "rl2"]) -> MamlSettings | RL2Settings:
    """Return the settings of MAML or RL² for a family, without a budget."""
    recipe = recipe_of(family)
    laptop = replace(recipe.laptop, family=family)
    if name == "maml":
        return recipe.maml or default_maml(laptop)
    return recipe.rl2 or default_rl2(laptop)
