"""The report of each kind of run: its numbers, its verdict, that it stands alone, and what it refuses."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import browse, needs_browser
from PIL import Image

from epg.core.errors import BadInput
from epg.settings import LossSettings, Settings, to_dict
from epg.storage.files import encode_tensors, read_json, write_atomic, write_json
from epg.viz.report import _duration, _number, write_report

ABOVE, ACROSS, BELOW = (3.25, 1.5, 5.75), (0.5, -1.25, 2.25), (-3.0, -5.0, -1.0)


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


FINALS = ((61.5, 58.25), (41.75, 71.125))
LABELS = {"epg": "evolved loss", "ppo": "PPO", "ppo-8192": "PPO, 8,192 steps"}
STEPS = {"ppo-8192": 8192}


def write_results(run: Path, difference=ABOVE, finals=FINALS, family="point", names=("epg", "ppo"), tuned=True) -> None:
    """Write a comparison of two or three methods; without a difference, what the first has learned."""
    run.mkdir(parents=True, exist_ok=True)
    names = names if difference else names[:1]
    tasks, arrays, methods = len(finals[0]), {}, {}
    for i, name in enumerate(names):
        arrays[f"{name}/final"] = np.array(finals[i], np.float32)
        arrays[f"{name}/episode_return"] = np.ones((tasks, 64), np.float32)
        arrays[f"{name}/kl"] = np.full((tasks, 2), 0.5, np.float32)
        methods[name] = {
            "label": LABELS[name],
            "steps": STEPS.get(name, 1024),
            "updates": 32,
            "steps_per_update": STEPS.get(name, 1024) // 32,
            "tuned": tuned or name == "epg",
            "interval": interval(60.125 + i, 55.375 + i, 64.625 + i),
            "nonfinite": 0,
        }
        if i > 0:
            methods[name]["difference"] = interval(*(end + i - 1 for end in difference))
    results = {
        "kind": "compare" if difference else "learn",
        "family": family,
        "tasks": tasks,
        "steps": max(method["steps"] for method in methods.values()),
        "seed": 0,
        "methods": methods,
    }
    write_json(run / "results.json", results)
    write_atomic(run / "curves.safetensors", encode_tensors(arrays, {}))


def write_evolution(run: Path) -> None:
    settings = to_dict(Settings("point", seed=31337, loss=LossSettings(inputs=("reward", "task-features"))))
    config = {"format": 1, "kind": "evolve", "epg": "0.1.0", "family": "point", "settings": settings}
    names = "fitness_std fitness_best alpha variance_between variance_residual"
    rows = [
        {"epoch": e, "fitness_mean": 12.5 + e, "nonfinite": 1, "env_steps": 600_000, "seconds": 1900.0}
        | dict.fromkeys(names.split(), 0.5)
        | {"cosine": {"head: observation": 0.25}}
        for e in range(2)
    ]
    write_json(run / "config.json", config)
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(run / "loss.json", {"sha256": "c0ffee" * 10})


class Page(HTMLParser):
    """Collect text and attributes, and check that every tag closes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source, self.text, self.open, self.addresses = path.read_text("utf-8"), "", [], []
        self.feed(self.source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += " ".join(data.split()) + "|" if data.strip() else ""


MANY = (tuple(float(i) for i in range(10)),) * 3


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (ABOVE, "The evolved loss is better than PPO (1,024 steps, 32 updates, tuned for this family)"),
        (BELOW, "The evolved loss is worse than PPO (1,024 steps, 32 updates, tuned for this family)"),
        (ACROSS, "The evolved loss and PPO (1,024 steps, 32 updates, tuned for this family) cannot be told apart"),
        ((0.0, 0.0, 0.0), "cannot be told apart"),
    ],
)
def test_comparison_says_what_the_paired_interval_allows(tmp_path, difference, verdict):
    write_results(tmp_path, difference, MANY)
    text = Page(write_report(tmp_path)).text
    assert verdict in text
    assert "95 % interval of the paired difference" in text


def test_each_compared_method_has_its_own_sentence(tmp_path):
    write_results(tmp_path, (-0.5, -0.75, -0.25), MANY, names=("epg", "ppo", "ppo-8192"), tuned=False)
    text = Page(write_report(tmp_path)).text
    assert "is worse than PPO (1,024 steps, 32 updates, not tuned for this family)" in text
    assert "is better than PPO, 8,192 steps (8,192 steps, 32 updates, not tuned for this family)" in text


def test_comparison_shows_intervals_and_every_task(tmp_path):
    write_results(tmp_path)
    text = Page(write_report(tmp_path)).text
    assert "|evolved loss|60.12|55.38|64.62|2|0|1,024|32|32|yes|" in text
    assert "|PPO|61.12|56.38|65.62|+3.250 (+1.500 to +5.750)|2|0|1,024|32|32|yes|" in text
    assert "|task|evolved loss|PPO|difference|" in text
    assert "|0|61.50|41.75|+19.75|" in text
    assert "|1|58.25|71.12|−12.88|" in text


def test_differences_of_every_method_are_to_the_first(tmp_path):
    finals = (*FINALS, (60.5, 60.25))
    write_results(tmp_path, ACROSS, finals, names=("epg", "ppo", "ppo-8192"), tuned=False)
    text = Page(write_report(tmp_path)).text
    assert "|evolved loss|60.12|55.38|64.62|2|0|1,024|32|32|yes|" in text
    assert "|PPO|61.12|56.38|65.62|+0.5000 (−1.250 to +2.250)|2|0|1,024|32|32|no|" in text
    assert "|PPO, 8,192 steps|62.12|57.38|66.62|+1.500 (−0.2500 to +3.250)|2|0|8,192|32|256|no|" in text
    assert "|task|evolved loss|PPO|difference|PPO, 8,192 steps|difference|" in text
    assert "|0|61.50|41.75|+19.75|60.50|+1.000|" in text
    assert "|1|58.25|71.12|−12.88|60.25|−2.000|" in text


@pytest.mark.parametrize(("tasks", "sentence"), [(1, "1 task is too few"), (9, "9 tasks are too few")])
def test_few_tasks_support_no_verdict(tmp_path, tasks, sentence):
    write_results(tmp_path, ABOVE, finals=((1.0,) * tasks, (0.0,) * tasks))
    text = Page(write_report(tmp_path)).text
    assert f"{sentence} for a verdict." in text
    assert "better than" not in text


def test_goals_and_transfer_are_shown_where_there_are_any(tmp_path):
    write_results(tmp_path)
    assert "goals per" not in write_report(tmp_path).read_text()
    results = read_json(tmp_path / "results.json")
    for method in results["methods"].values():
        method["goals"] = interval(1.25, 0.5, 2.0)
    results["methods"]["epg"]["transfer"] = ["family b instead of a", "9 updates instead of 4"]
    write_json(tmp_path / "results.json", results)
    page = " ".join(write_report(tmp_path).read_text().split())
    assert page.count("1.25 (0.50 to 2.00)") == 2
    assert "evolved loss: family b instead of a; 9 updates instead of 4." in page
    results["methods"]["epg"]["transfer"] = "a family"
    write_json(tmp_path / "results.json", results)
    with pytest.raises(BadInput, match="transfer of epg is 'a family'"):
        write_report(tmp_path)


def test_non_finite_lifetimes_are_named_in_the_verdict(tmp_path):
    write_results(tmp_path, finals=((1.0, 2.0), (np.nan, 3.0)))
    text = Page(write_report(tmp_path)).text
    assert "Of PPO's 2 lifetimes 1 were non-finite." in text
    assert "|0|1.000|non-finite|non-finite|" in text


def test_learning_has_one_method_and_no_difference(tmp_path):
    write_results(tmp_path, difference=None)
    text = Page(write_report(tmp_path)).text
    assert "The evolved loss reaches a final return of 60.12 (95 % interval 55.38 to 64.62)" in text
    assert "PPO" not in text
    assert "difference" not in text


def test_learning_by_hand_names_the_learner(tmp_path):
    write_results(tmp_path, difference=None, names=("ppo",))
    assert "|PPO reaches a final return of 60.12" in Page(write_report(tmp_path)).text


def test_evolution_shows_totals_settings_and_its_comparison(tmp_path):
    write_evolution(tmp_path)
    alone = Page(write_report(tmp_path))
    assert "went from 12.50 to 13.50, epochs 1 to 2" in alone.text
    assert "|epochs|2|environment steps|1,200,000|wall clock|1 h 03 min|" in alone.text
    assert "|lifetimes non-finite|2|loss sha256|c0ffee" in alone.text
    assert "|seed|31337|" in alone.text
    assert "|kernels|8, 4|" in alone.text
    assert "|inputs|reward, task-features|" in alone.text
    assert "|Signal per block of phi|head: observation|+0.25|" in alone.text
    assert "|started from|a fresh phi|" in alone.text
    assert "|run: epg|0.1.0|" in alone.text
    assert len(alone.addresses) == 1
    assert "PPO" not in alone.text
    write_results(tmp_path / "compare", finals=MANY)
    both = Page(write_report(tmp_path))
    assert "better than PPO" in both.text
    assert len(both.addresses) == 2


def change_config(run: Path, **changes) -> None:
    config = json.loads((run / "config.json").read_text())
    write_json(run / "config.json", config | changes)


def test_a_warm_start_is_named(tmp_path):
    write_evolution(tmp_path)
    change_config(tmp_path, warm_start={"kind": "policy", "sha256": "0123456789abcdef", "env_steps": 5})
    assert "|started from|a policy (0123456789ab)|" in Page(write_report(tmp_path)).text
    change_config(tmp_path, warm_start={"kind": "policy"})
    with pytest.raises(BadInput, match=r"config\.json is damaged: it lacks sha256"):
        write_report(tmp_path)


def test_the_page_stands_alone_and_escapes(tmp_path):
    write_results(tmp_path, family="<script>alert(1)</script>")
    page = Page(write_report(tmp_path))
    assert "<script" not in page.source
    assert page.source.startswith("<!doctype html>")
    (address,) = page.addresses
    head, body = address.split(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(body) == (tmp_path / "figures" / "learning_curves.svg").read_bytes()
    assert not re.search(r"https?://", page.source)


@needs_browser
def test_a_browser_shows_the_figures(tmp_path):
    """Both figures are drawn in the page: the blue of the evolved loss is there, and the red of PPO only in one."""
    write_evolution(tmp_path)
    write_results(tmp_path / "compare", finals=MANY)
    picture = tmp_path / "page.png"
    page = write_report(tmp_path)
    browse(page.as_uri(), tmp_path / "browser", f"--screenshot={picture}", "--window-size=900,3000")
    with Image.open(picture) as shot:
        seen = np.asarray(shot.convert("RGB")).astype(int)
    assert seen.shape == (3000, 900, 3)
    rows = {
        name: np.flatnonzero((np.abs(seen - rgb).max(axis=2) < 8).any(axis=1))
        for name, rgb in {"epg": (0x00, 0x72, 0xB2), "ppo": (0xD5, 0x5E, 0x00)}.items()
    }
    assert rows["epg"].min() < rows["ppo"].min() - 200  # the fitness figure stands above
    assert (np.diff(rows["ppo"]) > 100).sum() == 2  # legend, return and KL: three lines apart from each other


def write_card(run: Path, **changes) -> None:
    """Write a loss card of three probes."""
    names = (("trained by the loss", "control"), ("blind to history", "history"), ("actuators flipped", "interface"))
    probes = [
        {"name": name, "group": group, "steps": 640, "interval": interval(500.0 - 50 * i, 400.0, 600.0)}
        | {"difference": interval(-50.0 * i, -60.0, -40.0) if i else None}
        for i, (name, group) in enumerate(names)
    ]
    run.mkdir(parents=True, exist_ok=True)
    card = {"kind": "loss-card", "family": "point", "tasks": 32, "seed": 7, "probes": probes, "loss": "c0ffee"}
    write_json(run / "card.json", card | changes)


def test_a_loss_card_is_a_page_of_its_own_or_part_of_its_runs(tmp_path):
    write_card(tmp_path / "card")
    page = Page(write_report(tmp_path / "card"))
    assert "Loss card: point" in page.text
    assert "reach 500.0, 450.0 without its history, 400.0 with flipped actuators (32 held-out tasks)" in page.text
    assert "−50.00 (−60.00 to −40.00)|" in page.text
    assert (tmp_path / "card" / "figures" / "loss_card.png").is_file()
    write_card(tmp_path / "run")
    write_evolution(tmp_path / "run")
    text = Page(write_report(tmp_path / "run")).text
    assert "Evolution on point" in text
    assert "Loss card|" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "compare"},
        {"tasks": 10**400},
        {"probes": []},
        {"probes": {"name": 1}},
        {"probes": [{"name": "x", "group": "y", "steps": 1, "interval": None, "difference": None}]},
        {"probes": [{"name": "x", "group": "history", "steps": -1, "interval": None, "difference": None}]},
        {"probes": [{"name": "x", "group": [], "steps": 1, "interval": interval(1e99, 0, 0), "difference": None}]},
    ],
)
def test_a_damaged_card_is_refused_by_name(tmp_path, changes):
    write_card(tmp_path / "card", **changes)
    with pytest.raises(BadInput, match=r"card\.json"):
        write_report(tmp_path / "card")


def test_numbers_and_durations():
    assert [_number(x) for x in (1234.4, 137.0, -0.00012345, None, np.inf)] == [
        "1234", "137.0", "−0.0001234", "non-finite", "non-finite",
    ]  # fmt: skip
    assert [_duration(x) for x in (5.4, 61, 3600, 90_059)] == [
        "0 min 05 s",
        "1 min 01 s",
        "1 h 00 min",
        "25 h 00 min",
    ]


@pytest.mark.parametrize("name", ["results.json", "curves.safetensors"])
def test_a_damaged_comparison_is_refused_by_name(tmp_path, name):
    write_evolution(tmp_path)
    write_results(tmp_path / "compare")
    (tmp_path / "compare" / name).write_text("{")
    with pytest.raises(BadInput, match=f"compare/{name} is damaged"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "loss.json"])
def test_a_damaged_evolution_is_refused_by_name(tmp_path, name):
    write_evolution(tmp_path)
    (tmp_path / name).write_text("{\n")
    with pytest.raises(BadInput, match=f"{name}.* is damaged"):
        write_report(tmp_path)


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a run"):
        write_report(tmp_path)
    write_results(tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    del results["methods"]["ppo"]["difference"]
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(BadInput, match=r"results\.json is damaged"):
        write_report(tmp_path)


def test_a_comparison_elsewhere_is_not_drawn_into(tmp_path):
    (tmp_path / "run").mkdir()
    write_evolution(tmp_path / "run")
    write_results(tmp_path / "strangers")
    (tmp_path / "run" / "compare").symlink_to(tmp_path / "strangers")
    with pytest.raises(BadInput, match=r"run/compare is a symbolic link, which is not followed"):
        write_report(tmp_path / "run")
    assert not (tmp_path / "strangers" / "figures").exists()
