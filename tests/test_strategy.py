"""The evolution strategy: Eq. 7 and Adam in NumPy, ranks by hand, variance components, schedules, resuming."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from epg.core.errors import BadInput
from epg.evolution.fitness import centred_ranks, half_cosines, pair_ranks, shape_fitness, signal_variance
from epg.evolution.strategy import Strategy, step_size
from epg.settings import EvolutionSettings, GuidanceSettings

D, V = 7, 8
BASE = EvolutionSettings(noise_vectors=V, lifetimes=2 * V, shard=V, sigma=0.1, step_size=0.02, step_size_end=0.02)
PHI = jnp.linspace(-1.0, 1.0, D)


class NumpyStrategy:
    """Eq. 7 with Adam, term by term, in float64."""

    def __init__(self, settings: EvolutionSettings, phi: np.ndarray) -> None:
        self.settings, self.phi = settings, np.asarray(phi, np.float64)
        self.m, self.v, self.t = np.zeros(D), np.zeros(D), 0

    def tell(self, population: np.ndarray, shaped: np.ndarray) -> None:
        """Climb (1 / V sigma) sum_v F_v eps_v minus the gradient of the L2 penalty."""
        s = self.settings
        ascent, scale = np.zeros(D), s.sigma
        for row, fitness in zip(np.asarray(population, np.float64), shaped, strict=True):
            ascent += fitness * (row - self.phi) / scale / (V * scale)
        gradient = -ascent + 2 * s.l2 * self.phi
        self.t += 1
        self.m = s.betas[0] * self.m + (1 - s.betas[0]) * gradient
        self.v = s.betas[1] * self.v + (1 - s.betas[1]) * gradient**2
        m, v = self.m / (1 - s.betas[0] ** self.t), self.v / (1 - s.betas[1] ** self.t)
        share = min(1.0, (self.t - 1) / s.anneal_epochs)
        rate = s.step_size + share * (s.step_size_end - s.step_size)
        self.phi = self.phi - rate * m / (np.sqrt(v) + 1e-8)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task_sharing": "none"},
        {"l2": 0.05},
        {"betas": (0.9, 0.999)},
        {"step_size_end": 0.001, "anneal_epochs": 4},
    ],
)
def test_tell_is_equation_7_with_adam(rng, changes):
    settings = replace(BASE, **changes)
    ours, oracle = Strategy(settings, PHI), NumpyStrategy(settings, PHI)
    for epoch in range(6):
        population = ours.ask(jax.random.key(epoch))
        shaped = centred_ranks(rng.normal(size=V))
        ours.tell(population, shaped)
        oracle.tell(population, shaped)
        np.testing.assert_allclose(ours.phi, oracle.phi, rtol=1e-4, atol=2e-6)
    assert np.abs(ours.phi - PHI).max() > 0.01


def test_adam_is_optaxs(rng):
    settings = replace(BASE, betas=(0.5, 0.99))
    ours, adam, phi = Strategy(settings, PHI), optax.adam(0.02, b1=0.5, b2=0.99), PHI
    state = adam.init(phi)
    for epoch in range(4):
        population, shaped = ours.ask(jax.random.key(epoch)), centred_ranks(rng.normal(size=V))
        gradient = -shaped @ (population - phi) / (V * settings.sigma**2)
        change, state = adam.update(gradient, state, phi)
        phi = optax.apply_updates(phi, change)
        ours.tell(population, shaped)
        np.testing.assert_allclose(ours.phi, phi, rtol=1e-5, atol=1e-6)


ARS = replace(BASE, rule="ars", task_sharing="pair", betas=(0.9, 0.5))


def test_ars_moves_phi_by_momentum_on_a_gradient_of_length_one(rng):
    ours, phi, step, square = Strategy(ARS, PHI), np.asarray(PHI, np.float64), np.zeros(D), None
    for epoch in range(5):
        population, shaped = ours.ask(jax.random.key(epoch)), shape_fitness(rng.normal(size=(V, 2)), "pair", "ars")
        gradient = shaped @ (population - phi) / (V * ARS.sigma**2)
        size = gradient @ gradient
        square = size if square is None else 0.5 * square + 0.5 * size
        step = 0.9 * step + gradient / np.sqrt(square)
        phi = phi + 0.02 * D**0.5 * 0.1 * step
        ours.tell(population, shaped)
        np.testing.assert_allclose(ours.phi, phi, rtol=1e-4, atol=2e-6)


def test_ars_is_algorithm_2_of_mania_et_al(rng):
    """theta += a / (b sigma_R) times the sum of (r+ - r-) delta over the b best directions, by max(r+, r-)."""
    returns, noise = rng.normal(size=(V, 3)) * 50, rng.normal(size=(V // 2, D))
    plus, minus = returns.mean(axis=1)[: V // 2], returns.mean(axis=1)[V // 2 :]
    best = sorted(range(V // 2), key=lambda it: max(plus[it], minus[it]), reverse=True)[: V // 4]
    sigma = np.std([[plus[it], minus[it]] for it in best])
    expected = sum((plus[it] - minus[it]) * noise[it] for it in best) / (len(best) * sigma)
    ours = shape_fitness(returns, "pair", "ars") @ np.concatenate([noise, -noise]) / len(best)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    np.testing.assert_allclose(
        shape_fitness(7 * returns + 3, "pair", "ars"), shape_fitness(returns, "pair", "ars"), rtol=1e-5
    )


def test_ars_compares_losses_within_the_tasks_that_they_share(rng):
    """A task with a thousand times the returns weighs no more, and each task has a better half of its own."""
    fitness = rng.normal(size=(40, 2))
    each = [shape_fitness(fitness[:, [task]], "pair", "ars") for task in (0, 1)]
    assert ((each[0] != 0) != (each[1] != 0)).any()
    for scale in (1.0, 1000.0):
        shaped = shape_fitness(fitness * [1.0, scale], "all", "ars")
        np.testing.assert_allclose(shaped, (each[0] + each[1]) / 2, rtol=1e-5)


def test_ars_takes_a_non_finite_return_for_the_worst_and_equal_ones_for_nothing():
    fitness = np.array([[9.0], [8.0], [np.nan], [7.0]])  # pairs (0, 2) and (1, 3); only the first counts
    np.testing.assert_allclose(shape_fitness(fitness, "pair", "ars"), [1.0, 0.0, -1.0, 0.0])
    for value in (3.0, np.nan):
        np.testing.assert_array_equal(shape_fitness(np.full((4, 2), value), "pair", "ars"), np.zeros(4))


@pytest.mark.parametrize("rule", ["adam", "ars"])
def test_both_rules_maximize_fitness(rule):
    settings = replace(BASE, rule=rule, task_sharing="pair", betas=(0.5, 0.99))
    target, strategy = np.linspace(1.0, -1.0, D), Strategy(settings, PHI)
    for epoch in range(200):
        population = strategy.ask(jax.random.key(epoch))
        fitness = -np.square(population - target).sum(1, keepdims=True)
        strategy.tell(population, shape_fitness(fitness, "pair", rule))
    assert np.abs(strategy.phi - target).max() < 0.3


def test_fitness_is_maximized():
    target, strategy = np.linspace(1.0, -1.0, D), Strategy(BASE, PHI)
    for epoch in range(150):
        population = strategy.ask(jax.random.key(epoch))
        strategy.tell(population, centred_ranks(-np.square(population - target).sum(1)))
    assert np.abs(strategy.phi - target).max() < 0.2  # it was 2; ranks and a fixed step leave a little noise


def test_noise_is_normal_with_std_sigma():
    strategy = Strategy(replace(BASE, noise_vectors=2000, lifetimes=2000, shard=8, task_sharing="none"), PHI)
    noise = (strategy.ask(jax.random.key(0)) - strategy.phi) / BASE.sigma
    assert scipy.stats.kstest(noise.ravel(), "norm").pvalue > 1e-3  # 14 000 draws
    half = noise[:1000]
    assert not np.allclose(half, -noise[1000:], atol=0.1)  # not in pairs


def test_antithetic_pairs_are_symmetric_about_phi():
    strategy = Strategy(BASE, PHI)
    noise = strategy.ask(jax.random.key(0)) - strategy.phi
    np.testing.assert_allclose(noise[: V // 2], -noise[V // 2 :], atol=1e-6)
    assert np.linalg.matrix_rank(noise[: V // 2]) == V // 2


def test_ranks_are_scipys_without_ties_or_with(rng):
    for fitness in (rng.normal(size=(9, 3)), rng.integers(4, size=(9, 3)).astype(float)):
        expected = (scipy.stats.rankdata(fitness, axis=0) - 1) / 8 - 0.5
        np.testing.assert_allclose(centred_ranks(fitness), expected, atol=1e-7)
        np.testing.assert_allclose(centred_ranks(fitness).sum(0), 0.0, atol=1e-6)


def test_ranks_by_hand():
    np.testing.assert_allclose(centred_ranks(np.array([30.0, 10.0, 20.0])), [0.5, -0.5, 0.0])
    np.testing.assert_allclose(centred_ranks(np.array([1.0, 1.0, 5.0])), [-0.25, -0.25, 0.5])
    np.testing.assert_allclose(centred_ranks(np.array([7.0, 7.0])), [0.0, 0.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_fitness_is_worst_and_shared(bad):
    # Two bad of five share ranks 0 and 1, below the lowest finite one: (0.5 / 4) - 0.5.
    np.testing.assert_allclose(centred_ranks(np.array([bad, -1e30, bad, 0.0, 1.0])), [-0.375, 0, -0.375, 0.25, 0.5])
    np.testing.assert_allclose(centred_ranks(np.array([bad, np.nan, np.inf])), 0.0)


def test_shared_tasks_are_ranked_each_by_itself():
    fitness = np.array([[1.0, 500.0], [2.0, 100.0], [3.0, 300.0]])
    np.testing.assert_allclose(shape_fitness(fitness, "all"), [0.0, -0.25, 0.25])  # mean of (-.5,.5), (0,-.5), (.5,0)
    np.testing.assert_allclose(shape_fitness(fitness, "none"), [0.5, -0.5, 0.0])  # rank of 250.5, 51, 151.5
    np.testing.assert_allclose(shape_fitness(np.array([[np.nan, 9.0], [1.0, 1.0]]), "none"), [-0.5, 0.5])


def test_signal_by_hand():
    # Losses differ by 2 with a residual of ±1: two-way, the task effect (10) is removed.
    fitness = np.array([[0.0, 12.0], [4.0, 12.0]])
    # Row means 6 and 8, column means 2 and 12, grand mean 7: residuals ∓1, mean square 4 / 1.
    # Mean square between rows 2 * ((6-7)^2 + (8-7)^2) / 1 = 4, so the component is (4 - 4) / 2 = 0.
    np.testing.assert_allclose(signal_variance(fitness, "all"), (0.0, 4.0))
    # One-way: within rows 2 * 6^2 + 2 * 4^2 = 104 with 2 degrees; negative estimate reported as zero.
    np.testing.assert_allclose(signal_variance(fitness, "none"), (0.0, 52.0))
    clear = np.array([[0.0, 10.0], [4.0, 12.0]])  # row means 5, 8; residuals ∓0.5; MSB 2 * 4.5 = 9, MSE 1
    np.testing.assert_allclose(signal_variance(clear, "all"), (4.0, 1.0))


def test_signal_without_anything_to_compare_is_nan():
    assert np.isnan(signal_variance(np.ones((4, 1)), "all")).all()
    assert np.isnan(signal_variance(np.array([[1.0, 2.0], [np.nan, 2.0]]), "all")).all()
    whole = np.array([[0.0, 10.0], [4.0, 12.0]])
    assert signal_variance(np.vstack([whole, [np.nan, 0.0]]), "all") == signal_variance(whole, "all")


@pytest.mark.parametrize("sharing", ["all", "none", "pair"])
def test_signal_recovers_simulated_components(rng, sharing):
    # 4000 losses x 4 tasks, variance 4 between losses, 9 residual: estimates within 10 % (about 3 standard errors).
    loss, task = rng.normal(0, 2, (4000, 1)), rng.normal(0, 50, (1, 4)) * (sharing == "all")
    expected = [4.0, 9.0]
    if sharing == "pair":  # opposite effects, tasks of their own; half a difference halves the residual's variance
        loss, task = np.vstack([loss, -loss]), np.tile(rng.normal(0, 50, (4000, 4)), (2, 1))
        expected = [4.0, 4.5]
    between, residual = signal_variance(loss + task + rng.normal(0, 3, (len(loss), 4)), sharing)
    np.testing.assert_allclose([between, residual], expected, rtol=0.1)


def test_pairs_are_ranked_by_their_difference(rng):
    # Differences 4, -1, 2 among {4, -1, 2, -4, 1, -2}: (5 - 0, 2 - 3, 4 - 1) of 12; the second halves mirror them.
    fitness = np.array([[5.0], [0.0], [102.0], [1.0], [1.0], [100.0]])
    ranks = np.array([5.0, -1.0, 3.0]) / 12
    np.testing.assert_allclose(shape_fitness(fitness, "pair"), [*ranks, *-ranks], rtol=1e-6)
    many = rng.normal(size=(8, 3))
    exchanged = np.concatenate([many[4:], many[:4]])
    np.testing.assert_allclose(shape_fitness(exchanged, "pair"), -shape_fitness(many, "pair"))
    ties = np.concatenate([many[:4], many[:4]])
    np.testing.assert_array_equal(shape_fitness(ties, "pair"), 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_pair_with_one_non_finite_loss_is_lost_by_it(bad):
    plus, minus = np.array([[bad], [bad], [0.0], [9.0]]), np.array([[0.0], [bad], [bad], [1.0]])
    ranks = pair_ranks(plus, minus)[:, 0]
    np.testing.assert_allclose(ranks[[0, 1]], [-ranks[2], 0.0])
    assert ranks[2] > ranks[3] > 0


def test_step_size_is_what_optax_applies():
    # With betas of 0 (nearly) Adam moves every component by exactly the step size.
    settings = replace(BASE, step_size=0.1, step_size_end=0.02, anneal_epochs=4, betas=(0.0, 1e-12))
    strategy = Strategy(settings, PHI)
    for epoch, expected in enumerate([0.1, 0.08, 0.06, 0.04, 0.02, 0.02, 0.02]):
        before, population = strategy.phi, strategy.ask(jax.random.key(epoch))
        strategy.tell(population, centred_ranks(population @ np.ones(D)))
        np.testing.assert_allclose(np.abs(strategy.phi - before), expected, rtol=1e-3)
        np.testing.assert_allclose(step_size(settings, epoch), expected)


def test_guidance_falls_from_one_to_exactly_zero():
    guidance = GuidanceSettings(learner="ppo", epochs=4)
    assert [guidance.alpha(epoch) for epoch in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert GuidanceSettings(learner="none").alpha(0) == 0.0


MOVES = {  # source and factor of each entry
    "all": (None, None),
    "some fixed, some tied": (np.array([0, 1, 0, 3, 4, 4, 6]), np.float32([1, 0, -1, 0, 1, 0.5, 0])),
}


@pytest.mark.parametrize("moves", MOVES)
def test_restored_state_continues_bit_for_bit(rng, moves):
    settings = replace(BASE, step_size_end=0.001, anneal_epochs=3, l2=0.01, betas=(0.5, 0.99))
    whole = Strategy(settings, PHI, *MOVES[moves])
    shaped = [centred_ranks(rng.normal(size=V)) for _ in range(4)]
    for epoch in range(2):
        whole.tell(whole.ask(jax.random.key(epoch)), shaped[epoch])
    resumed = Strategy(settings, jnp.zeros(D), *MOVES[moves])
    resumed.restore(whole.state())
    np.testing.assert_array_equal(whole.phi, resumed.phi)
    for epoch in (2, 3):
        populations = [it.ask(jax.random.key(epoch)) for it in (whole, resumed)]
        np.testing.assert_array_equal(*populations)
        for it in (whole, resumed):
            it.tell(populations[0], shaped[epoch])
        np.testing.assert_array_equal(whole.phi, resumed.phi)
    assert np.abs(whole.phi - PHI).max() > 0.001
    if moves != "all":
        np.testing.assert_array_equal(whole.phi[[1, 3, 6]], PHI[jnp.array([1, 3, 6])])


def test_state_is_saved_by_readable_names():
    state = Strategy(BASE, PHI).state()
    assert all(name.startswith("strategy/") for name in state)
    np.testing.assert_array_equal(state["strategy/mean"], PHI)
    moments = {name.rsplit("/", 1)[-1] for name in state if name.startswith("strategy/opt_state/")}
    assert {"mu", "nu", "count"} <= moments  # of Adam
    assert not any(name.rsplit("/", 1)[-1].isdigit() for name in state)


def test_restore_finds_tensors_by_name_whatever_their_order_and_ignores_others(rng):
    one, other = Strategy(BASE, PHI), Strategy(BASE, jnp.zeros(D))
    one.tell(one.ask(jax.random.key(0)), centred_ranks(rng.normal(size=V)))
    other.restore({"obs_mean": np.zeros(3, np.float32)} | dict(reversed(one.state().items())))
    for name, value in one.state().items():
        np.testing.assert_array_equal(other.state()[name], value)


@pytest.mark.parametrize("change", ["renamed", "missing", "added"])
def test_restore_refuses_a_wrong_name(change):
    state = Strategy(BASE, PHI).state()
    if change != "added":
        value = state.pop("strategy/mean")
    if change != "missing":
        state["strategy/average"] = value if change == "renamed" else np.zeros(D, np.float32)
    wrong = "strategy/mean" if change == "missing" else "strategy/average"
    with pytest.raises(ValueError, match=f"differs in {wrong}"):
        Strategy(BASE, PHI).restore(state)


def test_restore_refuses_another_size_type_or_a_non_finite_phi():
    with pytest.raises(ValueError, match=r"strategy/\S+ must be float32 \(8,\), not float32 \(7,\)"):
        Strategy(BASE, jnp.zeros(D + 1)).restore(Strategy(BASE, PHI).state())
    state = Strategy(BASE, PHI).state()
    with pytest.raises(ValueError, match=r"strategy/mean must be float32 \(7,\), not float64 \(7,\)"):
        Strategy(BASE, PHI).restore(state | {"strategy/mean": np.zeros(D)})
    with pytest.raises(ValueError, match="phi holds a number that is not finite"):
        Strategy(BASE, PHI).restore(state | {"strategy/mean": np.full(D, np.nan, np.float32)})
    with pytest.raises(ValueError, match="phi holds a number that is not finite"):
        Strategy(BASE, PHI).restore(state | {"strategy/fixed": np.full(D, np.inf, np.float32)})


@pytest.mark.parametrize("sharing", ["all", "pair", "none"])
def test_odd_population_is_refused_in_a_sentence(sharing):
    with pytest.raises(BadInput, match="must be even"):
        EvolutionSettings(noise_vectors=3, lifetimes=3, shard=3, task_sharing=sharing)


def test_halves_of_a_population_agree_where_there_is_signal(rng):
    # Fitness is linear in the first 20 of 40 parameters and blind to the others; 400 antithetic pairs.
    half = rng.normal(size=(400, 40))
    noise = np.concatenate([half, -half])
    shaped = centred_ranks(noise[:, :20].sum(axis=1))
    cosine = half_cosines(noise, shaped, {"seen": np.arange(20), "unseen": np.arange(20, 40)})
    assert cosine["seen"] > 0.8
    assert abs(cosine["unseen"]) < 4 / 20**0.5


def test_cosines_are_those_of_the_two_gradients_by_hand():
    # Pairs (0, 2) and (1, 3): the halves' gradients are (1, 0) and (1, 1).
    noise, shaped = np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [-1.0, -1.0]]), np.array([0.5, 0.5, -0.5, -0.5])
    cosine = half_cosines(noise, shaped, {"both": np.arange(2), "second": np.array([1])})
    assert cosine["both"] == pytest.approx(0.5**0.5)
    assert np.isnan(cosine["second"])  # one half has no gradient there
