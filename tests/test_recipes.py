"""Recipes: every registered family has one with all presets, and the paper's are Table 1 and section 4; they run."""

import importlib
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import epg
import epg.recipes
from epg.core.errors import BadInput
from epg.envs.env import environment_id, register_families
from epg.families.registry import REGISTRY, Entry, find_family, is_registered
from epg.recipes import PRESETS, PPOTuning, Recipe, ppo_settings, preset, recipe_of
from epg.recipes.base import default_recipe
from epg.settings import Settings
from epg.storage.metrics import read_metrics

ROOT = Path(__file__).parents[1]

# Table 1: W, V, M, updates. Its "8196" steps of random-hopper are 64 x 128 = 8192.
PAPER = {
    "random-hopper": (256, 64, 64, 128),
    "random-walker": (256, 64, 128, 256),
    "random-reacher": (256, 64, 128, 512),
    "directional-hopper": (256, 64, 64, 128),
    "directional-half-cheetah": (256, 64, 32, 256),
    "goal-ant": (256, 64, 32, 512),
    "fetch-reach": (256, 64, 32, 256),
}
ANTS = ("goal-ant", "goal-ant-right", "goal-ant-left", "goal-ant-no-reset")
SEES_REWARD = {"point-goal", "directional-hopper", "directional-half-cheetah", *ANTS}
PAPER_INPUTS = dict.fromkeys(SEES_REWARD, ("reward",)) | dict.fromkeys(ANTS, ("reward", "task-features"))


@pytest.mark.parametrize("family", PAPER)
def test_paper_preset_is_table_1(family):
    settings = preset(family, "paper")
    evolution, lifetime, loss = settings.evolution, settings.lifetime, settings.loss
    assert (evolution.lifetimes, evolution.noise_vectors, lifetime.steps_per_update, lifetime.updates) == PAPER[family]
    assert (evolution.epochs, settings.guidance.epochs, evolution.anneal_epochs) == (5000, 500, 2000)
    assert (lifetime.minibatch, lifetime.update_epochs, lifetime.learning_rate, loss.window) == (32, 1, 1e-3, 512)
    assert (evolution.step_size, evolution.step_size_end, evolution.l2, evolution.betas[0]) == (1e-2, 1e-3, 1e-3, 0.0)
    # What is beyond the paper is off.
    assert (settings.guidance.learner, settings.policy.obs_stats, lifetime.replay) == ("ppo", "running", False)
    assert (evolution.antithetic, evolution.task_sharing, evolution.horizon) == (False, "none", None)
    assert (loss.modulation, loss.temporal, loss.init, loss.memory) == ("none", "policy", "random", 32)


def test_variants_have_the_numbers_of_their_family():
    published = {name for name in REGISTRY if recipe_of(name) in [recipe_of(it) for it in PAPER]}
    assert published == {*PAPER, *ANTS}
    for variant in (*ANTS, "goal-ant-no-reset@reference"):
        assert recipe_of(variant) is recipe_of("goal-ant")
        settings = preset(variant, "paper")
        assert settings == replace(preset("goal-ant", "paper"), family=variant)


@pytest.mark.parametrize("family", REGISTRY)
def test_every_family_has_a_recipe_with_every_preset_and_ppo(family):
    recipe = importlib.import_module(f"epg.recipes.{REGISTRY[family].recipe}").RECIPE
    assert isinstance(recipe, Recipe)
    assert recipe_of(family) is recipe
    assert family.startswith(recipe.laptop.family)
    spaces = find_family(family).spaces
    for name in PRESETS:
        settings = preset(family, name)
        assert settings.family == family
        assert settings.loss.sees_reward == (family in SEES_REWARD)
        assert "task-features" not in settings.loss.inputs or spaces.features > 0
        assert ppo_of(settings).lifetime.steps == settings.lifetime.steps
        assert settings.loss.init == "random" or settings.loss.hidden >= 2 * spaces.action + 1
    assert preset(family, "paper").loss.inputs == PAPER_INPUTS.get(family, ())


def ppo_of(settings: Settings, steps: int | None = None, has_stats: bool = False) -> Settings:
    """Return PPO's tuned settings against a loss with these."""
    tuning = recipe_of(settings.family).tuned_ppo(steps or settings.lifetime.steps)
    return ppo_settings(settings, tuning, steps, has_stats)


def test_ppo_is_tuned_for_the_nearest_length():
    recipe = recipe_of("random-hopper")
    assert list(recipe.ppo) == [1024, 2048, 8192]
    for steps, nearest in ((64, 1024), (1400, 1024), (1500, 2048), (4000, 2048), (4200, 8192), (10**6, 8192)):
        assert recipe.tuned_ppo(steps) is recipe.ppo[nearest]  # in proportion: 1448 and 4096 lie in the middle
    assert default_recipe("mine:FAMILY").tuned_ppo(512) == PPOTuning()
    longer = ppo_of(preset("random-hopper", "laptop"), 8192, has_stats=True)
    assert (longer.lifetime.steps, longer.lifetime.steps_per_update, longer.policy.log_std) == (8192, 256, 0.0)
    assert longer.policy.obs_stats == "running"
    assert ppo_of(preset("random-hopper", "laptop"), has_stats=True).policy.obs_stats == "fixed"
    assert ppo_of(preset("random-hopper", "laptop"), has_stats=False).policy.obs_stats == "running"


def test_bad_names_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match="unknown preset 'huge': choose one of smoke, laptop, paper"):
        preset("point-goal", "huge")
    with pytest.raises(BadInput, match="PPO's steps must be above zero, not -1"):
        ppo_of(preset("point-goal"), -1)


def shrink(settings: Settings) -> Settings:
    """Return the same networks and inputs with fewer and shorter lifetimes; guidance ends after the first epoch."""
    return replace(
        settings,
        lifetime=replace(settings.lifetime, updates=2, scoring_episodes=1),
        guidance=replace(settings.guidance, epochs=1),
        evolution=replace(settings.evolution, epochs=2, lifetimes=4, noise_vectors=2, shard=2, horizon=16),
    )


# Compiling the guided update takes twenty seconds a family: the paper's seven, and one that is simulated inside JAX.
@pytest.mark.parametrize("family", [*PAPER, "point-goal"])
def test_the_paper_preset_runs(family, tmp_path):
    settings = shrink(preset(family, "paper"))
    result = epg.evolve(settings=settings, run=tmp_path / "run", executor="inline")
    first, second = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert (first["alpha"], second["alpha"]) == (1.0, 0.0)  # PPO alone, then the loss alone
    for epoch in (first, second):
        assert (epoch["nonfinite"], epoch["diverged"]) == (0, 0)
        assert np.isfinite([epoch["fitness_mean"], epoch["fitness_best"], epoch["phi_norm"]]).all()
        assert epoch["env_steps"] > 4 * settings.lifetime.steps
    assert np.isfinite(result.phi).all()
    assert first["phi_norm"] != second["phi_norm"]
    loss = epg.load_loss(tmp_path / "run")
    assert (loss.manifest["family"], loss.manifest["warm_start"]) == (family, None)


WINDY_RECIPE = """
from epg.recipes.base import PPOTuning, Recipe
from epg.settings import LifetimeSettings, LossSettings, Settings

RECIPE = Recipe(
    laptop=Settings("windy-cart", loss=LossSettings(window=64), lifetime=LifetimeSettings(updates=5)),
    paper_inputs=("reward",),
    paper_sizes=(64, 7),
    ppo={160: PPOTuning(learning_rate=2e-3)},
)
"""


def test_a_family_is_one_family_file_one_recipe_file_and_one_registry_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    (tmp_path / "windy_cart.py").write_text(WINDY_RECIPE)
    monkeypatch.setattr(epg.recipes, "__path__", [*epg.recipes.__path__, str(tmp_path)])
    monkeypatch.setitem(REGISTRY, "windy-cart", Entry("examples.my_family:WINDY_CART", "windy_cart", time_limit=32))
    family = find_family("windy-cart")
    assert (family.name, is_registered("windy-cart")) == ("windy-cart", True)
    smoke, laptop, paper = (preset("windy-cart", name) for name in PRESETS)
    assert {it.family for it in (smoke, laptop, paper)} == {"windy-cart"}
    assert (laptop.lifetime.updates, smoke.lifetime.updates) == (5, 4)
    assert (paper.lifetime.steps_per_update, paper.lifetime.updates, paper.loss.inputs) == (64, 7, ("reward",))
    assert ppo_of(laptop).lifetime.learning_rate == 2e-3
    others = {name: it for name, it in gymnasium.registry.items() if not name.startswith("epg/")}
    monkeypatch.setattr(gymnasium.envs.registration, "registry", others)
    register_families()
    environment = gymnasium.make(environment_id("windy-cart"))
    assert environment.spec.max_episode_steps == family.horizon
    environment.reset(seed=0)
    assert environment.step(np.zeros(1, np.float32))[0].shape == (2,)
