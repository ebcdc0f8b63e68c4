"""The policy pool: lifetimes that begin where earlier ones ended."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from samples import run_epoch, small_settings

from epg.core.errors import BadInput
from epg.evolution import loop
from epg.evolution.loop import Evolution, evolve_run
from epg.evolution.policy_pool import PolicyPool
from epg.evolution.runs import create_run, extend, open_run
from epg.evolution.worker import build, work_config
from epg.learners.registry import evolution_learner
from epg.lifetime.batch import inner_config
from epg.lifetime.normalizer import add
from epg.lifetime.policy_init import FRESH, flat_end
from epg.lifetime.update import begin
from epg.settings import EvolutionSettings
from epg.storage.run import Checkpoint

SIZE = 5
EVOLUTION = EvolutionSettings(epochs=4, noise_vectors=4, lifetimes=16, shard=8, task_sharing="pair", pool=SIZE)
SETTINGS = small_settings("point-goal", 2, EVOLUTION)


def test_a_lifetime_begins_with_the_policy_and_the_statistics_it_is_given(rng: np.random.Generator) -> None:
    vector = Evolution(SETTINGS).vector
    policy, family = vector.policy, Evolution(SETTINGS).family
    config = inner_config(SETTINGS, evolution_learner(SETTINGS, family.spaces, policy), policy, family, None)
    keys = jax.random.key(1), jax.random.key(2)
    fresh, earlier = (begin(config, key, FRESH) for key in keys)
    seen = add(earlier.normalizer.observation, rng.normal(size=(7, family.spaces.observation)).astype(np.float32))
    stats = replace(earlier.normalizer, observation=seen)
    end = np.asarray(flat_end(earlier.params.policy, stats))
    for flag, expected in ((0.0, (fresh.params.policy, fresh.normalizer)), (1.0, (earlier.params.policy, stats))):
        state = begin(config, keys[0], np.append(end, flag).astype(np.float32))
        jax.tree.map(np.testing.assert_array_equal, (state.params.policy, state.normalizer), expected)
        jax.tree.map(np.testing.assert_array_equal, state.params.learner, fresh.params.learner)  # memory starts anew


def test_half_of_the_tasks_begin_with_what_earlier_epochs_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PHI_EVERY", 2)
    state, evaluate = Evolution(SETTINGS), build(work_config(SETTINGS, None))
    assert state.pool is not None
    ended: list[np.ndarray] = []
    pooled = 0
    for epoch in range(4):
        starts = np.concatenate([it.policy_init for it in state.requests(state.ask())])[:16]
        first, second = np.split(starts, 2)
        np.testing.assert_array_equal(first, second)  # the two losses of a pair share tasks, and starts
        for row in first[first[:, -1] > 0]:
            assert any(np.array_equal(row[:-1], end) for end in ended)
            pooled += 1
        assert epoch or not first[:, -1].any()
        _, results = run_epoch(state, evaluate)
        own = [] if len(results) == 2 else results.pop().end  # of phi itself: fresh starts, not pooled
        ended += [row for it in results for row in it.end]
        assert len(state.pool.rows) == min(SIZE, epoch + 1)  # an eighth of five, rounded up, an epoch
        assert not any(np.array_equal(row, it) for row in state.pool.rows for it in own)
    assert 6 <= pooled <= 18  # of 24 starts after the first epoch


def test_the_pool_is_bounded_keeps_any_age_and_takes_nothing_that_is_not_finite() -> None:
    pool = PolicyPool(16, 1, seed=0)
    for epoch in range(200):
        ends = np.full((8, 1), epoch, np.float32)
        ends[epoch % 8] = np.nan
        pool.add(epoch, ends)
        assert len(pool.rows) == min(16, 2 * (epoch + 1))
    assert np.isfinite(pool.rows).all()
    ages = 199 - pool.rows[:, 0]
    assert (ages == 0).sum() == 2
    assert 3 < np.mean(ages) < 16  # of each 16, 14 stay: 7 epochs on average
    starts = np.concatenate([pool.starts(epoch, 100) for epoch in range(20)])
    assert starts[:, -1].mean() == pytest.approx(0.5, abs=0.05)
    assert set(np.unique(starts[:, 0])) == set(np.unique(pool.rows))


@pytest.mark.slow
def test_neither_processes_nor_a_pause_change_it(tmp_path: Path) -> None:
    whole = evolve_run(create_run(SETTINGS, tmp_path / "whole"), SETTINGS, "inline")
    half = replace(SETTINGS, evolution=replace(EVOLUTION, epochs=2))
    evolve_run(create_run(half, tmp_path / "half"), half, "local", 2)
    again = evolve_run(*extend(*open_run(tmp_path / "half"), SETTINGS), "inline")
    assert again.loss_sha256 == whole.loss_sha256
    without = replace(SETTINGS, evolution=replace(EVOLUTION, pool=0))
    assert evolve_run(create_run(without, tmp_path / "none"), without, "inline").loss_sha256 != whole.loss_sha256


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match=r"evolve_init needs evolution\.pool 0"):
        replace(SETTINGS, evolve_init="epg")
    with pytest.raises(BadInput, match=r"evolution\.pool must lie in"):
        replace(EVOLUTION, pool=-1)
    state = Evolution(SETTINGS)
    tensors = {**state.tensors(), "pool": np.zeros((2, 3), np.float32)}
    with pytest.raises(BadInput, match="its policy pool is not that of the settings"):
        state.restore(Checkpoint(1, tensors, {"env_steps": 0}), Path("run"))
