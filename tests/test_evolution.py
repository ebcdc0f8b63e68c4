"""Evolution: the same phi whatever runs it and however often it is killed; metrics, checkpoints, warm starts."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from samples import run_epoch

from epg.core.errors import BadInput
from epg.core.rng import Split
from epg.core.types import MetaParams
from epg.evolution import loop, observation_stats, worker
from epg.evolution.fitness import shape_fitness
from epg.evolution.loop import EpochMetrics, Evolution, EvolutionResult, evolve_run, stats_of
from epg.evolution.observation_stats import measure_observations, measure_statistics
from epg.evolution.runs import create_run, extend, open_run
from epg.evolution.task_sampling import assign_tasks, task_sampler
from epg.evolution.worker import ShardRequest, ShardResult, build, evolution_family, work_config
from epg.families.native.point import POINT_GOAL
from epg.families.registry import find_family
from epg.learners.learned import LearnedLoss
from epg.lifetime.batch import batch_of_lifetimes, inner_config
from epg.lifetime.window import normalize_window, normalized_trace
from epg.loss.modulation import lasting_directions, transition_statistics
from epg.policies.mlp import MlpPolicy
from epg.recipes import preset
from epg.settings import EvolutionSettings, Settings
from epg.storage.checkpoint_writer import CheckpointWriter
from epg.storage.loss_artefact import load_loss
from epg.storage.run import Run

FAMILY = "point-goal"


HORIZON = 7  # of the evolution: shorter than the family's


def smoke(**changes: object) -> Settings:
    settings = preset(FAMILY, "smoke")
    return replace(settings, evolution=replace(settings.evolution, **{"horizon": HORIZON, **changes}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    """An evolution that was never killed, in one process."""
    settings = smoke(epochs=6)
    run = create_run(settings, tmp_path_factory.mktemp("reference") / "run")
    return evolve_run(run, settings, executor="inline")


@pytest.mark.slow  # in make test, test_durability.py compares two processes with one
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_number_of_processes_changes_nothing(processes: int, reference: EvolutionResult, tmp_path: Path) -> None:
    settings = smoke(epochs=6)
    evolved = evolve_run(create_run(settings, tmp_path / "run"), settings, "local", processes)
    assert evolved.loss_sha256 == reference.loss_sha256
    np.testing.assert_array_equal(evolved.phi, reference.phi)


def test_another_seed_gives_other_losses_and_other_tasks() -> None:
    first, second = (Evolution(replace(smoke(), seed=seed)) for seed in (0, 1))
    assert (np.asarray(first.ask()) != np.asarray(second.ask())).mean() > 0.9
    goals = [task_sampler(POINT_GOAL, seed, Split.TRAIN)(jnp.int32(0), jnp.int32(0))[0].goal for seed in (0, 1)]
    assert not np.array_equal(*goals)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(reference: EvolutionResult, tmp_path: Path) -> None:
    settings, killed = smoke(epochs=6), []

    def kill(epoch: EpochMetrics) -> None:
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit() and _is_worker_of_this(int(p))]
        if epoch.epoch in (1, 3) and pids:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    evolved = evolve_run(create_run(settings, tmp_path / "run"), settings, "local", 2, kill)
    assert len(killed) == 2
    assert evolved.loss_sha256 == reference.loss_sha256


def _is_worker_of_this(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError):
        return False
    return parent == os.getpid() and any(b"epg.executors.worker" in word for word in words)


def test_a_longer_run_goes_on_from_a_shorter_one(reference: EvolutionResult, tmp_path: Path) -> None:
    short = smoke(epochs=2)
    evolve_run(create_run(short, tmp_path / "run"), short, "inline")
    run, settings = extend(*open_run(tmp_path / "run"), smoke(epochs=6))
    assert evolve_run(run, settings, "inline").loss_sha256 == reference.loss_sha256
    assert Run.open(tmp_path / "run").config["settings"]["evolution"]["epochs"] == 6
    with pytest.raises(BadInput, match=r"--evolution\.sigma"):
        extend(run, settings, smoke(epochs=6, sigma=0.5))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(reference: EvolutionResult, tmp_path: Path) -> None:
    short = smoke(epochs=3)
    run = create_run(short, tmp_path / "run")
    evolve_run(run, short, "inline")
    newest = max(run.checkpoints.iterdir())
    newest.write_bytes(newest.read_bytes()[:-7])
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.epoch == 2
    assert newest.name in checkpoint.skipped[0]
    run, settings = extend(*open_run(run.path), smoke(epochs=6))
    assert evolve_run(run, settings, "inline").loss_sha256 == reference.loss_sha256


def test_an_epoch_is_the_sum_of_its_parts() -> None:
    """One epoch by hand: ask, every lifetime alone, rank, tell."""
    settings = smoke()
    ours, theirs = Evolution(settings), Evolution(settings)
    evaluate, population = build(work_config(settings, None)), theirs.ask()
    epoch, _ = run_epoch(ours, evaluate)
    fitness = np.empty((settings.evolution.noise_vectors, settings.evolution.tasks_per_loss), np.float32)
    for loss in range(fitness.shape[0]):
        for task in range(fitness.shape[1]):
            shard = settings.evolution.shard
            request = ShardRequest(
                phi=np.tile(population[loss], (shard, 1)),
                policy_init=np.zeros((shard, 0), np.float32),
                task=np.full(shard, task, np.int32),
                epoch=np.array(0, np.int32),
                alpha=np.array(0.0, np.float32),
            )
            fitness[loss, task] = ShardResult.from_arrays(evaluate(request.to_arrays())).fitness[0]
    theirs.strategy.tell(population, shape_fitness(fitness, "all"))
    np.testing.assert_array_equal(ours.strategy.phi, theirs.strategy.phi)
    assert epoch.fitness_mean == pytest.approx(fitness.mean(), rel=1e-5)
    assert epoch.fitness_best == pytest.approx(fitness.mean(axis=1).max(), rel=1e-5)
    steps = settings.lifetime.steps + settings.lifetime.scoring_episodes * HORIZON
    assert epoch.env_steps == settings.evolution.lifetimes * steps


def test_what_lasts_longer_moves_phi_and_not_the_record() -> None:
    """With `evolution.survival` phi goes where return + survival x share of the time limit goes."""
    plain, bonus = Evolution(smoke()), Evolution(smoke(survival=10.0))
    by_hand = Evolution(smoke())
    population = plain.ask()
    number = plain.settings.evolution.lifetimes
    fitness, survived = np.linspace(3, 1, number, dtype=np.float32), np.linspace(0, 1, number, dtype=np.float32)

    def results(fitness: np.ndarray) -> list[ShardResult]:
        counts = np.zeros(number, np.int32)
        return [ShardResult(fitness, survived, counts, counts, counts, np.zeros((number, 0), np.float32))]

    records = [it.tell(population, results(fitness), 0.0) for it in (plain, bonus)]
    by_hand.tell(population, results(fitness + 10 * survived), 0.0)
    np.testing.assert_array_equal(bonus.strategy.phi, by_hand.strategy.phi)
    assert np.abs(bonus.strategy.phi - plain.strategy.phi).max() > 0
    assert records[0].fitness_mean == records[1].fitness_mean == pytest.approx(2)
    assert records[0].survived == records[1].survived == pytest.approx(0.5)


def test_phi_itself_is_measured_beside_its_population(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = smoke()
    evolution, plain = Evolution(settings), Evolution(settings)
    evaluate = build(work_config(settings, None))
    for epoch in range(3):
        phi = evolution.strategy.phi
        without, _ = run_epoch(plain, evaluate)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "PHI_EVERY", 2)
            metrics, _ = run_epoch(evolution, evaluate)
        np.testing.assert_array_equal(evolution.strategy.phi, plain.strategy.phi)  # measuring changes nothing
        assert np.isfinite(metrics.phi_fitness) == (epoch == 1)
        assert np.isfinite(metrics.phi_fitness_error) == (epoch == 1)
        if epoch == 1:
            tasks = settings.evolution.lifetimes + np.arange(4, dtype=np.int32)
            fresh, numbers = np.zeros((4, 0), np.float32), (np.array(1, np.int32), np.array(0.0, np.float32))
            request = ShardRequest(np.tile(phi, (4, 1)), fresh, tasks, *numbers)
            expected = ShardResult.from_arrays(evaluate(request.to_arrays()))
            assert metrics.phi_fitness == pytest.approx(expected.fitness.mean(), rel=1e-6)
            assert metrics.phi_fitness_error == pytest.approx(expected.fitness.std(ddof=1) / 2, rel=1e-6)
            assert metrics.env_steps == without.env_steps + expected.env_steps.sum()


def test_a_shard_is_its_lifetimes() -> None:
    """What a worker returns is what the lifetimes of the same losses and tasks return."""
    settings = smoke()
    state = Evolution(settings)
    request = state.requests(state.ask())[1]
    ours = ShardResult.from_arrays(build(work_config(settings, None))(request.to_arrays()))
    family = evolution_family(settings)
    policy = MlpPolicy(settings.policy, family.spaces)
    learner = LearnedLoss(settings.loss, policy, family.spaces, settings.lifetime.replay)
    sampler = task_sampler(family, settings.seed, Split.TRAIN, settings.evolution.balanced)
    run = batch_of_lifetimes(inner_config(settings, learner, policy, family, None), family, sampler)
    meta = MetaParams(jnp.asarray(request.phi), jnp.zeros(()), jnp.zeros((len(request.task), 0)))
    theirs = run(meta, jnp.asarray(request.task), jnp.asarray(request.epoch))
    np.testing.assert_array_equal(ours.fitness, theirs.final_return)
    for name in ("survived", "nonfinite", "diverged", "env_steps"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("kind", [ShardRequest, ShardResult])
def test_records_cross_a_process_boundary_as_arrays_by_name(kind: type) -> None:
    names = list(kind.__dataclass_fields__)
    record = kind(**{name: np.full(3, number, np.float32) for number, name in enumerate(names)})
    assert list(record.to_arrays()) == names
    again = kind.from_arrays(record.to_arrays())
    for name in names:
        assert getattr(again, name) is getattr(record, name)
    with pytest.raises(KeyError, match=names[-1]):
        kind.from_arrays({name: value for name, value in record.to_arrays().items() if name != names[-1]})


def test_episodes_are_cut_at_the_evolutions_horizon(reference: EvolutionResult) -> None:
    assert evolution_family(smoke(horizon=None)) is POINT_GOAL
    assert evolution_family(smoke()).horizon == HORIZON
    assert evolution_family(smoke(horizon=700)).horizon == POINT_GOAL.horizon
    settings = smoke()
    steps = settings.lifetime.steps + settings.lifetime.scoring_episodes * HORIZON
    assert reference.env_steps == 6 * settings.evolution.lifetimes * steps


def test_nothing_is_compiled_after_the_first_epoch() -> None:
    settings = smoke(epochs=3)
    lifetime = replace(settings.lifetime, replay=False)  # a policy gradient needs the newest transitions
    settings = replace(settings, lifetime=lifetime, guidance=replace(settings.guidance, learner="ppo", epochs=2))
    state, evaluate = Evolution(settings), build(work_config(settings, None))
    run_epoch(state, evaluate)
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **kw: compiled.append(name))
    try:
        run_epoch(state, evaluate)  # alpha falls from 1 through 1/2
        run_epoch(state, evaluate)  # to 0
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [name for name in compiled if "compile" in name]


def test_the_compile_listener_would_have_noticed() -> None:
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **kw: compiled.append(name))
    try:
        jax.jit(lambda x: x * 3 + 1)(np.float32(2))
    finally:
        jax.monitoring.clear_event_listeners()
    assert [name for name in compiled if "compile" in name]


def tasks_of(settings: Settings) -> np.ndarray:
    """Return the tasks of an epoch's lifetimes, as they are requested."""
    state = Evolution(settings)
    return np.concatenate([request.task for request in state.requests(state.ask())])


def test_task_sharing_decides_which_losses_share_tasks() -> None:
    # Four losses, two tasks for each.
    np.testing.assert_array_equal(tasks_of(smoke(task_sharing="none")), np.arange(8))
    np.testing.assert_array_equal(tasks_of(smoke(task_sharing="all")), np.tile(np.arange(2), 4))
    paired = tasks_of(smoke(task_sharing="pair")).reshape(4, 2)
    np.testing.assert_array_equal(paired, [[0, 1], [2, 3], [0, 1], [2, 3]])  # losses v and v + V / 2
    with pytest.raises(BadInput, match=r"rule ars needs evolution\.task_sharing pair or all"):
        smoke(task_sharing="none", rule="ars")


@pytest.mark.parametrize("sharing", ["all", "pair", "none"])
def test_lifetimes_are_assigned_loss_by_loss(sharing: str) -> None:
    evolution = EvolutionSettings(noise_vectors=6, lifetimes=18, shard=9, task_sharing=sharing)  # type: ignore[arg-type]
    loss, task = assign_tasks(evolution)
    np.testing.assert_array_equal(loss, np.repeat(np.arange(6), 3))
    sharers = {index: set(loss[task == index]) for index in task}
    expected = {"all": set(range(6)), "pair": {0, 3}, "none": {0}}[sharing]
    assert sharers[0] == expected
    assert len(sharers) == 18 // len(expected)
    assert all(len(set(task[loss == index])) == 3 for index in range(6))


def test_held_out_tasks_come_in_pairs_of_opposite_directions() -> None:
    goals = {}
    for split in (Split.TRAIN, Split.HELD_OUT):
        sample = jax.vmap(task_sampler(POINT_GOAL, 0, split), (0, None))
        goals[split] = np.asarray(sample(jnp.arange(6), jnp.int32(0))[0].goal)
    first, second = goals[Split.HELD_OUT][::2], goals[Split.HELD_OUT][1::2]
    np.testing.assert_allclose(second, -first, atol=1e-5)
    assert len(np.unique(first.round(3), axis=0)) == 3
    assert np.abs(goals[Split.TRAIN][::2] + goals[Split.TRAIN][1::2]).max() > 0.5  # independent


def test_only_shared_tasks_are_balanced() -> None:
    settings = EvolutionSettings(noise_vectors=4, lifetimes=12, shard=4)
    assert (settings.tasks_per_loss, settings.balanced) == (3, 3)
    assert replace(settings, task_sharing="pair").balanced == 3
    assert replace(settings, task_sharing="none").balanced == 0


def test_the_loss_of_a_run_says_where_it_came_from(reference: EvolutionResult) -> None:
    artefact = load_loss(reference.run)
    assert artefact.manifest["family"] == FAMILY
    assert artefact.manifest["epochs"] == 6
    assert artefact.manifest["sha256"] == reference.loss_sha256
    assert len(artefact.manifest["curve"]) == 6
    np.testing.assert_array_equal(artefact.phi, reference.phi)


def test_a_line_of_metrics_without_its_fitness_leaves_a_gap_in_the_curve(
    reference: EvolutionResult, tmp_path: Path
) -> None:
    shutil.copytree(reference.run, tmp_path / "run")
    *lines, last = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    lines[1], last = lines[1].replace('"fitness_mean"', '"fitness_men"'), json.dumps({"epoch": 5, "fitness_mean": "x"})
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join([*lines, last]) + "\n")
    evolve_run(*open_run(tmp_path / "run", FAMILY), "inline")
    curve = load_loss(tmp_path / "run").manifest["curve"]
    assert [value is None for value in curve] == [False, True, False, False, False, True]


def test_the_loss_before_evolution_is_kept(reference: EvolutionResult) -> None:
    first = load_loss(reference.run / "first")
    np.testing.assert_array_equal(first.phi, Evolution(smoke(epochs=6)).strategy.phi)
    assert [first.manifest[name] for name in ("epochs", "env_steps", "curve")] == [0, 0, []]
    assert first.manifest["settings"] == load_loss(reference.run).manifest["settings"]


def test_the_loss_so_far_can_be_used_while_the_evolution_goes_on(
    reference: EvolutionResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOSS_EVERY", 4)
    settings, seen = smoke(epochs=6), []

    def on_epoch(epoch: EpochMetrics) -> None:
        there = (tmp_path / "run" / "loss.json").is_file()
        seen.append(load_loss(tmp_path / "run").manifest["epochs"] if there else None)

    ended = evolve_run(create_run(settings, tmp_path / "run"), settings, "inline", None, on_epoch)
    assert seen == [None, None, None, 4, 4, 4]
    assert ended.loss_sha256 == reference.loss_sha256


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    settings = smoke()
    run = create_run(settings, tmp_path / "run")
    with run.lock(), pytest.raises(BadInput, match="in use by another process"):
        evolve_run(run, settings, "inline")


def test_a_checkpoint_costs_the_loop_under_one_percent_of_an_epoch(tmp_path: Path) -> None:
    """The loop only waits for the hand-over to the writing thread; the disk is written during the next epoch."""
    settings = preset(FAMILY, "laptop")
    state, run = Evolution(settings), create_run(settings, tmp_path / "run")
    epoch = settings.evolution.lifetimes * settings.lifetime.steps / 400_000  # seconds, at two fast cores
    waits = []
    with CheckpointWriter(run) as writer:
        for number in range(10):
            began = time.perf_counter()
            writer.save(number, state.tensors(), {"env_steps": 0})
            waits.append(time.perf_counter() - began)
            time.sleep(0.1)
    assert np.median(waits) < 0.01 * epoch


def test_an_evolution_may_start_from_a_loss(reference: EvolutionResult, tmp_path: Path) -> None:
    settings, start = smoke(epochs=2, sigma=0.03), reference.run
    run = create_run(settings, tmp_path / "whole", start)
    np.testing.assert_array_equal(_restored(run, settings).strategy.phi, reference.phi)
    evolved = evolve_run(run, settings, "inline")
    assert evolved.env_steps > reference.env_steps > 0  # what the warm start cost counts too
    assert evolved.loss_sha256 != reference.loss_sha256
    source = {"kind": "loss", "family": FAMILY, "sha256": reference.loss_sha256, "env_steps": reference.env_steps}
    assert load_loss(evolved.run).manifest["warm_start"] == source  # named in the manifest
    assert load_loss(reference.run).manifest["warm_start"] is None
    # In two parts it is the same, and without its first checkpoint it does not begin with another loss.
    half = smoke(epochs=1, sigma=0.03)
    evolve_run(create_run(half, tmp_path / "parts", start), half, "inline")
    opened, begun = open_run(tmp_path / "parts")
    again = evolve_run(*extend(opened, begun, settings), "inline")
    assert again.loss_sha256 == evolved.loss_sha256
    lost = create_run(settings, tmp_path / "lost", start)
    next(lost.checkpoints.iterdir()).unlink()
    with pytest.raises(BadInput, match="begin a new run"):
        evolve_run(lost, settings, "inline")


def _restored(run: Run, settings: Settings) -> Evolution:
    found, checkpoint = Evolution(settings), run.load_checkpoint()
    assert checkpoint is not None
    found.restore(checkpoint, run.path)
    return found


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"family": "point-reach", "loss": preset("point-reach", "smoke").loss}, "has other inputs or sizes: set"),
        ({"loss": replace(preset(FAMILY, "smoke").loss, hidden=20)}, "set --loss.hidden 16"),
        ({"family": "random-pendulum"}, "does not fit random-pendulum"),
        ({"policy": replace(preset(FAMILY, "smoke").policy, obs_stats="fixed")}, "needs --policy.obs_stats running"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    change: dict, sentence: str, reference: EvolutionResult, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        create_run(replace(smoke(), **change), tmp_path / "run", reference.run)
    assert not (tmp_path / "run").exists()


# --- what is measured before the first epoch ----------------------------------------------------------------------


def measuring(epochs: int = 2, family: str = "point-reach") -> Settings:
    """Return settings that need both measurements: fixed observation statistics, and the scale of the mixes."""
    settings = preset(family, "smoke")
    return replace(
        settings,
        policy=replace(settings.policy, obs_stats="fixed"),
        loss=replace(settings.loss, modulation="transitions", mixes=3),
        evolution=replace(settings.evolution, epochs=epochs),
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    """An evolution that began with measurements and was never killed, in one process."""
    settings = measuring()
    return evolve_run(create_run(settings, tmp_path_factory.mktemp("measured") / "run"), settings, "inline")


def steps_of_a_shard(settings: Settings) -> int:
    """Return the environment steps of one shard of lifetimes."""
    lifetime, horizon = settings.lifetime, find_family(settings.family).horizon
    return settings.evolution.shard * (lifetime.steps + lifetime.scoring_episodes * horizon)


def test_observations_are_measured_on_training_tasks() -> None:
    settings = measuring()
    stats, steps = measure_observations(settings)
    assert stats.mean.shape == stats.std.shape == (4,)
    assert stats.mean.dtype == stats.std.dtype == np.float32
    assert stats.std.min() >= np.float32(0.1)
    assert steps == steps_of_a_shard(settings)
    again, _ = measure_observations(settings)
    np.testing.assert_array_equal(again.mean, stats.mean)


def test_a_loss_has_its_observation_statistics_and_lifetimes_use_them(measured: EvolutionResult) -> None:
    settings, artefact = measuring(), load_loss(measured.run)
    stats, _ = measure_observations(settings)
    np.testing.assert_array_equal(artefact.tensors["obs_mean"], stats.mean)
    np.testing.assert_array_equal(artefact.tensors["obs_std"], stats.std)
    family = find_family(settings.family)
    policy = MlpPolicy(settings.policy, family.spaces)
    learner = LearnedLoss(settings.loss, policy, family.spaces, settings.lifetime.replay)
    assert learner.dimension == len(artefact.phi)
    config = inner_config(settings, learner, policy, family, stats_of(artefact.tensors, 4))
    meta = MetaParams(jnp.asarray(artefact.phi)[None], jnp.zeros(()), jnp.zeros((1, 0)))
    run = batch_of_lifetimes(config, family, task_sampler(family, 0, Split.HELD_OUT))
    result = run(meta, jnp.zeros(1, jnp.int32), jnp.int32(0))
    np.testing.assert_array_equal(result.normalizer.observation.mean[0], stats.mean)
    # The budget counts both measurements and both epochs.
    assert measured.env_steps == 4 * steps_of_a_shard(settings) + 2 * steps_of_a_shard(settings)


@pytest.mark.slow
def test_measurements_do_not_depend_on_who_works(measured: EvolutionResult, tmp_path: Path) -> None:
    settings = measuring()
    evolved = evolve_run(create_run(settings, tmp_path / "run"), settings, "local", 2)
    assert (evolved.loss_sha256, evolved.env_steps) == (measured.loss_sha256, measured.env_steps)


@pytest.mark.parametrize(
    "moment", ["checkpoint", *(pytest.param(it, marks=pytest.mark.slow) for it in ("workers", "measuring", "epoch"))]
)
def test_stopped_anywhere_and_resumed(
    moment: str, measured: EvolutionResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = measuring()
    run = create_run(settings, tmp_path / "run")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "measuring":
            patch.setattr(loop, "measure_statistics", stop)
        elif moment == "checkpoint":
            patch.setattr(Run, "save_checkpoint", stop)
        elif moment == "workers":
            patch.setattr(loop, "make_executor", stop)
        with pytest.raises(KeyboardInterrupt):
            evolve_run(run, settings, "inline", on_epoch=stop if moment == "epoch" else None)
    opened, begun = open_run(tmp_path / "run")
    assert extend(opened, begun, settings)[1] == settings  # nothing measured is written into the settings
    evolved = evolve_run(opened, begun, "inline")
    assert (evolved.loss_sha256, evolved.env_steps) == (measured.loss_sha256, measured.env_steps)
    assert load_loss(run.first).manifest == load_loss(measured.run / "first").manifest


def test_a_loss_to_start_from_brings_its_statistics_and_its_mixes(measured: EvolutionResult, tmp_path: Path) -> None:
    settings = replace(measuring(), seed=7)  # which would measure and draw others
    run = create_run(settings, tmp_path / "run", measured.run)
    np.testing.assert_array_equal(_restored(run, settings).strategy.phi, measured.phi)
    evolved = evolve_run(run, settings, "inline")
    first, second = (load_loss(it.run) for it in (measured, evolved))
    for name in ("obs_mean", "obs_std"):
        np.testing.assert_array_equal(first.tensors[name], second.tensors[name])
    learner = Evolution(settings).vector.learned
    before, after = (learner.unravel(jnp.asarray(it.phi)) for it in (first, second))
    np.testing.assert_array_equal(after.mixes, before.mixes)  # they stay fixed
    np.testing.assert_array_equal(after.mix_bias, before.mix_bias)
    assert not np.array_equal(after.head, before.head)
    assert evolved.env_steps == measured.env_steps + 4 * steps_of_a_shard(settings)  # measured once


def test_window_statistics_are_measured_as_lifetimes_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two observations are declared constant: running statistics must hold them while measuring, too.
    held = replace(find_family("point-reach"), constant_inputs=((0, 0.5, 0.25), (2, -1.0, 2.0)))
    monkeypatch.setattr(worker, "find_family", lambda name: held)
    settings = measuring()
    settings = replace(settings, policy=replace(settings.policy, obs_stats="running"))
    policy = MlpPolicy(settings.policy, held.spaces)
    learner = LearnedLoss(settings.loss, policy, held.spaces)
    run = batch_of_lifetimes(
        inner_config(settings, learner, policy, held, None), held, task_sampler(held, settings.seed, Split.TRAIN)
    )
    phi, number = Evolution(settings).strategy.phi, settings.evolution.shard
    meta = MetaParams(jnp.tile(phi, (number, 1)), jnp.zeros(()), jnp.zeros((number, 0)))
    result = run(meta, jnp.arange(number, dtype=jnp.int32), jnp.int32(0))
    seen = jax.vmap(transition_statistics)(jax.vmap(normalize_window)(result.window, result.normalizer))
    scale, steps = measure_statistics(settings, None)
    np.testing.assert_allclose(scale.mean, np.mean(seen, axis=0), rtol=1e-3, atol=1e-4)
    assert steps == steps_of_a_shard(settings)


def test_lasting_directions_are_measured_in_both_halves_of_lifetimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_stats, "DIRECTIONS_FROM", 6)  # two shards of four
    settings = preset("point-goal", "smoke", **{"loss.modulation": "lasting-reward", "loss.mixes": 2})
    family = find_family(settings.family)
    policy = MlpPolicy(settings.policy, family.spaces)
    learner = LearnedLoss(settings.loss, policy, family.spaces, settings.lifetime.replay)
    sampler = task_sampler(family, settings.seed, Split.TRAIN)
    run = batch_of_lifetimes(inner_config(settings, learner, policy, family, None), family, sampler)
    meta = MetaParams(jnp.tile(Evolution(settings).strategy.phi, (8, 1)), jnp.zeros(()), jnp.zeros((8, 0)))
    result = run(meta, jnp.arange(8, dtype=jnp.int32), jnp.int32(0))
    windows = jax.vmap(normalize_window)(result.window, result.normalizer)
    traces = jax.vmap(normalized_trace)(result.window, result.normalizer)
    assert windows.reward.shape[1] < settings.lifetime.steps  # the window reaches back half a lifetime
    products = windows.reward[..., None] * np.concatenate([windows.observation, traces], axis=2)
    expected = lasting_directions(*(np.mean(it, axis=1) for it in np.split(np.asarray(products), 2, axis=1)))
    scale, steps = measure_statistics(settings, None)
    for ours, other in zip(scale, expected, strict=True):
        np.testing.assert_allclose(np.abs(ours), np.abs(other), rtol=2e-2, atol=1e-3)
    assert steps == 2 * steps_of_a_shard(settings)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"obs_mean": np.zeros(4, np.float32)}, "obs_std"),
        ({"obs_mean": np.zeros(3, np.float32), "obs_std": np.ones(3, np.float32)}, "4 finite numbers"),
        ({"obs_mean": np.zeros(4), "obs_std": np.ones(4)}, "4 finite numbers"),
        ({"obs_mean": np.full(4, np.inf, np.float32), "obs_std": np.ones(4, np.float32)}, "4 finite numbers"),
        ({"obs_mean": np.zeros(4, np.float32), "obs_std": np.zeros(4, np.float32)}, "not above zero"),
    ],
)
def test_damaged_observation_statistics_are_refused(
    tensors: dict[str, np.ndarray], sentence: str, measured: EvolutionResult
) -> None:
    with pytest.raises((KeyError, ValueError), match=sentence):
        stats_of(tensors, 4)
    run, settings = open_run(measured.run)
    checkpoint = run.load_checkpoint()
    assert checkpoint is not None
    rest = {name: value for name, value in checkpoint.tensors.items() if not name.startswith("obs_")}
    with pytest.raises(BadInput, match=r"does not fit its config\.json"):
        Evolution(settings).restore(replace(checkpoint, tensors=rest | tensors), run.path)
    assert stats_of(rest, 4) is None
