"""Recipe of random-pendulum: default settings, nothing tuned."""

from epg.recipes.base import default_recipe

RECIPE = default_recipe("random-pendulum")
