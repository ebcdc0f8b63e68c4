"""What an evolution begins with: usual observations, the search for a first target, the loss that aims at it."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outside import outside
from samples import CONTINUOUS, small_loss, small_settings, some_rollout

from epg.lifetime.host_driver import HostDriver
from epg.learners import Learned
from epg.lifetime.scan_driver import try_out
from epg.methods import evolution, first
from epg.evaluation.protocol import fitting
from epg.evolution.loop import evolve_run
from epg.warm_starts.from_policy import learn_switches, measure_usual, regress, signs_at
from epg.evolution.runs import create_run, extend, open_run
from epg.baselines.fixed_policy import Search, Tried, ascent, turned
from epg.evolution.worker import build_trials, make_plan
from epg.families import load_family
from epg.loss.network import SIDES, aim, head_rows, head_values, init_loss, row_columns
from epg.storage.metrics import read_metrics
from epg.lifetime.normalizer import Moments, add, init_moments, init_normaliser, known_moments, normalise, pool
from epg.policies.mlp import distribution, linear_policy
from epg.storage.run import load_loss
from epg.lifetime.window import learn_statistics
from epg.cli import main
from epg.viz.run_reader import read_search
from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.core.runtime import COMPILER
from epg.settings import EvolutionSettings, PolicySettings, SearchSettings, Settings, to_dict

SEARCH = SearchSettings(epochs=3, noise_vectors=6, starts=2)
SETTINGS = replace(
    small_settings("point-reach", 3, EvolutionSettings(epochs=2, noise_vectors=4, lifetimes=4, shard=4)),
    policy=PolicySettings(hidden=(8,), log_std=-0.5, normalise="family"),
    search=SEARCH,
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An evolution with all of it, never killed, in this process."""
    return evolve_run(create_run(SETTINGS, tmp_path_factory.mktemp("first") / "run"), SETTINGS, "inline")


# The search (Mania, Guy and Recht 2018, Algorithm 2), against its equations written as loops.


def test_ascent_is_augmented_random_search_on_ranks():
    rng = np.random.default_rng(0)
    noise, fitness = rng.normal(size=(6, 4)), rng.normal(size=12)
    rank = [sum(other < value for other in fitness) / 11 - 0.5 for value in fitness]
    kept = sorted(range(6), key=lambda k: -max(rank[k], rank[6 + k]))[:3]
    deviation = np.std([value for k in kept for value in (rank[k], rank[6 + k])])
    expected = np.zeros(4)
    for k in kept:
        expected += 0.1 / (3 * deviation) * (rank[k] - rank[6 + k]) * noise[k]
    np.testing.assert_allclose(ascent(noise, fitness, 0.1), expected, rtol=1e-5)
    worst = np.where(np.arange(12) == fitness.argmin(), np.nan, fitness)
    np.testing.assert_array_equal(ascent(noise, worst, 0.1), ascent(noise, fitness, 0.1))
    assert not ascent(noise, np.ones(12), 0.1).any()


def test_the_search_climbs(tmp_path):
    # point-reach is solved by an action towards the goal: linear in what is seen.
    settings = replace(SETTINGS, search=SearchSettings(epochs=40, noise_vectors=32))
    run = create_run(settings, tmp_path / "run")
    tried = []
    evolve_run(run, settings, "inline", on_tried=tried.append)
    returns = [step.fitness_mean for step in tried]
    assert len(returns) == 40
    assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 5.0
    saved = (run.path / "search.jsonl").read_text().splitlines()
    assert [json.loads(line)["fitness_mean"] for line in saved] == returns


def test_the_best_of_several_starts_goes_on(tmp_path):
    settings = replace(SETTINGS, search=SearchSettings(epochs=12, noise_vectors=4, starts=3), seed=5)
    tried = []
    run = create_run(settings, tmp_path / "run")
    evolve_run(run, settings, "inline", on_tried=tried.append)
    assert [step.start for step in tried[:12]] == [0] * 4 + [1] * 4 + [2] * 4
    trials = [[step.fitness_mean for step in tried[at : at + 4]] for at in (0, 4, 8)]
    best = max(range(3), key=lambda start: sum(trials[start][2:]))
    assert [step.start for step in tried[12:]] == [best] * 8
    assert [step.epoch for step in tried] == list(range(20))
    search = read_search(run.path)
    assert search is not None
    assert search.sides[0].tolist() == trials[best] + [step.fitness_mean for step in tried[12:]]


def test_a_start_is_the_search_it_would_be_alone():
    """Steps of other starts leave it as it is: its weights move by its own noise and returns only."""
    search = Search(replace(SETTINGS, search=SearchSettings(epochs=6, noise_vectors=4, starts=3)))
    rng = np.random.default_rng(3)
    alone, late = np.zeros((3, *search.late[0].shape), np.float32), 0.0
    for number in range(10):
        due, fitness = search.due, rng.normal(size=4) + (number in (2, 3)) * 9.0  # the second start does best
        assert due == ((0, *divmod(number, 2)) if number < 6 else (0, 1, number - 4))
        noise = rng.normal(size=(2, alone.shape[1])).astype(np.float32)
        told = {"fitness": fitness, "exploded": np.zeros(4), "env_steps": np.ones(4)}
        search.tell(noise, [told], 0.0)
        alone[due.start] += ascent(noise, fitness, 0.03)
        late += alone[due.start] * (due.age >= 4)
    assert search.done
    np.testing.assert_allclose(search.weights[0], alone, rtol=1e-6)
    np.testing.assert_allclose(search.targets[0], late / 2, rtol=1e-6)


TURNED = replace(
    SETTINGS,
    family="point-goal",
    policy=replace(SETTINGS.policy, usual_mean=(0.3, -0.2, 0.1, 0.5), usual_deviation=(1.0, 2.0, 0.5, 1.5)),
    loss=small_loss(hidden=24, reward=True, products=True, init_temporal="correlation", init_sides=4),
    search=SearchSettings(epochs=6, noise_vectors=4, starts=2, turned=True),
)


def act(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """What a linear target does where raw observations are seen."""
    normal = (seen - np.array(TURNED.policy.usual_mean)) / np.array(TURNED.policy.usual_deviation)
    return weights.reshape(2, 5) @ np.append(normal, 1.0)


@pytest.mark.parametrize("side", range(4))
def test_a_turned_target_does_the_same_in_a_turned_world(side):
    rng = np.random.default_rng(4)
    weights, seen = rng.normal(size=10).astype(np.float32), rng.normal(size=4)
    angle = np.pi / 2 * side
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    there = act(turned(weights, side, TURNED), np.kron(np.eye(2), turn) @ seen)
    np.testing.assert_allclose(there, turn @ act(weights, seen), rtol=1e-4, atol=1e-5)


def test_one_search_serves_all_sides(tmp_path):
    measured = replace(TURNED, policy=replace(TURNED.policy, usual_mean=(), usual_deviation=()))
    tried, asked = [], []
    search = Search(TURNED)

    class Executor:
        def map(self, requests):
            asked.extend(requests)
            number = sum(len(request["task"]) for request in requests)
            return [{name: np.arange(number) for name in ("fitness", "exploded", "env_steps")}]

    moved = []
    while not search.done:
        moved.append(search.weights[0, search.due.start].copy())
        noise, results = search.try_out(Executor())
        expected = turned(moved[-1] + 0.05 * np.concatenate([noise, -noise]), int(asked[-1]["side"]), TURNED)
        np.testing.assert_allclose(asked[-1]["target"], expected, rtol=1e-5, atol=1e-6)
        search.tell(noise, results, 0.0)
    assert [int(request["side"]) for request in asked] == [0, 1, 0, 1, 2, 3, 0, 1]  # both starts meet the same ones
    late = np.mean([*moved[7:], search.weights[0, 0]], axis=0)
    for side, target in enumerate(search.targets):
        np.testing.assert_allclose(target, turned(late, side, TURNED), rtol=1e-4, atol=1e-6)
    run = create_run(measured, tmp_path / "run")
    evolve_run(run, measured, "inline", on_tried=tried.append)
    assert [(step.epoch, step.side) for step in tried] == [(number, 0) for number in range(8)]


def test_a_search_is_restored_with_what_was_not_finite_and_from_before_there_were_starts():
    settings = replace(TURNED, search=SearchSettings(epochs=3, noise_vectors=4))  # of four searches
    search, again = Search(settings), Search(settings)
    search.weights[:] = np.random.default_rng(7).normal(size=search.weights.shape)
    search.tried.append(Tried(0, 0, float("nan"), 2.0, 0, 5, 0.1))
    tensors, tried = search.state()
    tried = [{name: None if it != it else it for name, it in line.items() if name != "start"} for line in tried]
    again.restore(tensors | {"weights": tensors["weights"][:, 0]}, tried)
    np.testing.assert_array_equal(again.weights, search.weights)
    assert str(again.tried) == str(search.tried)
    assert len(again.weights) == 4


def test_both_drivers_try_a_target_out_alike():
    family = replace(load_family("point-goal"), horizon=20)
    linear = replace(SETTINGS, policy=PolicySettings(hidden=(), log_std=-0.5))
    plan = make_plan(linear, Learned(linear.loss, linear.policy, family.spaces), family)
    keys = jnp.stack([lifetime_key(0, Split.TRAIN, 0, index) for index in range(3)])
    tasks = jax.vmap(lambda key: family.sample(stream_key(key, Stream.TASK)))(keys)
    weights = jax.random.normal(jax.random.key(0), (3, family.spaces.action * (family.spaces.observation + 1)))
    policies = jax.vmap(partial(linear_policy, settings=linear.policy, spaces=family.spaces))(weights)
    scan = jax.jit(jax.vmap(partial(try_out, plan, family)), compiler_options=COMPILER)
    ours = HostDriver(plan, outside(family)).try_out(keys, tasks, policies)
    np.testing.assert_allclose(ours.returns, scan(tasks, policies, keys), rtol=1e-3, atol=1e-3)
    assert (ours.steps == plan.lifetime.scoring_episodes * 20).all()


def two_at_a_time(seen):
    """The observations and their products, as loops."""
    return np.array([[*one, *(one[i] * one[j] for i in range(len(one)) for j in range(i, len(one)))] for one in seen])


@pytest.mark.parametrize("see", [np.asarray, two_at_a_time])
def test_linear_policy_is_linear_in_what_it_sees(see):
    rng = np.random.default_rng(2)
    observations = rng.normal(size=(5, 3))
    seen = see(observations)
    weights = rng.normal(size=(2, seen.shape[1] + 1))
    policy = linear_policy(jnp.asarray(weights.ravel()), PolicySettings(log_std=-1.0), CONTINUOUS)
    acts = distribution(policy, jnp.asarray(observations), "tanh")
    np.testing.assert_allclose(acts.mean, seen @ weights[:, :-1].T + weights[:, -1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(acts.log_std, [-1.0, -1.0])


# The loss that aims at a target.


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("switch", [None, 1])
def test_an_aimed_loss_is_least_at_its_target(switch, pairs):
    changes = {"init_scale": 0.0, "init_context_scale": 0.0, "pairs": pairs}
    if switch is not None:
        changes |= {"reward": True, "products": True, "init_temporal": "correlation", "init_switch": switch}
    settings = small_loss(**changes)
    spaces, rng = CONTINUOUS, np.random.default_rng(3)
    observation = rng.normal(size=3)
    seen = two_at_a_time([observation])[0] if pairs else observation
    targets = rng.normal(size=(settings.sides, 2, len(seen) + 1)) * (0.05 if pairs else 0.1)
    loss = aim(init_loss(jax.random.key(0), settings, spaces), jnp.asarray(targets), settings, spaces)
    columns = row_columns(settings, spaces)
    grid = np.stack(np.meshgrid(*[np.linspace(-1.5, 1.5, 61)] * 2), axis=-1).reshape(-1, 2)
    rows = np.zeros((len(grid), max(it.stop for it in columns.values())))
    rows[:, columns["observation"]], rows[:, columns["policy"]] = observation, grid
    rows = np.asarray(head_rows(settings, jnp.asarray(rows), jnp.asarray(rows[:, columns["observation"]])))
    constants = np.zeros(loss.head.shape[0] - rows.shape[1] - settings.context)
    for side in range(settings.sides):
        context = np.zeros(settings.context)
        if switch is not None:  # u and v of a full correlation, see _carry_products
            c = 1.0 - 2.0 * side
            context[:2] = [max(2 * c + 1, 0.2 * (2 * c + 1)), max(2 * c - 1, 0.2 * (2 * c - 1))]
        sums = jnp.asarray(rows) @ loss.head[: rows.shape[1]]
        values = head_values(loss, sums, jnp.asarray(constants), jnp.asarray(context))
        wanted = targets[side, :, :-1] @ seen + targets[side, :, -1]
        np.testing.assert_allclose(grid[int(jnp.argmin(values))], wanted, atol=0.03)


# Usual observations.


def test_pooled_statistics_are_those_of_all_rows():
    rng = np.random.default_rng(4)
    rows = rng.normal([1.0, -2.0], [3.0, 0.5], size=(3, 50, 2)) + rng.normal(size=(3, 1, 2))
    each = [add(init_moments((2,)), jnp.asarray(part, jnp.float32)) for part in rows]
    mean, deviation = pool(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each))
    np.testing.assert_allclose(mean, rows.reshape(-1, 2).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(deviation, rows.reshape(-1, 2).std(axis=0), rtol=1e-5)


def test_usual_observations_are_used_and_kept():
    usual = known_moments([1.0, 2.0, 3.0], [2.0, 0.5, 1.0])
    np.testing.assert_allclose(normalise(usual, jnp.array([3.0, 2.5, 3.0])), [1.0, 1.0, 0.0], rtol=1e-6)
    stats = init_normaliser(3, 2, usual)
    rollout = some_rollout(np.random.default_rng(5), CONTINUOUS, 8)
    after = learn_statistics(stats, rollout, CONTINUOUS, usual=True)
    for ours, before in zip(jax.tree.leaves(after.observation), jax.tree.leaves(usual), strict=True):
        np.testing.assert_array_equal(ours, before)
    assert after.reward.count == after.action.count == 8


def test_what_is_usual_is_measured_on_training_tasks():
    measured, steps = measure_usual(SETTINGS)
    assert len(measured.policy.usual_mean) == len(measured.policy.usual_deviation) == 4
    assert min(measured.policy.usual_deviation) >= np.float32(0.1)
    assert not measured.policy.to_be_measured
    horizon = load_family("point-reach").horizon
    assert steps == 4 * (SETTINGS.lifetime.steps + SETTINGS.lifetime.scoring_episodes * horizon)


def test_a_lifetime_begins_and_ends_with_what_is_usual(reference):
    artefact = load_loss(reference.run)
    settings, learner = fitting(artefact, "point-reach")
    outcome = first._lifetimes(settings, artefact.phi)
    np.testing.assert_array_equal(outcome.normaliser.observation.mean[0], np.float32(settings.policy.usual_mean))
    assert isinstance(outcome.normaliser.observation, Moments)
    assert learner.dimension == len(artefact.phi)


# All of it in a run: the same end, whoever works and however often it is stopped.


def test_the_number_of_processes_changes_nothing(reference, tmp_path):
    evolved = evolve_run(create_run(SETTINGS, tmp_path / "run"), SETTINGS, "local", 2)
    assert evolved.loss_sha256 == reference.loss_sha256
    assert evolved.env_steps == reference.env_steps


@pytest.mark.parametrize("moment", ["search", "checkpoint", "config", "epoch"])
def test_stopped_anywhere_and_resumed(moment, reference, tmp_path, monkeypatch):
    run = create_run(SETTINGS, tmp_path / "run")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    on = {"search": {"on_tried": stop}, "epoch": {"on_epoch": stop}}.get(moment, {})
    with monkeypatch.context() as patch:
        if moment in ("checkpoint", "config"):
            patch.setattr(*{"checkpoint": (first, "write_atomic"), "config": (evolution, "write_json")}[moment], stop)
        with pytest.raises(KeyboardInterrupt):
            evolve_run(run, SETTINGS, "inline", **on)
    opened, settings = open_run(tmp_path / "run")
    assert settings.policy.to_be_measured == (moment != "epoch")
    assert extend(opened, settings, SETTINGS)[1] == settings  # as asked for, before anything was measured
    evolved = evolve_run(opened, settings, "inline")
    assert evolved.loss_sha256 == reference.loss_sha256
    assert evolved.env_steps == reference.env_steps


STOPPED = 2  # steps of the search that were done


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped in the middle of its search."""

    def stop(step: Tried) -> None:
        if step.epoch + 1 == STOPPED:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evolve_run(create_run(SETTINGS, tmp_path / "run"), SETTINGS, "inline", on_tried=stop)
    return tmp_path / "run"


@pytest.mark.parametrize("harm", ["none", "cut", "foreign"])
def test_a_search_goes_on_where_it_was_stopped(harm, stopped, reference):
    kept = stopped / "checkpoints" / "search.safetensors"
    if harm == "cut":
        kept.write_bytes(kept.read_bytes()[:-9])
    elif harm == "foreign":
        run, _ = open_run(stopped)
        run.save_search({"weights": np.zeros((1, 3), np.float32)}, {"policy": {}, "measuring": 0, "tried": []})
    tried = []
    evolved = evolve_run(*open_run(stopped), "inline", on_tried=tried.append)
    assert [step.epoch for step in tried] == list(range(STOPPED if harm == "none" else 0, SEARCH.steps))
    assert (evolved.loss_sha256, evolved.env_steps) == (reference.loss_sha256, reference.env_steps)
    assert not kept.exists()
    told = [[line | {"seconds": 0} for line in read_metrics(run / "search.jsonl")] for run in (stopped, reference.run)]
    assert told[0] == told[1]


def test_a_loss_to_start_from_brings_what_is_usual(reference, tmp_path):
    artefact = load_loss(reference.run)
    run = create_run(SETTINGS, tmp_path / "run", artefact)
    _, settings = open_run(run.path)
    assert settings.policy.usual_mean == tuple(artefact.manifest["settings"]["policy"]["usual_mean"])
    other = replace(SETTINGS, policy=replace(SETTINGS.policy, normalise="lifetime"))
    with pytest.raises(BadInput, match="normalise"):
        create_run(other, tmp_path / "other", artefact)
    assert not (tmp_path / "other").exists()


def test_two_sides_find_a_target_each(tmp_path):
    settings = Settings(
        "directional-half-cheetah",
        policy=PolicySettings(hidden=(8,), log_std=-1.0),
        loss=small_loss(
            hidden=32, reward=True, products=True, init_temporal="correlation", init_switch=8, init_scale=0.0
        ),
        lifetime=replace(SETTINGS.lifetime, updates=2),
        evolution=EvolutionSettings(epochs=1, noise_vectors=2, lifetimes=4, shard=4, horizon=10),
        search=SearchSettings(epochs=4, noise_vectors=16),
    )
    tried = []
    evolve_run(create_run(settings, tmp_path / "run"), settings, "inline", on_tried=tried.append)
    assert [step.side for step in tried] == [0] * 4 + [1] * 4
    assert all(step.env_steps == 160 for step in tried)


# Switches that are learnt.


@pytest.mark.parametrize("sides", [2, 4])
def test_switches_should_say_where_a_side_is(sides):
    said = signs_at(np.arange(sides) / sides, sides)
    np.testing.assert_allclose(said, SIDES[sides], atol=1e-12)
    between = signs_at(np.array([0.5 / sides]), sides)[0]
    np.testing.assert_allclose(np.abs(between).min(), 0.0, atol=1e-12)


def test_regression_is_least_squares():
    rng = np.random.default_rng(6)
    seen = rng.normal(size=(4000, 5)) * [1.0, 10.0, 0.1, 1.0, 3.0]
    said = seen @ rng.normal(size=(5, 2)) + 0.1 * rng.normal(size=(4000, 2))
    found = regress(seen, said)
    np.testing.assert_allclose(found, np.linalg.lstsq(seen, said)[0], rtol=5e-3, atol=1e-3)
    broken = np.concatenate([seen, [[np.nan] * 5, [np.inf] * 5]])
    np.testing.assert_array_equal(regress(broken, np.concatenate([said, np.ones((2, 2))])), found)
    assert np.isfinite(regress(np.zeros((7, 2)), np.ones((7, 1)))).all()  # nothing to see


FOUR = {"reward": True, "products": True, "init_temporal": "correlation", "init_sides": 4}
GOALS = replace(
    SETTINGS,
    family="point-goal",
    loss=replace(SETTINGS.loss, hidden=20, **FOUR),
    evolution=replace(SETTINGS.evolution, lifetimes=16, shard=16),
)


PUSHES = np.zeros((4, 2, 5), np.float32)  # targets that push towards their side, whatever is seen
PUSHES[:, :, -1] = [[1, 0], [0, 1], [-1, 0], [0, -1]]
PUSHES = PUSHES.reshape(4, -1)


@pytest.mark.parametrize("side", range(4))
def test_trials_of_a_side_have_tasks_of_that_side(side):
    run = build_trials(to_dict(measure_usual(GOALS)[0]))
    request = {"task": np.arange(16, dtype=np.int32), "epoch": np.array(0, np.int32), "side": np.array(side, np.int32)}
    returns = run(request | {"target": np.repeat(PUSHES, 4, axis=0)})["fitness"].reshape(4, 4)
    assert (returns[side] > 5.0).all()  # noise of the policy moves it by about one
    assert (returns[(side + 2) % 4] < -5.0).all()


def test_learnt_switches_tell_the_sides_of_tasks_never_seen():
    measured, _ = measure_usual(GOALS)
    weights, steps = learn_switches(measured, PUSHES)
    assert weights.shape == (2, 6)
    horizon, lifetime = load_family("point-goal").horizon, GOALS.lifetime
    assert steps == 4 * 16 * (lifetime.steps + lifetime.scoring_episodes * horizon)
    phi = Learned(measured.loss, measured.policy, load_family("point-goal").spaces).initial_phi(jax.random.key(0))
    outcome = first._lifetimes(measured, phi, epoch=99, correlations=True)
    said = signs_at(first._places(measured, epoch=99), 4)
    right = np.sign(np.asarray(outcome.correlations)[:, -1] @ weights.T) == np.sign(said)
    assert right.mean() > 0.8


def test_four_sides_find_a_target_each(tmp_path):
    tried = []
    evolve_run(create_run(GOALS, tmp_path / "run"), GOALS, "inline", on_tried=tried.append)
    assert [step.side for step in tried] == [side for side in range(4) for _ in range(SEARCH.steps)]


CORRELATED = ["--loss.reward", "--loss.products", "--loss.init-temporal", "correlation"]
TWO_SIDES = ["point-goal", *CORRELATED, "--loss.init-sides", "2", "--search.epochs", "3", "--search.turned"]
USUAL = ["--policy.usual-mean", "1", "--policy.usual-deviation", "1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["point-reach", "--loss.init", "plain", "--search.epochs", "3"], "search.epochs needs"),
        (["random-cart-pole", "--search.epochs", "3"], "search.epochs must be 0"),
        (["point-reach", "--search.noise-vectors", "3"], "must be even"),
        (["point-reach", "--search.starts", "0"], "search.starts must be above zero"),
        (["point-reach", "--search.epochs", "2", "--search.starts", "2"], "search.epochs (2) must be 3 or more"),
        (["point-goal", "--loss.init-sides", "4"], "loss.init_sides needs search.epochs"),
        (["point-reach", "--loss.init-sides", "2", "--search.epochs", "3"], "loss.init_sides needs loss.init_temporal"),
        (["point-goal", "--loss.init-sides", "4", "--loss.channels", "2", "--search.epochs", "3"], "at least 4"),
        (["point-reach", *CORRELATED, "--loss.init-sides", "2", "--search.epochs", "3"], "lacks an orbit, or"),
        (["point-reach", "--search.turned"], "no turns of its body"),
        (["point-goal", "--search.turned"], "needs two or more sides"),
        ([*TWO_SIDES, "--policy.normalise", "lifetime"], "search.turned needs policy.normalise family"),
        ([*TWO_SIDES, "--policy.normalise", "family", "--loss.pairs"], "search.turned needs policy.normalise family"),
        (["point-reach", *USUAL], "normalise family"),
        (["point-reach", "--policy.normalise", "family", *USUAL], "needs 4 numbers"),
    ],
)
def test_bad_input_is_refused(arguments, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["evolve", *arguments, "--run", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
