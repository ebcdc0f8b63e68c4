"""Statistics over tasks, against SciPy, the normal approximation and arithmetic by hand."""

import json

import numpy as np
import pytest
from scipy import stats

from epg.core.errors import BadInput
from epg.evaluation.statistics import Interval, bootstrap, iqm, paired_difference


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 19, 20, 64])
def test_iqm_is_the_trimmed_mean_of_scipy(count):
    x = np.random.default_rng(count).standard_cauchy(count)
    assert iqm(x) == pytest.approx(stats.trim_mean(x, 0.25), rel=1e-12)


def test_iqm_by_hand():
    assert iqm([100, 2, -50, 4]) == 3.0
    assert iqm([[0, 1, 2, 9], [5, 5, 5, 5]], axis=1).tolist() == [1.5, 5.0]


def test_bootstrap_of_a_mean_agrees_with_the_normal_interval():
    x = np.random.default_rng(3).normal(10.0, 4.0, size=200)
    half = 1.96 * x.std(ddof=1) / np.sqrt(len(x))
    interval = bootstrap(x, np.mean)
    assert interval.value == pytest.approx(x.mean(), rel=1e-12)
    # The ends are noisy by about 2 % of the half width at 10,000 resamples.
    assert interval.low == pytest.approx(x.mean() - half, abs=0.06 * half)
    assert interval.high == pytest.approx(x.mean() + half, abs=0.06 * half)


@pytest.mark.parametrize("statistic", [np.mean, iqm])
def test_a_95_percent_interval_covers_the_truth_about_95_times_in_100(statistic):
    # 400 samples of 40: the observed rate has a deviation of 1.1 %; percentile intervals fall a little short.
    samples = np.random.default_rng(8).normal(size=(400, 40))
    intervals = [bootstrap(x, statistic, resamples=1000, seed=i) for i, x in enumerate(samples)]
    covered = np.mean([interval.low <= 0 <= interval.high for interval in intervals])
    assert 0.90 <= covered <= 0.975


def test_lower_confidence_is_narrower_and_seeds_repeat():
    x = np.random.default_rng(0).normal(size=30)
    wide, narrow = bootstrap(x), bootstrap(x, confidence=0.5)
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    assert bootstrap(x) == wide
    assert bootstrap(x, seed=1) != wide


def test_many_tasks_are_resampled_in_several_blocks():
    x = np.random.default_rng(5).normal(size=2**20)  # two resamples fill a block
    shapes = []

    def recorded_mean(values, axis):
        shapes.append(values.shape)
        return values.mean(axis=axis)

    interval = bootstrap(x, recorded_mean, resamples=5)
    assert shapes == [(2, 2**20), (2, 2**20), (1, 2**20), (2**20,)]
    assert x.mean() - 4 / 2**10 < interval.low < interval.high < x.mean() + 4 / 2**10


def test_paired_difference_is_the_mean_and_pairs_tasks():
    assert paired_difference([2, 3, 4, 13], [2, 3, 4, 5]).value == 2.0  # an interquartile mean would say 0
    hardness = np.random.default_rng(1).normal(0, 100, size=50)
    assert paired_difference(hardness + 2, hardness).to_dict() == pytest.approx({"value": 2, "low": 2, "high": 2})
    a, b = hardness + np.random.default_rng(2).normal(3, 1, size=50), hardness
    half = 1.96 * (a - b).std(ddof=1) / np.sqrt(50)
    interval = paired_difference(a, b)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.06)


def test_interval_is_json():
    assert json.loads(json.dumps(bootstrap([1.0, 1.0]).to_dict())) == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert Interval(1.0, 0.0, 2.0).to_dict() == {"value": 1.0, "low": 0.0, "high": 2.0}


@pytest.mark.parametrize("function", [iqm, bootstrap, lambda x: paired_difference(x, x)])
@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        ([], "at least one value"),
        ([1.0, np.nan, np.inf], "2 of 3 values are not finite"),
    ],
)
def test_empty_and_non_finite_are_refused(function, x, sentence):
    with pytest.raises(BadInput, match=sentence):
        function(x)


def test_shapes_and_settings_are_refused():
    with pytest.raises(BadInput, match=r"not \(2,\) and \(1,\)"):
        paired_difference([1.0, 2.0], [1.0])  # would broadcast
    with pytest.raises(BadInput, match="one value per task"):
        bootstrap([[1.0, 2.0]])
    with pytest.raises(BadInput, match="resample"):
        bootstrap([1.0], resamples=0)
    with pytest.raises(BadInput, match="confidence"):
        bootstrap([1.0], confidence=95)
