"""Does it learn? Statistical tests that take minutes: seeds, sample sizes and margins are stated (make test-slow)."""

from dataclasses import replace
from pathlib import Path

import pytest

import epg
from epg.recipes import preset

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("family", ["point-goal", "point-reach"])
def test_the_laptop_recipe_evolves_a_loss_that_trains_on_held_out_tasks(family: str, seed: int, tmp_path: Path) -> None:
    """On 20 held-out tasks the interquartile mean is 4 above that of the fresh phi's epoch, for three seeds."""
    settings = replace(preset(family, "laptop"), seed=seed)
    history: list[float] = []
    evolved = epg.evolve(settings=settings, run=tmp_path / "run", on_epoch=lambda it: history.append(it.fitness_mean))
    result = epg.learn(evolved.run, family, tasks=20, seed=seed, run=tmp_path / "learn")
    assert result.first.interval.value > history[0] + 4, (history[0], result.table)


def test_evolution_climbs_without_reward(tmp_path: Path) -> None:
    """point-reach, 40 epochs: mean fitness of the last ten epochs is 4 above that of the first five."""
    settings = preset("point-reach", "laptop")
    settings = replace(settings, evolution=replace(settings.evolution, epochs=40))
    history: list[float] = []
    epg.evolve(settings=settings, run=tmp_path / "run", on_epoch=lambda it: history.append(it.fitness_mean))
    assert sum(history[-10:]) / 10 > sum(history[:5]) / 5 + 4
