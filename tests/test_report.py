"""The report of each kind of run: its numbers, its verdict, that it stands alone, and what it refuses."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.viz.report import _duration, _number, write_report
from epg.core.errors import BadInput
from epg.settings import Settings, to_dict

ABOVE, ACROSS, BELOW = (3.25, 1.5, 5.75), (0.5, -1.25, 2.25), (-3.0, -5.0, -1.0)


def interval(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


FINALS = ((61.5, 58.25), (41.75, 71.125))


def write_results(run: Path, difference=ABOVE, finals=FINALS, family="point", name="epg") -> None:
    run.mkdir(parents=True, exist_ok=True)
    names = ("epg", "ppo") if difference else (name,)
    labels = {"epg": "evolved loss", "ppo": "PPO"}
    tasks, arrays, methods = len(finals[0]), {}, {}
    for i, name in enumerate(names):
        arrays[f"{name}/final"] = np.array(finals[i], np.float32)
        arrays[f"{name}/episode_return"] = np.ones((tasks, 64), np.float32)
        arrays[f"{name}/kl"] = np.full((tasks, 2), 0.5, np.float32)
        numbers = interval(60.125 + i, 55.375 + i, 64.625 + i)
        methods[name] = {"label": labels[name], "steps_per_update": 32, "interval": numbers, "nonfinite": 0}
    results = {
        "kind": "compare",
        "family": family,
        "tasks": tasks,
        "steps": 8192,
        "seed": 0,
        "methods": methods,
    }
    if difference:
        results["difference"] = interval(*difference)
    else:
        results["kind"] = "learn"
    write_json(run / "results.json", results)
    write_atomic(run / "curves.safetensors", encode_tensors(arrays, {}))


def write_evolution(run: Path) -> None:
    settings = to_dict(Settings("point", seed=31337))
    config = {"format": 1, "kind": "evolve", "epg": "0.1.0", "family": "point", "settings": settings}
    names = "fitness_std fitness_best alpha variance_between variance_residual"
    rows = [
        {"epoch": e, "fitness_mean": 12.5 + e, "nonfinite": 1, "env_steps": 600_000, "seconds": 1900.0}
        | dict.fromkeys(names.split(), 0.5)
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


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (
            ABOVE,
            "better than PPO on the same 2 tasks: mean difference +3.250, 95 % interval +1.500 to +5.750",
        ),
        (
            ACROSS,
            "cannot be told apart on the same 2 tasks: mean difference +0.5000, 95 % interval −1.250 to",
        ),
        (
            BELOW,
            "worse than PPO on the same 2 tasks: mean difference −3.000, 95 % interval −5.000 to −1.000",
        ),
        ((0.0, 0.0, 0.0), "cannot be told apart"),
    ],
)
def test_comparison_says_what_the_paired_interval_allows(tmp_path, difference, verdict):
    write_results(tmp_path, difference)
    assert verdict in Page(write_report(tmp_path)).text


def test_comparison_shows_intervals_and_every_task(tmp_path):
    write_results(tmp_path)
    text = Page(write_report(tmp_path)).text
    assert "|evolved loss|60.12|55.38|64.62|2|0|8,192|32|" in text
    assert "|PPO|61.12|56.38|65.62|2|0|8,192|32|" in text
    assert "|0|61.50|41.75|+19.75|" in text
    assert "|1|58.25|71.12|−12.88|" in text


def test_one_task_supports_no_verdict(tmp_path):
    write_results(tmp_path, ABOVE, finals=((1.0,), (0.0,)))
    assert "One task cannot tell" in Page(write_report(tmp_path)).text


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
    write_results(tmp_path, difference=None, name="ppo")
    assert "|PPO reaches a final return of 60.12" in Page(write_report(tmp_path)).text


def test_evolution_shows_totals_settings_and_its_comparison(tmp_path):
    write_evolution(tmp_path)
    alone = Page(write_report(tmp_path))
    assert "went from 12.50 to 13.50, epochs 0 to 1" in alone.text
    assert "|epochs|2|environment steps|1,200,000|wall clock|1 h 03 min|" in alone.text
    assert "|lifetimes non-finite|2|loss sha256|c0ffee" in alone.text
    assert "|seed|31337|" in alone.text
    assert "|kernels|8, 4|" in alone.text
    assert "|reward|no|" in alone.text
    assert "|run: epg|0.1.0|" in alone.text
    assert len(alone.addresses) == 1
    assert "PPO" not in alone.text
    write_results(tmp_path / "compare")
    both = Page(write_report(tmp_path))
    assert "better than PPO" in both.text
    assert len(both.addresses) == 2


def test_a_search_counts_and_is_told(tmp_path):
    write_evolution(tmp_path)
    step = {"epoch": 0, "side": 0, "fitness_mean": -1.5, "env_steps": 100_000, "seconds": 60.0}
    (tmp_path / "search.jsonl").write_text(json.dumps(step) + "\n" + json.dumps(step | {"fitness_mean": 7.25}) + "\n")
    text = Page(write_report(tmp_path)).text
    assert "|environment steps|1,400,000|wall clock|1 h 05 min|" in text
    assert "|search for a first target|2 steps, mean return from −1.500 to 7.250|" in text


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
    del results["difference"]
    (tmp_path / "results.json").write_text(json.dumps(results))
    with pytest.raises(BadInput, match=r"results\.json is damaged"):
        write_report(tmp_path)
