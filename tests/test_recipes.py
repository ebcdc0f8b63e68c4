"""Presets: every registered family has all three, and the paper's are Table 1 and section 4."""

import pytest

from epg.families import REGISTRY, load_family
from epg.recipes import PRESETS, TABLE_1, opponent, preset

# Table 1: W, V, M, updates.
PAPER = {
    "random-hopper": (256, 64, 64, 128),
    "random-walker": (256, 64, 128, 256),
    "random-reacher": (256, 64, 128, 512),
    "directional-hopper": (256, 64, 64, 128),
    "directional-half-cheetah": (256, 64, 32, 256),
    "goal-ant": (256, 64, 32, 512),
    "fetch-reach": (256, 64, 32, 256),
}
SEES = {"point-goal", "directional-hopper", "directional-half-cheetah", "goal-ant"}


@pytest.mark.parametrize("family", PAPER)
def test_paper_preset_is_table_1(family):
    settings = preset(family, "paper")
    evolution, lifetime = settings.evolution, settings.lifetime
    assert (evolution.lifetimes, evolution.noise_vectors, lifetime.steps_per_update, lifetime.updates) == PAPER[family]
    assert (evolution.epochs, settings.guidance.epochs, evolution.step_size_epochs) == (5000, 500, 2000)
    assert (lifetime.minibatch, lifetime.passes, lifetime.learning_rate, settings.loss.window) == (32, 1, 1e-3, 512)
    assert (evolution.step_size, evolution.step_size_end, evolution.l2, evolution.momentum) == (1e-2, 1e-3, 1e-3, 0.0)


def test_variants_have_the_numbers_of_their_family():
    assert set(TABLE_1) == set(PAPER)
    for variant in ("goal-ant-right", "goal-ant-no-reset@reference"):
        assert preset(variant, "paper").lifetime == preset("goal-ant", "paper").lifetime


@pytest.mark.parametrize("family", REGISTRY)
def test_every_family_has_every_preset_and_an_opponent(family):
    for name in PRESETS:
        settings = preset(family, name)
        assert settings.family == family
        assert settings.loss.reward == any(family.startswith(it) for it in SEES)
        assert opponent(settings, family).lifetime.steps == settings.lifetime.steps
        pairs = 2 * load_family(family).spaces.action + 1
        assert settings.loss.init == "plain" or settings.loss.hidden >= pairs
