"""The best fixed policy of a family: augmented random search by its equations, budgets, resuming, deployment."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outside import outside
from samples import small_settings

from epg.baselines import fixed_policy
from epg.baselines.fixed_policy import FixedPolicy, Search, SearchSettings, SearchStep, ascent, create_run, search_run
from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, stream_key
from epg.evaluation.protocol import MethodResult, record
from epg.evaluation.trained_policies import policy_methods
from epg.evolution.observation_stats import measure_observations
from epg.evolution.task_sampling import task_sampler
from epg.families.registry import find_family
from epg.lifetime.normalizer import FixedStats
from epg.policies.distributions import draw_noise
from epg.policies.linear import LinearPolicy
from epg.policies.trained import TrainedPolicy
from epg.settings import EvolutionSettings, Settings, to_dict
from epg.storage.metrics import read_metrics
from epg.storage.policy_artefact import load_policy
from epg.storage.run import Run

SETTINGS = small_settings("point-reach", 3, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4))
HORIZON = find_family("point-reach").horizon
MEASURING = 4 * (SETTINGS.lifetime.steps + SETTINGS.lifetime.scoring_episodes * HORIZON)
STEPS, POPULATION = 8, 6
SEARCH = SearchSettings(MEASURING + STEPS * POPULATION * HORIZON, POPULATION)  # the budget is spent after 8 steps


def search_in(path: Path, executor: str = "inline", processes: int | None = None, **changes) -> FixedPolicy:
    """Search in a new run directory."""
    return search_run(create_run(SETTINGS, replace(SEARCH, **changes), path), executor, processes)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[FixedPolicy, Path]:
    """A search that was never stopped, in this process."""
    path = tmp_path_factory.mktemp("search") / "run"
    return search_in(path), path


def assert_same(one: FixedPolicy, other: FixedPolicy) -> None:
    """Compare every bit of what two searches found."""
    assert (one.policy, one.env_steps) == (other.policy, other.env_steps)
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.obs_stats.mean, other.obs_stats.mean)
    np.testing.assert_array_equal(one.obs_stats.std, other.obs_stats.std)


def held_out(found: FixedPolicy, settings: Settings, tasks: int, seed: int) -> MethodResult:
    """Let a fixed policy live on held-out tasks."""
    origin = {"family": settings.family, "trained_by": "a test", "baseline": "fixed", "env_steps": found.env_steps}
    manifest = {**origin, "options": {}, "spaces": to_dict(find_family(settings.family).spaces)}
    stats = found.obs_stats
    trained = TrainedPolicy(found.policy, jnp.asarray(found.weights), stats.mean, stats.std, manifest)
    (method,) = policy_methods(trained, settings)
    return record(method, tasks, seed)


# --- the search (Mania, Guy and Recht 2018, Algorithm 2) against its equations written as loops --------------------


def test_ascent_is_augmented_random_search_on_ranks():
    rng = np.random.default_rng(0)
    noise, fitness = rng.normal(size=(6, 2, 4)), rng.normal(size=12)
    rank = [sum(other < value for other in fitness) / 11 - 0.5 for value in fitness]
    kept = sorted(range(6), key=lambda k: -max(rank[k], rank[6 + k]))[:3]
    std = np.std([value for k in kept for value in (rank[k], rank[6 + k])])
    expected = np.zeros((2, 4))
    for k in kept:
        expected += 0.1 / (3 * std) * (rank[k] - rank[6 + k]) * noise[k]
    np.testing.assert_allclose(ascent(noise, fitness, 0.1), expected, rtol=1e-5)
    worst = np.where(np.arange(12) == fitness.argmin(), np.nan, fitness)
    np.testing.assert_array_equal(ascent(noise, worst, 0.1), ascent(noise, fitness, 0.1))
    assert not ascent(noise, np.ones(12), 0.1).any()


@pytest.mark.parametrize("population", [4, 6, 10])
def test_each_pair_has_a_task_of_its_own_and_the_last_shard_is_filled_up(population):
    search = Search(SETTINGS, replace(SEARCH, population=population))
    search.weights = search.weights + 3.0
    noise, requests = search.ask()
    assert noise.shape == (population // 2, 2, 5)
    shard = min(4, population)
    assert [len(it["task"]) for it in requests] == [shard] * -(-population // shard)
    weights, task = (np.concatenate([it[name] for it in requests]) for name in ("weights", "task"))
    np.testing.assert_allclose(weights[:population], 3.0 + 0.05 * np.concatenate([noise, -noise]), rtol=1e-6)
    np.testing.assert_array_equal(task[:population], np.tile(np.arange(population // 2), 2))
    np.testing.assert_array_equal(weights[population:], weights[: len(weights) - population])
    np.testing.assert_array_equal(task[population:], task[: len(task) - population])
    again, _ = Search(SETTINGS, replace(SEARCH, population=population)).ask()
    np.testing.assert_array_equal(noise, again)
    search.step += 1
    assert not np.allclose(search.ask()[0], noise)


def test_weights_climb_and_those_of_the_last_quarter_are_averaged():
    rng = np.random.default_rng(3)
    search = Search(SETTINGS, SearchSettings(env_steps=400, population=4))
    search.obs_stats = FixedStats(np.zeros(4, np.float32), np.ones(4, np.float32))
    weights, late = np.zeros((2, 5)), []
    for number in range(8):
        assert not search.done
        noise, fitness = rng.normal(size=(2, 2, 5)).astype(np.float32), rng.normal(size=6)  # two of them fill a shard
        counts = {"diverged": np.ones(3, int), "env_steps": np.full(3, 12)}
        results = [{"fitness": it, **counts} for it in np.split(fitness, 2)]
        step = search.tell(noise, results)
        mean, best = fitness[:4].mean(), fitness[:4].max()
        assert (step.epoch, step.diverged, step.env_steps) == (number, 4, 48)
        np.testing.assert_allclose([step.fitness_mean, step.fitness_best], [mean, best])
        weights = weights + ascent(noise, fitness[:4], 0.03)
        if 48 * (number + 1) >= 300:
            late.append(weights)
    assert len(late) == 2
    np.testing.assert_allclose(search.weights, weights, rtol=1e-5)
    np.testing.assert_allclose(search.result().weights, np.mean(late, axis=0), rtol=1e-5)
    assert not search.done
    search.tell(noise, results)
    assert search.done


def test_a_step_in_which_nothing_was_finite_moves_nothing():
    search = Search(SETTINGS, SEARCH)
    noise, _ = search.ask()
    results = [{"fitness": np.full(6, np.nan), "diverged": np.ones(6, int), "env_steps": np.ones(6, int)}]
    step = search.tell(noise, results)
    assert np.isnan([step.fitness_mean, step.fitness_best]).all()
    assert not search.weights.any()


@pytest.mark.slow
def test_the_search_climbs(tmp_path):
    # point-reach is solved by an action towards the goal: linear in the observation.
    search = SearchSettings(MEASURING + 40 * 32 * HORIZON, population=32)
    run, steps = create_run(SETTINGS, search, tmp_path / "run"), []
    found = search_run(run, "inline", on_step=steps.append)
    returns = [step.fitness_mean for step in steps]
    assert len(returns) == 40
    assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 5.0
    saved = run.metrics.read_text().splitlines()
    assert [json.loads(line)["fitness_mean"] for line in saved] == returns
    # Deployed on tasks that it never met, it is better than a policy that does nothing on average.
    nothing = replace(found, weights=np.zeros_like(found.weights))
    scores = [held_out(it, SETTINGS, 16, seed=5).final for it in (found, nothing)]
    assert (scores[0] - scores[1]).mean() > 5.0


def test_products_of_observations_are_optional(tmp_path):
    found = search_in(tmp_path / "run", products=True)
    assert found.weights.shape == (2, 4 + 10 + 1)
    assert found.policy == LinearPolicy(find_family("point-reach").spaces, SETTINGS.policy.log_std, products=True)
    assert load_policy(tmp_path / "run").manifest["policy"]["products"] is True


# --- runs: the same end, whoever works and however often it is stopped ---------------------------------------------


def test_the_budget_counts_the_measurement(reference):
    found, path = reference
    assert found.env_steps == SEARCH.env_steps
    records = read_metrics(path / "metrics.jsonl")
    assert [it["epoch"] for it in records] == list(range(STEPS))
    assert MEASURING + sum(it["env_steps"] for it in records) == found.env_steps
    stats, steps = measure_observations(SETTINGS)
    assert steps == MEASURING
    np.testing.assert_array_equal(found.obs_stats.mean, stats.mean)


def test_the_policy_is_saved_with_what_it_needs(reference):
    found, path = reference
    artefact = load_policy(path)
    np.testing.assert_array_equal(artefact.tensors["weights"], found.weights)
    np.testing.assert_array_equal(artefact.tensors["obs_mean"], found.obs_stats.mean)
    np.testing.assert_array_equal(artefact.tensors["obs_std"], found.obs_stats.std)
    assert artefact.manifest["policy"] == {"type": "linear", "log_std": -0.5, "products": False}
    assert (artefact.manifest["family"], artefact.manifest["env_steps"]) == ("point-reach", found.env_steps)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(reference, tmp_path):
    assert_same(search_in(tmp_path / "run", "local", 2), reference[0])


@pytest.mark.slow
def test_another_seed_gives_another_policy(reference, tmp_path):
    run = create_run(replace(SETTINGS, seed=1), SEARCH, tmp_path / "run")
    assert not np.array_equal(search_run(run, "inline").weights, reference[0].weights)


@pytest.mark.parametrize(
    ("stopped", "damage"),
    [
        (4, "none"),
        (7, "cut"),
        *(pytest.param(*it, marks=pytest.mark.slow) for it in ((1, "none"), (7, "none"), (4, "cut"))),
    ],
)
def test_stopped_and_resumed_it_ends_the_same(stopped, damage, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(Search, "checkpoint_every", 3)
    run = create_run(SETTINGS, SEARCH, tmp_path / "run")

    def stop(step: SearchStep) -> None:
        if step.epoch + 1 == stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_run(run, "inline", on_step=stop)
    assert not (run.path / "policy.json").exists()
    if damage == "cut":  # the newest checkpoint: the one before it is used
        newest = max(run.checkpoints.iterdir())
        newest.write_bytes(newest.read_bytes()[:-9])
    steps: list[SearchStep] = []
    found = search_run(Run.open(run.path), "inline", on_step=steps.append)
    first = stopped if damage == "none" else stopped // 3 * 3
    assert [step.epoch for step in steps] == list(range(first, STEPS))
    assert_same(found, reference[0])
    assert read_metrics(run.metrics) == read_metrics(reference[1] / "metrics.jsonl")
    # Once more: nothing is left to do.
    assert_same(search_run(Run.open(run.path), "inline", on_step=pytest.fail), found)


@pytest.mark.parametrize(
    ("tensors", "info"),
    [
        ({"weights": np.zeros((1, 3), np.float32)}, {"env_steps": 0, "late_count": 0}),
        ({}, {"env_steps": 0}),
        ({"late_sum": None}, {"env_steps": 0, "late_count": 0}),
        ({}, {"env_steps": -1, "late_count": 0}),
        ({}, {"env_steps": 0, "late_count": 1.5}),
        ({}, {"env_steps": True, "late_count": 0}),
        ({"weights": np.full((2, 5), np.nan, np.float32)}, {"env_steps": 0, "late_count": 0}),
        ({"weights": np.zeros((2, 5))}, {"env_steps": 0, "late_count": 0}),
        ({"obs_mean": np.zeros(3, np.float32)}, {"env_steps": 0, "late_count": 0}),
        ({"obs_std": np.zeros(4, np.float32)}, {"env_steps": 0, "late_count": 0}),
        ({"obs_mean": None, "obs_std": None}, {"env_steps": 0, "late_count": 0}),
    ],
)
def test_a_checkpoint_of_another_search_is_refused(tensors, info, tmp_path):
    run = create_run(SETTINGS, SEARCH, tmp_path / "run")
    search = Search(SETTINGS, SEARCH)
    search.obs_stats = FixedStats(np.zeros(4, np.float32), np.ones(4, np.float32))
    kept = {name: value for name, value in (search.tensors() | tensors).items() if value is not None}
    run.save_checkpoint(2, kept, info)
    with pytest.raises(BadInput, match="does not fit a search for a fixed policy"):
        search_run(run, "inline")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Search(Settings("random-cart-pole"), SEARCH), "needs continuous actions, not random-cart-pole"),
        (lambda: Search(SETTINGS, SearchSettings(0)), "env_steps must be above zero"),
        (lambda: SearchSettings(10, population=3), r"population \(3\) must be even"),
        (lambda: SearchSettings(10, population=0), r"population \(0\) must be even"),
        (lambda: SearchSettings(10, population=10**12), r"fixed\.population must be at most 1,048,576"),
        (lambda: SearchSettings(10, sigma=-1.0), r"fixed\.sigma must be above zero"),
    ],
)
def test_bad_settings_are_refused(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


def test_a_run_of_another_kind_is_refused(tmp_path):
    run = Run.create(tmp_path / "run", {"format": 2, "kind": "evolve"})
    with pytest.raises(BadInput, match="not a search for a fixed policy"):
        search_run(run, "inline")


# --- deployment ----------------------------------------------------------------------------------------------------


def slow_score(found: FixedPolicy, task_index: int, seed: int) -> float:
    """Act with a linear policy on a held-out task, step by step; return the mean return."""
    family, returns = find_family("point-reach"), []
    task, key = task_sampler(family, seed, Split.HELD_OUT)(jnp.int32(task_index), jnp.int32(0))
    for episode in jax.random.split(stream_key(key, Stream.SCORE), SETTINGS.lifetime.scoring_episodes):
        noise = np.asarray(draw_noise(stream_key(episode, Stream.ACTION), family.spaces, family.horizon))
        state, total = family.reset(stream_key(episode, Stream.RESET), task), 0.0
        for t in range(family.horizon):
            seen = (np.asarray(family.observe(state, task)) - found.obs_stats.mean) / found.obs_stats.std
            action = found.weights @ np.append(seen, 1.0) + np.exp(-0.5) * noise[t]
            state, reward, _ = family.step(state, jnp.asarray(action, jnp.float32), task)
            total += float(reward)
        returns.append(total)
    return float(np.mean(returns))


def test_the_deployed_score_is_the_policy_acting(reference):
    # Over the family's whole horizon, whatever the evolution's is, and with no learning.
    found = replace(reference[0], weights=np.float32(0.3 * np.random.default_rng(1).normal(size=(2, 5))))
    cut = replace(SETTINGS, evolution=replace(SETTINGS.evolution, horizon=5))
    result = held_out(found, cut, 3, seed=4)
    np.testing.assert_allclose(result.final, [slow_score(found, index, 4) for index in range(3)], rtol=1e-3)
    assert (result.method, result.meta_steps, result.steps) == ("fixed", found.env_steps, SETTINGS.lifetime.steps)
    assert not result.kl.any()
    with pytest.raises(BadInput, match="tasks must be above zero"):
        held_out(found, SETTINGS, 0, seed=4)


def test_both_drivers_score_alike(reference):
    family = find_family("point-reach")
    found, rng = reference[0], np.random.default_rng(2)
    weights = rng.normal(size=(3, 2, 5)).astype(np.float32)
    given = weights, np.arange(3, dtype=np.int32), np.array(2, np.int32)
    scan, host = (
        fixed_policy.score_batch(SETTINGS, found.policy, found.obs_stats, it, Split.TRAIN)(*given)
        for it in (family, outside(family))
    )
    np.testing.assert_allclose(scan[0], host[0], rtol=1e-3, atol=1e-3)
    for counts in zip(scan[1:], host[1:], strict=True):
        np.testing.assert_array_equal(*counts)
