"""Recipes: one file per family. Presets by name.

smoke  : seconds, for tests; the loss it gives is worth nothing.
laptop : minutes to hours on 2 to 8 cores.
paper  : section 4 and Table 1 of the paper, for a cluster.
"""

from __future__ import annotations

import importlib
from dataclasses import replace

from epg.core.errors import require
from epg.families.registry import entry_of
from epg.recipes.base import PRESETS, PPOTuning, PresetName, Recipe, default_recipe, paper, ppo_settings, smoke
from epg.settings import Settings

__all__ = ["PRESETS", "PPOTuning", "PresetName", "Recipe", "ppo_settings", "preset", "recipe_of"]


def recipe_of(family: str) -> Recipe:
    """Return the recipe of a family; a variant (NAME@reference, an arc of goal-ant) has its family's."""
    entry = entry_of(family)
    if entry is None:
        return default_recipe(family)
    recipe: Recipe = importlib.import_module(f"epg.recipes.{entry.recipe}").RECIPE
    return recipe


def preset(family: str, name: PresetName = "laptop") -> Settings:
    """Return the settings to evolve a loss for `family` with."""
    require(name in PRESETS, f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}.")
    recipe = recipe_of(family)
    if name == "paper":
        return paper(recipe, family)
    laptop = replace(recipe.laptop, family=family)
    return smoke(laptop) if name == "smoke" else laptop
