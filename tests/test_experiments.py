"""The paper's figures: each runs, saves its data, is drawn, and its verdict follows from the data."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epg
from epg import api
from epg.cli import main
from epg.core.errors import BadInput
from epg.evaluation.protocol import MethodResult, curves, table
from epg.experiments import fig04, fig08, fig14, fig15, fig19, learning, lifetimes, singles
from epg.experiments.base import SCALES, Data, Need, Verdict
from epg.experiments.lifetimes import all_of, at_least, better, merged, panels
from epg.experiments.registry import NAMES, _digest, find_experiment, make_figure
from epg.experiments.training import Trainer
from epg.storage.files import encode_tensors, read_json, read_tensors, write_json
from epg.storage.metrics import read_metrics
from epg.viz import camera
from epg.viz.panels import Path2D
from epg.zoo import load_loss

FILMS = ("3", "4", "14", "15")


def can_draw() -> bool:
    """Tell whether films can be made here."""
    try:
        camera.find_backend()
    except BadInput:
        return False
    return True


def call(*arguments: object) -> tuple[int, str, str]:
    """Call the command line in this process; return exit code, output and messages."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["figure", *map(str, arguments)])
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Make all figures at smoke scale, by the command; without a camera, all but the films."""
    root = tmp_path_factory.mktemp("figures")
    if not can_draw():
        drawn = [it for it in NAMES if it not in FILMS]
        return root, [it.to_dict() for it in api.figures(drawn, scale="smoke", run=root)]
    code, out, err = call("all", "--scale", "smoke", "--run", root, "--json")
    assert code == 0, err
    (line,) = out.splitlines()
    return root, json.loads(line)


def test_every_figure_runs_at_smoke_scale(smoke):
    _, results = smoke
    assert [it["figure"] for it in results] == [it for it in NAMES if can_draw() or it not in FILMS]
    for it in results:
        assert it["sentence"].endswith(": not comparable (smoke scale).")
        assert it["measured"]
        assert {Path(file).suffix for file in it["files"]} >= {".png", ".svg"}
        assert all(Path(file).stat().st_size > 1000 for file in it["files"])
        assert read_json(Path(it["run"]) / "figure.json")["facts"] == it["facts"]


def test_a_measured_figure_is_drawn_again_from_its_data(smoke, monkeypatch):
    root, results = smoke
    monkeypatch.setattr(lifetimes, "record", None)  # measuring again would fail
    code, out, _ = call("5", "--scale", "smoke", "--run", root)
    (expected,) = [it["sentence"] for it in results if it["figure"] == "5"]
    assert (code, out.splitlines()[0]) == (0, expected)


@pytest.mark.parametrize("damage", ["facts", "arrays", "no facts", "no digest", "signed"])
def test_data_that_nobody_measured_is_refused_by_name(smoke, damage, tmp_path):
    root, _ = smoke
    run = tmp_path / "fig05"
    shutil.copytree(root / "fig05", run)
    saved, arrays = read_json(run / "figure.json"), read_tensors(run / "figure.safetensors")[0]
    changed = {name: value + 1 for name, value in arrays.items()}
    if damage in ("arrays", "signed"):
        changed = {} if damage == "signed" else changed
        (run / "figure.safetensors").write_bytes(encode_tensors(changed, {}))
    if damage == "facts":
        saved["facts"]["trained"] = "by somebody else"
    if damage == "signed":
        saved["data_sha256"] = _digest(Data(saved["facts"], {}))
    saved.pop(GONE.get(damage, ""), None)
    write_json(run / "figure.json", saved)
    code, _, err = call("5", "--scale", "smoke", "--run", tmp_path)
    reason = {"signed": "its data cannot be drawn", "no facts": "it lacks facts", "no digest": "it lacks data_sha256"}
    assert code == 2
    assert f"is damaged: {reason.get(damage, 'its data do not match its data_sha256')}" in err
    assert "Traceback" not in err


GONE = {"no facts": "facts", "no digest": "data_sha256"}


@pytest.mark.parametrize("name", ["20", "21"])
def test_a_second_drawing_is_the_first(smoke, name):
    root, _ = smoke
    picture = (root / f"fig{name}" / "figures" / f"fig{name}.svg").read_bytes()
    call(name, "--scale", "smoke", "--run", root)
    assert (root / f"fig{name}" / "figures" / f"fig{name}.svg").read_bytes() == picture


def test_another_figure_or_scale_is_not_overwritten(smoke):
    root, _ = smoke
    trainer = Trainer(SCALES["laptop"], root / "trained", root, print)
    with pytest.raises(BadInput, match="another figure or scale"):
        make_figure("5", root / "fig05", trainer, None)
    with pytest.raises(BadInput, match="already holds files that are not a run"):
        make_figure("5", root, trainer, None)


def test_lifetimes_of_a_figure_write_metrics_and_a_killed_figure_begins_anew(smoke, tmp_path):
    root, _ = smoke
    lines = read_metrics(root / "fig05" / "metrics.jsonl")
    curves = {it["curve"].rpartition("/lifetime-1/")[0] for it in lines}
    assert len(curves) == 2  # the loss and PPO
    assert all((root / "fig05" / "tensorboard" / name).is_dir() for name in curves)
    assert {"env_steps", "episode_return", "kl"} < set(lines[0])
    shutil.copytree(root / "fig05", tmp_path / "fig05")
    (tmp_path / "fig05" / "figure.json").unlink()  # as if it had been killed just before its end
    with pytest.raises(ZeroDivisionError):
        make_figure("5", tmp_path / "fig05", FailingTrainer(SCALES["smoke"], tmp_path, tmp_path, print), None)
    assert list((tmp_path / "fig05").iterdir()) == []


class FailingTrainer(Trainer):
    """Fails before anything is trained."""

    def lab(self, needs, given=None, write=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hopper"], "unknown figure 'hopper': choose 3 to 22, correlation or all"),
        (["correlatoin"], "did you mean correlation?"),
        (["5", "--scale", "large"], "invalid choice 'large'"),
        (["5", "--loss", "nowhere"], "no loss at nowhere"),
        (["5", "--loss", "point-goal"], "figure 5 needs a loss of random-hopper, and this one is of point-goal"),
        (["18", "--loss", "point-goal"], "figure 18 needs a loss of goal-ant-right"),
        (["20", "--loss", "point-goal"], "figure 20 needs no single loss"),
        (["all", "--loss", "point-goal"], "a loss is for one figure"),
        (["5", "--scale", "paper"], "days here (random-hopper): add --yes"),
    ],
)
def test_wrong_calls_are_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def panel_data(epg: float, ppo: float, tasks: int = 20) -> Data:
    """Return a panel in which EPG ends at one return and PPO at another, with some spread over tasks."""
    rng, key = np.random.default_rng(0), "own"
    results = [
        MethodResult(
            name, name.upper(), 4, end + rng.normal(0, 1, tasks), np.full((tasks, 8), end), np.ones((tasks, 2))
        )
        for name, end in (("epg", epg), ("ppo", ppo))
    ]
    facts = {"panels": {key: {"title": "own length", "summary": table(results, "point-goal", 0)}}}
    return Data(facts, {f"{key}/{name}": value for name, value in curves(results).items()})


@pytest.mark.parametrize(
    ("epg", "ppo", "tasks", "holds"), [(9, 3, 20, True), (3, 9, 20, False), (3, 3, 20, False), (9, 3, 9, None)]
)
def test_a_verdict_follows_from_the_data(epg, ppo, tasks, holds):
    found = learning.verdict(panel_data(epg, ppo, tasks))
    assert found.holds is holds
    assert "paired difference" in found.measured


def test_not_worse_and_all_of():
    panel = panels(panel_data(3.0, 3.0))["own"]
    assert at_least(panel, "epg", "ppo").holds
    assert not at_least(panels(panel_data(3.0, 9.0))["own"], "epg", "ppo").holds
    assert not better(panel, "epg", "ppo").holds
    yes, no, unknown = Verdict("a", True), Verdict("b", False), Verdict("c", None, "why")
    assert all_of([yes, yes]).holds
    assert all_of([yes, no]).holds is False
    assert all_of([yes, no, unknown]) == Verdict("a; b; c", None, "why")


def test_panels_are_merged_by_key():
    one, two = panel_data(1.0, 2.0), panel_data(5.0, 6.0)
    other = Data(
        {"panels": {"long": two.facts["panels"]["own"]}, "more": 1},
        {name.replace("own", "long"): it for name, it in two.arrays.items()},
    )
    both = merged([one, other])
    assert list(panels(both)) == ["own", "long"]
    assert both.facts["more"] == 1
    np.testing.assert_array_equal(panels(both)["long"].final("epg"), panels(other)["long"].final("epg"))


def test_turned_counts_lifetimes_that_begin_wrongly_and_end_rightly():
    returns = np.full((4, 6), np.nan)
    returns[:, 2] = [-1.0, -1.0, 2.0, -3.0]
    returns[:, 5] = 1.0
    method = lifetimes.Lifetimes("epg", "EPG", 3, np.array([2.0, -2.0, 2.0, np.nan]), returns, np.zeros((4, 2)))
    assert singles.turned(method) == (3, 1)
    np.testing.assert_array_equal(singles.single(method, 1).returns, [-1.0, 1.0])


@pytest.mark.parametrize(("epg", "ppo", "holds"), [(9, 3, True), (-3, -9, False), (3, 9, False)])
def test_without_resets_epg_must_be_better_and_get_somewhere(epg, ppo, holds):
    data = panel_data(epg, ppo)
    panel = data.facts["panels"].pop("own")
    panel["summary"]["methods"]["epg"]["goals"] = {"value": 1.5, "low": 1.0, "high": 2.0}
    data.facts["panels"]["all"] = panel
    found = fig19.EXPERIMENT.verdict(Data(data.facts, {k.replace("own", "all"): v for k, v in data.arrays.items()}))
    assert found.holds is holds
    assert "goals reached per 1000 steps: EPG 1.50 (1.00 to 2.00)" in found.measured


def test_headings_of_episodes():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0], [-3.0, 0.0]])
    found = fig15.headings(Path2D("", path, np.array([0, 1, 0, 1, 0, 0]), np.array([5.0, 0.0])))
    np.testing.assert_allclose(found, [1.0, 0.0, -1.0])


def test_every_experiment_needs_registered_families():
    for name in NAMES:
        for scale in SCALES.values():
            for need in find_experiment(name).needs(scale):
                guess = Trainer(scale, Path("x"), Path("nowhere"), print).seconds([need])
                assert all(np.isfinite(it) and it >= 0 for it in guess.values())


def test_a_loss_is_evolved_once_and_found_by_its_settings(tmp_path):
    need, heard = Need("loss", "point-goal", seed=1), []
    trainer = Trainer(SCALES["smoke"], tmp_path / "trained", tmp_path / "runs", heard.append)
    assert list(trainer.seconds([need])) == [need]
    first = trainer.lab([need]).loss("point-goal", seed=1)
    assert (first.manifest["seed"], first.manifest["epochs"]) == (1, 4)
    assert "epoch 4 of 4" in heard[-1]
    elsewhere = Trainer(SCALES["smoke"], tmp_path / "elsewhere", tmp_path, heard.append)
    assert elsewhere.seconds([need]) == {}
    assert elsewhere.lab([need]).loss("point-goal", seed=1).manifest["sha256"] == first.manifest["sha256"]
    assert list(elsewhere.seconds([Need("loss", "point-goal", seed=77)])) == [Need("loss", "point-goal", seed=77)]
    longer = epg.preset("point-goal", "smoke", seed=1, **{"evolution.epochs": 5})
    epg.evolve(settings=longer, run=tmp_path / "trained" / "point-goal-smoke-s1", resume=True, executor="inline")
    assert elsewhere.seconds([need]) == {}  # more than was asked for
    shutil.copytree(tmp_path / "trained", tmp_path / "policies")  # what a comparison leaves: policies without a run
    (tmp_path / "policies" / "policy.json").write_text("{}")
    laptop = Trainer(SCALES["laptop"], tmp_path / "laptop", tmp_path, heard.append)
    assert list(laptop.seconds([Need("maml", "point-goal")])) == [Need("maml", "point-goal")]
    own = load_loss("point-goal")
    assert trainer.lab([Need("loss", "point-goal")], own).loss("point-goal") is own


# Falling is not hopping.


@pytest.mark.parametrize(("metres", "holds"), [(-0.8, False), (-3.0, True), (3.0, False)])
def test_a_fall_backwards_is_no_hop(metres, holds):
    stages = [{"travelled": -0.2, "return": 30.0}, {"travelled": metres, "return": 97.0}]
    assert fig14.EXPERIMENT.verdict(Data({"strips": [{"stages": stages}]}, {})).holds == holds
    forwards = [{**it, "travelled": -it["travelled"]} for it in stages]
    assert fig04.EXPERIMENT.verdict(Data({"strips": [{"stages": forwards}]}, {})).holds == holds


def test_each_direction_is_judged_on_its_own():
    panel, backwards = panels(panel_data(9.0, 3.0))["own"], np.arange(20) % 2 == 0
    panel.methods["epg"].final[backwards] = 1.0
    assert fig08.in_direction(panel, "forwards", ~backwards).holds
    assert fig08.in_direction(panel, "backwards", backwards).holds is False
