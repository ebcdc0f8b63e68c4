"""Evolution: the same phi whatever runs it and however often it is killed; metrics, checkpoints, resuming."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from epg.learners import Learned
from epg.methods import evolution, shards
from epg.evolution.loop import Evolution, evolve_run
from epg.evolution.runs import create_run, extend, open_run
from epg.families import load_family
from epg.storage.run import Run, load_loss
from epg.evolution.strategy import shape_fitness
from epg.recipes import preset
from epg.core.errors import BadInput
from epg.settings import Settings, to_dict

FAMILY = "point-goal"


def smoke(**changes: object) -> Settings:
    settings = preset(FAMILY, "smoke")
    return replace(settings, evolution=replace(settings.evolution, **changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> evolution.Evolved:
    """An evolution that was never killed, in one process."""
    settings = smoke(epochs=6)
    run = create_run(settings, tmp_path_factory.mktemp("reference") / "run")
    return evolve_run(run, settings, executor="inline")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_number_of_processes_changes_nothing(processes: int, reference: evolution.Evolved, tmp_path: Path) -> None:
    settings = smoke(epochs=6)
    evolved = evolve_run(create_run(settings, tmp_path / "run"), settings, "local", processes)
    assert evolved.loss_sha256 == reference.loss_sha256
    np.testing.assert_array_equal(evolved.phi, reference.phi)


def test_another_seed_gives_another_loss(reference: evolution.Evolved, tmp_path: Path) -> None:
    settings = replace(smoke(epochs=1), seed=1)
    evolved = evolve_run(create_run(settings, tmp_path / "run"), settings, "inline")
    assert evolved.loss_sha256 != reference.loss_sha256


def test_a_killed_worker_is_replaced(reference: evolution.Evolved, tmp_path: Path) -> None:
    settings, killed = smoke(epochs=6), []

    def kill(epoch: evolution.Epoch) -> None:
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
    return parent == os.getpid() and b"epg.executors.worker" in words


def test_a_longer_run_goes_on_from_a_shorter_one(reference: evolution.Evolved, tmp_path: Path) -> None:
    short = smoke(epochs=2)
    evolve_run(create_run(short, tmp_path / "run"), short, "inline")
    run, settings = extend(*open_run(tmp_path / "run"), smoke(epochs=6))
    assert evolve_run(run, settings, "inline").loss_sha256 == reference.loss_sha256
    assert Run.open(tmp_path / "run").config["settings"]["evolution"]["epochs"] == 6
    with pytest.raises(BadInput, match=r"--evolution\.sigma"):
        extend(run, settings, smoke(epochs=6, sigma=0.5))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(reference: evolution.Evolved, tmp_path: Path) -> None:
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
    evaluate = shards.build(to_dict(settings))
    population = ours.ask()
    results = [evaluate(request) for request in ours.requests(population)]
    epoch = ours.tell(population, results, 1.0)
    fitness = np.empty((settings.evolution.noise_vectors, settings.evolution.tasks), np.float32)
    for loss in range(fitness.shape[0]):
        for task in range(fitness.shape[1]):
            shard = settings.evolution.shard
            request = {
                "phi": np.tile(population[loss], (shard, 1)),
                "task": np.full(shard, task, np.int32),
                "epoch": np.array(0, np.int32),
                "alpha": np.array(0.0, np.float32),
            }
            fitness[loss, task] = evaluate(request)["fitness"][0]
    theirs.strategy.tell(theirs.ask(), shape_fitness(fitness, "all"))
    np.testing.assert_array_equal(ours.strategy.phi, theirs.strategy.phi)
    assert epoch.fitness_mean == pytest.approx(fitness.mean(), rel=1e-5)
    assert epoch.fitness_best == pytest.approx(fitness.mean(axis=1).max(), rel=1e-5)
    steps = settings.lifetime.steps + settings.lifetime.scoring_episodes * load_family(FAMILY).horizon
    assert epoch.env_steps == settings.evolution.lifetimes * steps


def test_nothing_is_compiled_after_the_first_epoch() -> None:
    settings = smoke(epochs=3)
    settings = replace(settings, guidance=replace(settings.guidance, learner="ppo", epochs=2))
    state, evaluate = Evolution(settings), shards.build(to_dict(settings))

    def epoch() -> None:
        population = state.ask()
        state.tell(population, [evaluate(request) for request in state.requests(population)], 1.0)

    epoch()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **kw: compiled.append(name))
    try:
        epoch()  # alpha falls from 1 through 1/2
        epoch()  # to 0
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


def test_independent_tasks_number_every_lifetime() -> None:
    settings = smoke(common_tasks=False)
    state = Evolution(settings)
    tasks = np.concatenate([request["task"] for request in state.requests(state.ask())])
    np.testing.assert_array_equal(tasks, np.arange(settings.evolution.lifetimes))
    common = np.concatenate([r["task"] for r in Evolution(smoke()).requests(state.ask())])
    np.testing.assert_array_equal(common, np.tile(np.arange(2), 4))


@pytest.mark.parametrize("objective", ["last", "lifetime"])
def test_objectives_look_at_the_recorded_episodes(objective: str) -> None:
    settings = smoke()
    family = load_family(FAMILY)
    learned = Learned(settings.loss, settings.policy, family.spaces)
    plan = shards.make_plan(settings, learned, family)
    run = shards.batch_of_lifetimes(plan, family, 0, shards.Split.TRAIN)
    phi = np.tile(np.asarray(learned.initial_phi(jax.random.key(0))), (2, 1))
    outcome = run(phi, np.arange(2, dtype=np.int32), np.int32(0), np.float32(0))
    wanted = replace(settings.evolution, objective=objective, objective_updates=2)  # type: ignore[arg-type]
    returns = np.asarray(outcome.episode_return)
    span = returns[:, -2:] if objective == "last" else returns
    expected = [np.nanmean(span[index]) for index in range(2)]
    np.testing.assert_allclose(shards.fitness_of(outcome, wanted), expected, rtol=1e-5)


def test_the_loss_of_a_run_says_where_it_came_from(reference: evolution.Evolved) -> None:
    artefact = load_loss(reference.run)
    assert artefact.manifest["family"] == FAMILY
    assert artefact.manifest["epochs"] == 6
    assert artefact.manifest["sha256"] == reference.loss_sha256
    assert len(artefact.manifest["curve"]) == 6
    np.testing.assert_array_equal(artefact.phi, reference.phi)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    settings = smoke()
    run = create_run(settings, tmp_path / "run")
    with run.lock(), pytest.raises(BadInput, match="in use by another process"):
        evolve_run(run, settings, "inline")


def test_a_checkpoint_costs_the_loop_under_one_percent_of_an_epoch(tmp_path: Path) -> None:
    """What the loop waits for is the hand-over to the writing thread; the disk works beside the next epoch."""
    settings = preset(FAMILY, "laptop")
    state, run = Evolution(settings), create_run(settings, tmp_path / "run")
    epoch = settings.evolution.lifetimes * settings.lifetime.steps / 400_000  # seconds, at two fast cores
    waits = []
    with evolution.Saver(run) as saver:
        for number in range(10):
            began = time.perf_counter()
            saver.save(number, state.strategy.state(), 0)
            waits.append(time.perf_counter() - began)
            time.sleep(0.1)
    assert np.median(waits) < 0.01 * epoch


def test_an_evolution_may_start_from_a_loss(reference: evolution.Evolved, tmp_path: Path) -> None:
    settings, start = smoke(epochs=2, sigma=0.03), load_loss(reference.run)
    run = create_run(settings, tmp_path / "whole", start)
    np.testing.assert_array_equal(_restored(run, settings).strategy.phi, reference.phi)
    evolved = evolve_run(run, settings, "inline")
    assert evolved.env_steps > reference.env_steps > 0  # what the first loss cost counts too
    assert evolved.loss_sha256 != reference.loss_sha256
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
    found = Evolution(settings)
    found.restore(run)
    return found


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"family": "point-reach", "loss": preset("point-reach", "smoke").loss}, "has other inputs or sizes: set"),
        ({"loss": replace(preset(FAMILY, "smoke").loss, hidden=20)}, "set --loss.hidden 16"),
        ({"family": "random-pendulum"}, "does not fit random-pendulum"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(
    change: dict, sentence: str, reference: evolution.Evolved, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=sentence):
        create_run(replace(smoke(), **change), tmp_path / "run", load_loss(reference.run))
    assert not (tmp_path / "run").exists()


def test_a_pair_meets_tasks_of_its_own() -> None:
    settings = smoke(noise_vectors=4, lifetimes=8, shard=4, paired_tasks=True)
    requests = list(Evolution(settings).requests(np.zeros((4, 3), np.float32)))
    tasks = np.concatenate([it["task"] for it in requests]).reshape(4, 2)
    np.testing.assert_array_equal(tasks, [[0, 1], [2, 3], [0, 1], [2, 3]])
    with pytest.raises(BadInput, match="paired_tasks needs"):
        smoke(paired_tasks=True, antithetic=False)
