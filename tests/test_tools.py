"""The tools: every name they take from epg is there, and the results page is made of whatever losses there are."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import epg
from epg import zoo
from epg.evolution.loop import evolve_run
from epg.evolution.runs import create_run
from epg.recipes import preset

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


def load_tool(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


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


def evolve(path: Path, seed: int) -> None:
    settings = preset("point-goal", "smoke")
    settings = replace(settings, seed=seed, evolution=replace(settings.evolution, epochs=1))
    evolve_run(create_run(settings, path), settings, "inline")


def test_the_page_of_an_empty_zoo_says_so(results: ModuleType) -> None:
    results.main()
    text = Path("docs/results.md").read_text()
    assert text == f"# Results\n\nWritten by hand.\n\n{results.MARK}\n\nNo loss has been measured yet.\n"


def test_a_loss_of_the_zoo_is_measured_without_its_run(results: ModuleType) -> None:
    evolve(Path("run"), 1)
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


def test_the_better_of_two_evolutions_is_copied_into_the_zoo(results: ModuleType) -> None:
    for seed in (1, 2):
        evolve(Path(f"lab/point-goal-s{seed}"), seed)
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
