"""Figures drawn from hand-made runs: what is on them, that they repeat, and what they refuse."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from epg.core.errors import BadInput
from epg.core.plain import plain
from epg.evaluation.statistics import bootstrap, iqm
from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.viz import curves, panels, run_reader

NAN = np.nan
ROW = {
    "epoch": 0, "fitness_mean": 1.0, "fitness_std": 0.5, "fitness_best": 2.0, "fitness_worst": 0.0,
    "alpha": 1.0, "signal": None, "variance_between": 1.0, "variance_residual": 3.0, "nonfinite": 0,
    "env_steps": 10, "seconds": 1.0, "step_size": 0.02, "phi_norm": 1.0,
}  # fmt: skip


METHODS = {"epg": 32, "ppo": 64}
"""Steps per update of the compared methods."""


def write_comparison(
    run: Path, tasks: int = 8, steps: int = 640, longer: dict[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Write a comparison of two methods, and of `longer` ones by their steps."""
    run.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays, methods = {}, {}
    for name in (*METHODS, *(longer or {})):
        every, length = METHODS.get(name, 64), (longer or {}).get(name, steps)
        returns = np.full((tasks, length), NAN, np.float32)
        returns[:, 39::40] = rng.normal(50, 5, (tasks, length // 40))
        arrays[f"{name}/final"] = rng.normal(50, 5, tasks).astype(np.float32)
        arrays[f"{name}/episode_return"] = returns
        arrays[f"{name}/kl"] = rng.uniform(0.01, 0.02, (tasks, length // every)).astype(np.float32)
        methods[name] = {
            "label": name.upper(),
            "steps": length,
            "updates": length // every,
            "steps_per_update": every,
            "tuned": True,
            "interval": {"value": 50.0, "low": 45.0, "high": 55.0},
            "nonfinite": 0,
        }
        if name != "epg":
            methods[name]["difference"] = {"value": 0.0, "low": -5.0, "high": 5.0}
    results = {
        "kind": "compare",
        "family": "point",
        "tasks": tasks,
        "steps": max(method["steps"] for method in methods.values()),
        "seed": 0,
        "methods": methods,
    }
    write_json(run / "results.json", results)
    save_curves(run, arrays)
    return arrays


def save_curves(run: Path, arrays: dict[str, np.ndarray]) -> None:
    write_atomic(run / "curves.safetensors", encode_tensors(arrays, {}))


def write_evolution(run: Path, rows: list[dict]) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    config = {"format": 1, "kind": "evolve", "family": "point"}
    config["settings"] = {"evolution": {"lifetimes": 64}}
    write_json(run / "config.json", config)
    (run / "metrics.jsonl").write_text("".join(json.dumps(plain({**ROW, **row})) + "\n" for row in rows))
    return run


def words(paths: list[Path]) -> str:
    """Return the SVG, in which matplotlib repeats every text it draws as a comment."""
    return paths[1].read_text()


def test_resample_averages_bins_and_carries_forward():
    values = np.array([[NAN, 2, 4, NAN, NAN, NAN, 9, 9], [NAN] * 7 + [1.0]])
    x, y = curves.resample(values, points=4)
    assert x.tolist() == [2, 4, 6, 8]
    np.testing.assert_array_equal(y, [[2, 4, 4, 9], [NAN, NAN, NAN, 1]])
    x, y = curves.resample(values[:1], points=2)
    assert x.tolist() == [4, 8]
    np.testing.assert_array_equal(y, [[3, 9]])


def test_resample_keeps_short_series_and_uneven_bins():
    values = np.array([[5.0, 1.0, 3.0, 7.0, 9.0]])
    x, y = curves.resample(values, spacing=64)
    assert x.tolist() == [64, 128, 192, 256, 320]
    assert y.tolist() == values.tolist()
    x, y = curves.resample(values, points=2)  # five columns in two bins: three and two
    assert x.tolist() == [3, 5]
    assert y.tolist() == [[3, 8]]


def test_lifetimes_are_drawn_as_interquartile_mean_interval_and_singles():
    kl = np.arange(8.0)[:, None] * np.ones(3)
    final = np.array([1.0] * 7 + [NAN])  # a lifetime that diverged is left out: 0..6 remain
    method = run_reader.Lifetimes("ppo", "PPO", 10, final, np.ones((8, 30)), kl)
    axes = Figure().subplots()
    curves._draw_lifetimes(axes, method, kl, 10)
    (mean,) = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert mean.get_xdata().tolist() == [10, 20, 30]
    assert mean.get_ydata().tolist() == [3, 3, 3]
    assert mean.get_color() == curves.COLOURS["ppo"]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    interval = bootstrap(np.arange(7.0))  # the tables' own, with other resamples
    assert (band.min(), band.max()) == pytest.approx((interval.low, interval.high), abs=0.4)
    assert sum(line.get_linestyle() == ":" for line in axes.lines) == curves.SINGLES


def test_the_interquartile_mean_of_a_curve_is_that_of_the_tables(rng):
    values = rng.normal(size=(9, 5))
    values[0, 1] = values[1:, 2] = values[:, 3] = NAN
    middle, low, high = curves.iqm_band(np.delete(values, 3, axis=1))
    expected = [iqm(values[:, 0]), iqm(values[1:, 1]), values[0, 2], iqm(values[:, 4])]
    np.testing.assert_allclose(middle, expected)
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert low[2] == high[2] == values[0, 2]


def test_a_kl_below_the_axis_is_a_gap(tmp_path):
    kl = np.tile([500.0, 1e-30, 1e-3, 0.0, 0.1], (4, 1))
    method = run_reader.Lifetimes("epg", "EPG", 1, np.ones(4), np.ones((4, 5)), kl)
    axes = Figure().subplots()
    many = run_reader.Lifetimes("ppo", "PPO", 1, np.ones(1), np.ones((1, 5)), np.geomspace(1e-3, 1, 500)[None])
    floor = curves.scale_kl(axes, [method, many])
    assert 1e-30 < floor < 1e-3
    curves._draw_lifetimes(axes, method, kl, 1, floor)
    for line in axes.lines:
        drawn = np.asarray(line.get_ydata(), float)
        assert (drawn[np.isfinite(drawn)] >= axes.get_ylim()[0]).all()
        assert (drawn[np.isfinite(drawn)] <= axes.get_ylim()[1]).all()


def test_policies_that_never_change_have_no_panel_of_kl(tmp_path):
    arrays = write_comparison(tmp_path)
    assert "KL per update" in words(curves.learning_curves(tmp_path))
    frozen = {name: np.zeros_like(it) if name.endswith("kl") else it for name, it in arrays.items()}
    save_curves(tmp_path, frozen)
    text = words(curves.learning_curves(tmp_path))
    assert "KL" not in text
    assert "<!-- environment steps -->" in text


@pytest.mark.parametrize("variance", [None, 0.0, -1.0])
def test_a_panel_of_zeros_is_left_out_and_epochs_are_counted_from_one(tmp_path, variance):
    nothing = {"variance_between": variance, "alpha": 0.0}
    run = write_evolution(tmp_path, [{"epoch": e, **nothing} for e in range(3)])
    text = words(curves.fitness_over_epochs([run]))
    assert "share" not in text
    assert "<!-- epochs done -->" in text
    axes = Figure().subplots()
    curves._draw_fitness(axes, [run_reader.read_epochs(run)])
    assert axes.lines[0].get_xdata().tolist() == [1, 2, 3]


def test_returns_are_drawn_once_per_episode():
    returns = np.full((4, 640), NAN)
    returns[:, 39::40] = np.arange(16.0)
    method = run_reader.Lifetimes("epg", "EPG", 64, np.ones(4), returns, np.ones((4, 10)))
    axes = Figure().subplots()
    curves._draw_lifetimes(axes, method, returns, 1)
    (mean,) = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert mean.get_xdata().tolist() == list(range(40, 641, 40))
    assert mean.get_ydata().tolist() == list(range(16))


@pytest.mark.parametrize(
    ("name", "colour", "dashes"),
    [
        ("ppo", "ppo", "-"),
        ("ppo-8192", "ppo", "--"),
        ("rl2", "rl2", "-"),
        ("rl2-64", "rl2", "--"),
        ("ppo-fast", None, "-"),
        ("other-8192", None, "-"),
        ("8192", None, "-"),
    ],
)
def test_another_length_of_a_method_has_its_colour_dashed(name, colour, dashes):
    expected = curves.OTHER if colour is None else curves.COLOURS[colour]
    assert curves.line_of(name) == (expected, dashes)
    axes = Figure().subplots()
    method = run_reader.Lifetimes(name, "PPO", 10, np.ones(2), np.ones((2, 30)), np.ones((2, 3)))
    curves._draw_lifetimes(axes, method, method.kl, 10)
    (mean,) = [line for line in axes.lines if line.get_linestyle() != ":"]
    assert (mean.get_color(), mean.get_linestyle()) == (expected, dashes)


def test_several_lengths_share_one_figure(tmp_path):
    write_comparison(tmp_path, longer={"ppo-6400": 6400})
    text = words(curves.learning_curves(tmp_path))
    for label in ("EPG", "PPO", "PPO-6400"):
        assert f"<!-- {label} -->" in text
    assert "stroke-dasharray" in text


@pytest.mark.parametrize(("longest", "scale"), [(640, "linear"), (2559, "linear"), (2560, "log")])
def test_steps_are_logarithmic_only_where_lengths_differ(longest, scale):
    axes = Figure().subplots()
    methods = [
        run_reader.Lifetimes("epg", "", 32, np.ones(1), np.ones((1, length)), np.ones((1, 3)))
        for length in (640, longest)
    ]
    curves._scale_steps(axes, methods, longest)
    assert axes.get_xscale() == scale
    low, high = axes.get_xlim()
    assert low < 32
    assert longest < high < 1.1 * longest


def test_learning_curves_counts_non_finite_lifetimes(tmp_path):
    arrays = write_comparison(tmp_path)
    assert "non-finite" not in words(curves.learning_curves(tmp_path))
    arrays["ppo/final"][0] = NAN
    arrays["ppo/kl"][3, 2] = np.inf
    arrays["ppo/episode_return"][5, 39:80:40] = np.inf, -np.inf
    save_curves(tmp_path, arrays)
    paths = curves.learning_curves(tmp_path)
    assert [path.name for path in paths] == [f"learning_curves.{kind}" for kind in ("png", "svg", "pdf")]
    assert "<!-- PPO: 3 of 8 lifetimes non-finite, not drawn -->" in words(paths)
    assert "EPG: " not in words(paths)


def test_a_lifetime_that_is_not_drawn_does_not_stretch_the_axis(tmp_path):
    arrays = write_comparison(tmp_path)
    arrays["ppo/kl"][3] = 1e30
    arrays["ppo/kl"][3, 2] = np.inf
    save_curves(tmp_path, arrays)
    assert not re.search(r"10\^\{\d\d\}", words(curves.learning_curves(tmp_path)))


def test_points_without_a_neighbour_are_dots():
    axes = Figure().subplots()
    axes.set_yscale("log")
    curves.draw_line(axes, np.arange(6.0), np.array([1.0, NAN, 2.0, 3.0, 0.0, 4.0]))
    _, dots = axes.lines  # zero is not on a logarithmic axis
    np.testing.assert_array_equal(dots.get_xdata(), [0.0, 5.0])
    axes = Figure().subplots()
    curves.draw_line(axes, np.arange(2.0), np.ones(2))
    assert len(axes.lines) == 1


def test_series_are_in_rows_of_three_and_a_label_keeps_its_colour():
    x = np.arange(3.0)
    lines = {name: panels.Series(name, x, x, x, x) for name in "ab"}
    shown = {"one": [lines["a"], lines["b"]], "two": [lines["b"]], "three": [lines["a"]], "four": [lines["b"]]}
    figure = panels.draw_series("title", shown, "updates", "y", "note")
    first, second, _, last = figure.axes
    assert last.get_position().y0 < first.get_position().y0 == second.get_position().y0
    assert first.lines[1].get_color() == second.lines[0].get_color() == last.lines[0].get_color()
    assert first.lines[0].get_color() != first.lines[1].get_color()


def test_learning_curves_without_a_finished_episode_or_finite_lifetime(tmp_path):
    arrays = write_comparison(tmp_path)
    arrays["epg/episode_return"][:] = NAN
    arrays["ppo/kl"][:] = NAN
    save_curves(tmp_path, arrays)
    text = words(curves.learning_curves(tmp_path))
    assert "no episode ended" in text
    assert "PPO: 8 of 8 lifetimes non-finite" in text


@pytest.mark.parametrize(("spread", "scale"), [(2.0, "linear"), (1000.0, "log")])
def test_kl_is_logarithmic_only_where_it_spreads(spread, scale):
    kl = np.array([[0.0, 0.01, 0.01 * spread]])
    axes = Figure().subplots()
    curves.scale_kl(axes, [run_reader.Lifetimes("epg", "", 1, np.ones(1), np.ones((1, 3)), kl)])
    assert axes.get_yscale() == scale


def test_figures_repeat_byte_for_byte(tmp_path):
    for name in ("a", "b"):
        write_comparison(tmp_path / name)
        write_evolution(tmp_path / name, [{"epoch": 0}, {"epoch": 1}])
    for draw in (curves.learning_curves, lambda run: curves.fitness_over_epochs([run])):
        first, second = draw(tmp_path / "a"), draw(tmp_path / "b")
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
        assert first[0].read_bytes().startswith(b"\x89PNG")


def test_signal_share_by_hand(tmp_path):
    rows = [
        {},
        {"variance_between": None},
        {"variance_between": -1.0},
        dict.fromkeys(["variance_residual"], -1.0),
    ]
    epochs = run_reader.read_epochs(write_evolution(tmp_path, rows))
    np.testing.assert_array_equal(epochs.signal_share, [0.25, NAN, 0.0, NAN])


def test_fitness_of_one_run_is_its_population(tmp_path):
    rows = [{"epoch": e, "fitness_mean": float(e), "nonfinite": 3} for e in range(4)]
    axes = Figure().subplots()
    curves._draw_fitness(axes, [run_reader.read_epochs(write_evolution(tmp_path, rows))])
    best, mean = axes.lines
    assert mean.get_ydata().tolist() == [0, 1, 2, 3]
    assert best.get_ydata().tolist() == [2, 2, 2, 2]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (-0.5, 3.5)
    assert "12 of 256 lifetimes non-finite" in words(curves.fitness_over_epochs([tmp_path]))


def test_fitness_of_several_runs_is_their_mean_and_deviation(tmp_path):
    means = ([0.0, 1.0, 9.0], [4.0, 1.0])
    runs = [
        write_evolution(tmp_path / str(i), [{"epoch": e, "fitness_mean": v} for e, v in enumerate(values)])
        for i, values in enumerate(means)
    ]
    axes = Figure().subplots()
    curves._draw_fitness(axes, [run_reader.read_epochs(run) for run in runs])
    (line,) = axes.lines
    assert line.get_ydata().tolist() == [2, 1]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((2 - 8**0.5, 2 + 8**0.5))
    paths = curves.fitness_over_epochs(runs)
    assert paths[0].parent == runs[0] / "figures"
    assert "runs of 2 to 3 epochs, drawn to the shortest" in words(paths)


def test_epochs_without_finite_fitness_are_counted(tmp_path):
    write_evolution(tmp_path, [{}, {"epoch": 1, "fitness_mean": None}, {"epoch": 2, "fitness_mean": NAN}])
    assert "2 epochs without a finite mean fitness" in words(curves.fitness_over_epochs([tmp_path]))


def damage(run: Path, name: str, text: str | None) -> None:
    (run / name).unlink() if text is None else (run / name).write_text(text)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"methods": 1}'])
@pytest.mark.parametrize("name", ["results.json", "curves.safetensors"])
def test_a_damaged_comparison_is_refused_by_name(tmp_path, name, text):
    write_comparison(tmp_path)
    damage(tmp_path, name, text)
    with pytest.raises(BadInput, match=name):
        curves.learning_curves(tmp_path)
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", json.dumps({**ROW, "alpha": "x"})])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_a_damaged_evolution_is_refused_by_name(tmp_path, name, text):
    write_evolution(tmp_path, [{}])
    damage(tmp_path, name, text)
    with pytest.raises(BadInput, match=name):
        curves.fitness_over_epochs([tmp_path])


def test_arrays_of_different_tasks_are_refused(tmp_path):
    arrays = write_comparison(tmp_path)
    for cut in ({"epg/kl": arrays["epg/kl"][1:]}, {name: value[1:] for name, value in arrays.items()}):
        save_curves(tmp_path, arrays | cut)
        with pytest.raises(BadInput, match="arrays of epg"):
            curves.learning_curves(tmp_path)
    with pytest.raises(BadInput, match="at least one run"):
        curves.fitness_over_epochs([])


def test_one_flipped_number_is_refused(tmp_path):
    write_comparison(tmp_path)
    whole = bytearray((tmp_path / "curves.safetensors").read_bytes())
    whole[-1] ^= 1
    (tmp_path / "curves.safetensors").write_bytes(whole)
    with pytest.raises(BadInput, match=r"curves\.safetensors is damaged: its checksum"):
        run_reader.read_lifetimes(tmp_path)


def change_results(run: Path, change) -> None:
    results = json.loads((run / "results.json").read_text())
    change(results)
    write_json(run / "results.json", results)


def test_a_number_that_was_not_finite_is_nan(tmp_path):
    write_comparison(tmp_path)
    change_results(tmp_path, lambda results: results["methods"]["ppo"]["difference"].update(high=None))
    assert np.isnan(run_reader.read_results(tmp_path)["methods"]["ppo"]["difference"]["high"])


@pytest.mark.parametrize(
    "change",
    [
        lambda results: results.update(methods={}),
        lambda results: results["methods"].pop("ppo"),
        lambda results: results["methods"]["ppo"].pop("difference"),
        lambda results: results["methods"]["ppo"]["difference"].update(low="0"),
        lambda results: results["methods"]["ppo"]["difference"].pop("high"),
        lambda results: results["methods"]["ppo"].pop("tuned"),
        lambda results: results["methods"]["ppo"].update(tuned=1),
        lambda results: results["methods"]["ppo"].update(updates=0),
        lambda results: results["methods"]["ppo"].update(steps=640.0),
        lambda results: results["methods"]["epg"]["interval"].pop("value"),
        lambda results: results["methods"]["epg"].update(steps_per_update=0),
        lambda results: results.update(tasks=True),
    ],
)
def test_results_that_say_too_little_are_refused(tmp_path, change):
    write_comparison(tmp_path)
    change_results(tmp_path, change)
    with pytest.raises(BadInput, match=r"results\.json is damaged"):
        run_reader.read_results(tmp_path)


def test_a_line_torn_by_a_kill_is_left_out(tmp_path):
    run = write_evolution(tmp_path, [{}, {"epoch": 1}])
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole[:-20])
    assert run_reader.read_epochs(run).epoch.tolist() == [0]
    (run / "metrics.jsonl").write_text(whole[20:])
    with pytest.raises(BadInput, match=r"metrics\.jsonl, line 1, is damaged"):
        run_reader.read_epochs(run)


def test_figures_and_report_are_drawn_without_jax():
    code = "import sys; sys.modules['jax'] = None; import epg.viz.report; print('jaxlib' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def test_phi_itself_is_drawn_where_it_was_measured(tmp_path):
    rows = [
        {"epoch": n, "phi_fitness": 3.0 if n == 1 else None, "phi_fitness_error": 0.5 if n == 1 else None}
        for n in range(3)
    ]
    write_evolution(tmp_path, rows)
    assert "phi itself" in words(curves.fitness_over_epochs([tmp_path]))
    np.testing.assert_array_equal(run_reader.read_phi_fitness(tmp_path), [[1.0, 3.0, 0.5]])
    write_evolution(tmp_path, [{"epoch": 0}])
    assert "phi itself" not in words(curves.fitness_over_epochs([tmp_path]))


def test_cosines_are_averaged_over_the_last_epochs(tmp_path):
    rows = [{"epoch": n, "cosine": {"output": 0.1 * n, "head": None if n else 0.5}} for n in range(4)]
    write_evolution(tmp_path, rows)
    assert run_reader.read_cosines(tmp_path, last=2) == {"output": pytest.approx(0.25)}
    assert run_reader.read_cosines(tmp_path) == {"output": pytest.approx(0.15), "head": 0.5}


def test_what_stands_beside_a_row_of_pictures_is_no_longer_than_the_row_is_high() -> None:
    frames = np.zeros((5, 75, 100, 3), np.uint8)
    strips = [
        panels.Strip("target offset 0.11 0.13 -0.10 m from the gripper", frames, ("update 0: return -14.98",) * 5)
    ] * 3
    figure = panels.draw_strips("Fetch", strips, "a note")
    figure.draw_without_rendering()
    boxes = [row.yaxis.label.get_window_extent() for row in figure.axes[::5]]
    assert all(upper.y0 > lower.y1 for upper, lower in itertools.pairwise(boxes))


@pytest.mark.parametrize("numbers", [(3.0, -0.5), (1e90, 0.5), (3.0, 1e90)])
def test_a_fitness_of_phi_that_nobody_measured_is_refused(tmp_path, numbers):
    write_evolution(tmp_path, [{"epoch": 9, "phi_fitness": numbers[0], "phi_fitness_error": numbers[1]}])
    with pytest.raises(BadInput, match=r"metrics\.jsonl is damaged: no epoch has such numbers"):
        curves.fitness_over_epochs([tmp_path])


@pytest.mark.filterwarnings("error")
def test_labels_hold_no_control_characters_and_no_glyph_is_complained_about(tmp_path):
    write_comparison(tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    results["methods"]["epg"]["label"] = "a\x1b[31mb \U0001f994 $\\frac"
    (tmp_path / "results.json").write_text(json.dumps(results))
    text = words(curves.learning_curves(tmp_path))
    assert "a [31mb \U0001f994 $\\frac" in text
    assert "\x1b" not in text
