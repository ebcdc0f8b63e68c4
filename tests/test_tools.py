"""The tools: every name they take from epg is there, and the results page is made of whatever losses there are."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import epg
from epg import zoo
from epg.evolution.loop import evolve_run
from epg.evolution.runs import create_run
from epg.experiments.registry import NAMES
from epg.recipes import PPOTuning, preset
from epg.settings import Settings

TOOLS = Path(__file__).parents[1] / "tools"


def imported_names(path: Path) -> list[tuple[str, str]]:
    """Return (module, name) of all that a file imports from epg; the name is empty for a whole module."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "epg":
            found += [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "epg"]
    return found


@pytest.mark.parametrize("path", sorted(TOOLS.glob("*.py")), ids=lambda path: path.name)
def test_what_a_tool_takes_from_epg_is_there(path: Path) -> None:
    """Not by importing the tool: sb3_ppo.py needs PyTorch."""
    for module, name in imported_names(path):
        there = importlib.import_module(module)
        if name and not hasattr(there, name):
            importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("name", ["tune_ppo", "performance", "measure_scaling", "family_speed", "fast_physics"])
def test_a_tool_can_be_imported(name: str) -> None:
    assert callable(load_tool(name).__dict__.get("main") or load_tool(name).measure)


def test_the_page_of_figures_shows_what_was_measured_and_what_was_not_run() -> None:
    interval = {"value": 3.14159, "low": 2.0, "high": 4.0}
    method = {"label": "EPG", "steps": 1024, "updates": 32, "interval": interval}
    panel = {"title": "own length", "summary": {"family": "point-goal", "tasks": 20, "methods": {"epg": method}}}
    facts = {"panels": {"own": panel}, "trained": {"point-goal": {"env_steps": 9_800_000}}}
    result = {
        "title": "A title",
        "claim": "EPG wins",
        "measured": "EPG 3.1",
        "verdict": "does not hold",
        "facts": facts,
    }
    page = load_tool("paper").page({"5": result})
    assert "**Claim**: EPG wins.\n\n**Measured**: EPG 3.1.\n\n**Does not hold.**" in page
    assert "| EPG | 1,024 | 32 | 3.142 (2 to 4) |" in page
    assert "point-goal 9.8 M" in page
    assert "![A title](images/paper-fig05.png)" in page
    assert page.count("Not run at this scale yet") == len(NAMES) - 1


def load_tool(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(("how", "settings"), [(["--quick"], 2), (["--around", "--steps", "128"], 6)])
def test_the_search_behind_tuned_ppo_tries_its_grid(
    how: list[str], settings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = load_tool("tune_ppo")

    def mean(base: Settings, tuning: PPOTuning, *others: object) -> dict:
        return {**asdict(tuning), "mean": tuning.minibatch - 1e3 * tuning.learning_rate}

    monkeypatch.setattr(tool, "evaluate", mean)
    monkeypatch.setattr(sys, "argv", ["tune_ppo.py", "point-goal", *how, "--record", str(tmp_path / "x")])
    tool.main()
    tried = [json.loads(line) for line in (tmp_path / "x").read_text().splitlines()]
    assert len(tried) == settings
    assert "--quick" in how or {one["minibatch"] for one in tried} == {32, 64, 128}
    assert tried[0]["mean"] == max(one["mean"] for one in tried)
    assert capsys.readouterr().out.splitlines()[-1] == f"best: {json.dumps(tried[0])}"


@pytest.mark.slow
def test_the_search_behind_tuned_ppo_trains() -> None:
    tried = load_tool("tune_ppo").evaluate(preset("point-goal", "laptop"), PPOTuning(64, update_epochs=1), None, 2, 128)
    assert (tried["family"], tried["steps"], tried["tasks"]) == ("point-goal", 128, 2)
    assert np.isfinite([tried["mean"], tried["error"]]).all()


# The results page.


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the tool in a place with an empty page, an empty zoo and no runs, made small."""
    tool = load_tool("results")
    for folder in ("docs/images", "zoo", "lab"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs" / "results.md").write_text(f"# Results\n\nWritten by hand.\n\n{tool.MARK}\n\nold\n")
    (tmp_path / "docs" / "results.json").write_text('{"gone": {"shipped": "a loss that the zoo holds no more"}}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    for name, value in {"TASKS": 4, "CHOICE": 4, "LONG": 256}.items():
        monkeypatch.setattr(tool, name, value)
    monkeypatch.setattr(sys, "argv", ["results.py"])
    return tool


def evolve(path: Path, epochs: int = 1) -> None:
    """Evolve for so many epochs, with one seed: another one would be another program to compile."""
    settings = preset("point-goal", "smoke")
    settings = replace(settings, evolution=replace(settings.evolution, epochs=epochs))
    evolve_run(create_run(settings, path), settings, "inline")


def test_the_page_of_an_empty_zoo_says_so(results: ModuleType) -> None:
    results.main()
    text = Path("docs/results.md").read_text()
    assert text == f"# Results\n\nWritten by hand.\n\n{results.MARK}\n\nNo loss has been measured yet.\n"


@pytest.mark.slow
def test_a_loss_of_the_zoo_is_measured_without_its_run(results: ModuleType) -> None:
    evolve(Path("run"))
    Path("zoo/mine").mkdir()
    for name in ("loss.json", "loss.safetensors"):
        Path("run", name).rename(Path("zoo/mine", name))
    results.main()
    loss, measured = epg.load_loss("mine"), json.loads(Path("zoo/mine/held_out.json").read_text())
    assert {key: measured[key] for key in ("sha256", "tasks", "seed", "steps")} == {
        "sha256": loss.manifest["sha256"],
        "tasks": 4,
        "seed": results.SEED,
        "steps": {"loss": 128, "ppo": 128, "ppo_long": 256},
    }
    for learner in ("return", "ppo", "ppo_with_more_steps"):
        assert measured[learner]["low"] <= measured[learner]["value"] <= measured[learner]["high"]
    text = Path("docs/results.md").read_text()
    assert "## mine (point-goal)\n\nThe loss sees the reward. It was evolved from a fresh phi. PPO was tuned" in text
    assert "| mine | 1 | 0.0 M | 0.0 M | — | — |" in text
    assert "gone" not in Path("docs/results.json").read_text()
    Path("docs/results.md").write_text(results.MARK)
    sys.argv.append("--draw")
    results.main()
    assert Path("docs/results.md").read_text() == text[text.index(results.MARK) :]


@pytest.mark.slow
def test_the_better_of_two_evolutions_is_copied_into_the_zoo(results: ModuleType) -> None:
    for number in (1, 2):
        evolve(Path(f"lab/point-goal-s{number}"), epochs=number)
    Path("lab/point-goal-s3").mkdir()  # has not ended
    results.main()
    means = {
        name: it["training"]
        for name, it in json.loads(Path("docs/results.json").read_text())["point-goal"]["spent"].items()
    }
    assert set(means) == {"point-goal-s1", "point-goal-s2"}
    best = max(means, key=lambda name: means[name])
    assert Path("zoo/point-goal/loss.json").read_bytes() == Path("lab", best, "loss.json").read_bytes()
    text = Path("docs/results.md").read_text()
    assert "| mean of the 2 evolutions | 128 |" in text
    assert "![point-goal: fitness over epochs](images/point-goal-fitness.png)" in text
    assert Path("docs/images/point-goal.png").is_file()
    assert "strip-point-goal" not in text  # there is no such picture


def test_uv_gets_the_settings_of_pip() -> None:
    spec = importlib.util.spec_from_file_location("install", TOOLS / "install.py")
    assert spec
    assert spec.loader
    install = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(install)
    options, variables = install.for_uv(
        [
            ":env:.find-links='/mine'",
            "global.cert='/ca.crt'",
            "global.extra-index-url='file:///one file:///two'",
            "global.find-links='/theirs'",
            "download.proxy='unused'",
        ]
    )
    assert options[2:] == ["--index", "file:///one", "--index", "file:///two", "--find-links", "/mine"]
    assert variables == {"SSL_CERT_FILE": "/ca.crt"}
    assert install.for_uv(["global.proxy='somewhere'"]) is None  # then pip installs
