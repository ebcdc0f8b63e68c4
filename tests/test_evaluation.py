"""Evaluation: held-out tasks, pairing, and what is made of lifetimes that were not finite."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from epg.learners import Learned, hand_made
from epg.lifetime.update import start
from epg.evaluation import protocol as evaluation
from epg.evaluation.protocol import Learning, ranked_worst, record, table
from epg.evolution.worker import make_plan
from epg.families import load_family
from epg.zoo import SHIPPED, load_loss
from epg.recipes import opponent, preset
from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, run_key, stream_key

FAMILY = load_family("point-goal")
SETTINGS = preset("point-goal", "smoke")


def learning(final: list[float], method: str = "epg") -> Learning:
    count = len(final)
    return Learning(method, method, 32, np.array(final), np.zeros((count, 64)), np.zeros((count, 2)))


def test_no_held_out_task_is_ever_trained_on():
    def goals(split: Split, epochs: range) -> set[tuple[float, ...]]:
        keys = [lifetime_key(0, split, epoch, task) for epoch in epochs for task in range(20)]
        drawn = [FAMILY.sample(stream_key(key, Stream.TASK)).goal for key in keys]
        return {tuple(np.asarray(goal).tolist()) for goal in drawn}

    trained, held_out = goals(Split.TRAIN, range(20)), goals(Split.HELD_OUT, range(1))
    assert len(trained) == 400
    assert len(held_out) == 20
    assert not trained & held_out


def test_both_methods_start_from_the_same_policies():
    """The pair shares (seed, split, epoch, task), so the policy's key is the same whatever the learner."""
    theirs = opponent(SETTINGS, "point-goal")
    key = lifetime_key(0, Split.HELD_OUT, 0, 3)
    learned = Learned(SETTINGS.loss, SETTINGS.policy, FAMILY.spaces)
    one = start(make_plan(SETTINGS, learned, FAMILY), key).trained.policy
    other = start(make_plan(theirs, hand_made("ppo", theirs, FAMILY.spaces), FAMILY), key).trained.policy
    for a, b in zip(one.mlp.weights, other.mlp.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert theirs.lifetime.steps == SETTINGS.lifetime.steps
    assert theirs.policy == SETTINGS.policy


def test_recorded_lifetimes_are_the_batch_of_the_held_out_split():
    learned = Learned(SETTINGS.loss, SETTINGS.policy, FAMILY.spaces)
    phi = np.asarray(learned.initial_phi(run_key(0, Stream.LOSS)))
    result = record(SETTINGS, learned, "point-goal", 3, 0, phi, ("epg", "evolved loss"))
    steps, updates = SETTINGS.lifetime.steps, SETTINGS.lifetime.updates
    assert result.episode_return.shape == (3, steps)
    assert result.kl.shape == (3, updates)
    ended = np.isfinite(result.episode_return)
    np.testing.assert_array_equal(ended, np.tile((np.arange(steps) + 1) % FAMILY.horizon == 0, (3, 1)))
    other = record(SETTINGS, learned, "point-goal", 3, 0, phi, ("epg", "evolved loss"), Split.TRAIN)
    assert not np.array_equal(result.final, other.final)


def test_a_lifetime_that_was_not_finite_counts_as_the_worst():
    np.testing.assert_array_equal(ranked_worst(np.array([3.0, np.nan, -1.0])), [3.0, -1.0, -1.0])
    with pytest.raises(BadInput, match="every lifetime met a non-finite number"):
        ranked_worst(np.array([np.nan, np.inf]))


def test_table_pairs_by_task():
    ours, theirs = learning([1.0, 12.0, 3.0, 14.0]), learning([0.0, 11.0, 2.0, 13.0], "ppo")
    result = table([ours, theirs], "point-goal", 0)
    assert result["difference"] == {"value": 1.0, "low": 1.0, "high": 1.0}  # exactly 1 on every task
    assert result["epg"]["value"] == pytest.approx(7.5)  # mean of the middle two
    assert result["epg"]["low"] < 7.5 < result["epg"]["high"]
    assert (result["tasks"], result["steps"], result["kind"]) == (4, 64, "compare")
    assert table([ours], "point-goal", 0)["kind"] == "learn"


@pytest.mark.parametrize(("updates", "size"), [(32, 128), (3, 32), (5, 32)])
def test_the_opponent_takes_exactly_as_many_steps(updates: int, size: int):
    settings = replace(SETTINGS, lifetime=replace(SETTINGS.lifetime, updates=updates, minibatch=32))
    theirs = opponent(settings, "point-goal")
    assert theirs.lifetime.steps == settings.lifetime.steps
    assert theirs.lifetime.steps_per_update == size
    assert opponent(settings, "point-goal", steps=4096).lifetime.steps == 4096  # unless told otherwise
    with pytest.raises(BadInput, match="PPO's steps must be above zero"):
        opponent(settings, "point-goal", steps=-1)


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.iterdir()))
def test_shipped_losses_fit_the_families_they_are_named_after(name: str):
    artefact = load_loss(name)
    learned = Learned(
        evaluation.settings_of(artefact).loss, evaluation.settings_of(artefact).policy, load_family(name).spaces
    )
    assert artefact.manifest["family"] == name
    assert artefact.manifest["family_version"] == load_family(name).version
    assert learned.dimension == len(artefact.phi)
    # `epg evolve NAME --seed SEED` makes such losses anew; bit for bit only with the code and processor of then.
    settings = evaluation.settings_of(artefact)
    unmeasured = replace(settings, policy=replace(settings.policy, usual_mean=(), usual_deviation=()))
    assert unmeasured == replace(preset(name, "laptop"), seed=artefact.manifest["seed"])
    assert not settings.policy.to_be_measured


def test_settings_of_another_length_keep_the_rest():
    longer = evaluation.with_length(SETTINGS, 9)
    assert longer.lifetime == replace(SETTINGS.lifetime, updates=9)
    assert jnp.asarray(longer.loss.window) == SETTINGS.loss.window


@pytest.mark.parametrize(("how", "settings"), [(["--quick"], 2), (["--around", "--steps", "128"], 6)])
def test_the_search_behind_the_opponent_runs(how: list[str], settings: int, tmp_path: Path):
    tool = Path(__file__).parents[1] / "tools" / "tune_ppo.py"
    command = [sys.executable, str(tool), "point-goal", *how, "--tasks", "4", "--record", str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tried = [json.loads(line) for line in (tmp_path / "x").read_text().splitlines()]
    assert len(tried) == settings
    assert "--quick" in how or {one["minibatch"] for one in tried} == {32, 64, 128}
    assert done.stdout.splitlines()[-1].startswith("best:")
