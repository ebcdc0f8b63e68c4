"""One page about a run, `report.html`: self-contained, without scripts or links, drawn from saved files."""

from __future__ import annotations

import base64
import math
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from epg.core.errors import require
from epg.evaluation.verdict import subject, verdicts
from epg.storage.card_file import BLIND, CARD, FLIPPED, TARGET, main_numbers, read_card
from epg.storage.files import write_atomic
from epg.viz.card import draw_card
from epg.viz.curves import fitness_over_epochs, learning_curves
from epg.viz.run_reader import (
    read_config,
    read_cosines,
    read_epochs,
    read_lifetimes,
    read_object,
    read_results,
    with_keys,
)
from epg.viz.seeds import seed_runs, summarise_seeds

CARD_WORDS = {
    TARGET: "if its target acts without learning",
    BLIND: "without its history",
    FLIPPED: "with flipped actuators",
}


def write_report(run: Path) -> Path:
    """Write RUN/report.html for an evolution, a comparison, learning or a loss card, and return its path.

    A directory of several seeds gets a page about all of them.
    """
    seeds, comparison, card, evolution = _seeds(run), _comparison(run), _card(run), None
    if seeds is None and comparison is None and (card is None or _is_evolution(run)):
        evolution = _evolution(run)
        beside = run / "compare"
        require(not os.path.islink(beside), f"{beside} is a symbolic link, which is not followed: remove it.")
        comparison = _comparison(beside)
    config = read_object(run / "config.json") if os.path.isfile(run / "config.json") else {}
    parts = [part for part in (seeds, evolution, comparison, card) if part]
    page = (
        _environment()
        .get_template("report.html")
        .render(
            title=parts[0]["title"],
            verdict=" ".join(part["verdict"] for part in parts),
            seeds=seeds,
            evolution=evolution,
            comparison=comparison,
            card=card,
            config=config,
            versions=_versions(config),
        )
    )
    path = run / "report.html"
    write_atomic(path, page.encode())
    return path


def _seeds(place: Path) -> dict[str, Any] | None:
    """Gather what the page says about several seeds; None where there is one run."""
    runs = seed_runs(place)
    if not runs:
        return None
    found = summarise_seeds(place)
    fitness = np.array([it.fitness_last for it in found])
    spread = f" ± {_number(float(fitness.std(ddof=1)))} (standard deviation)" if len(found) > 1 else ""
    return {
        "title": f"Evolution on {found[0].family}: {len(found)} {'seed' if len(found) == 1 else 'seeds'}",
        "verdict": f"Mean fitness of the last epochs, over seeds: {_number(float(fitness.mean()))}{spread}.",
        "rows": found,
        "figure": _embed(fitness_over_epochs(runs, place)),
    }


def _is_evolution(run: Path) -> bool:
    """Tell whether a run with a loss card is an evolution whose card was kept beside its loss."""
    return os.path.isfile(run / "config.json") and read_object(run / "config.json").get("kind") == "evolve"


def _evolution(run: Path) -> dict[str, Any]:
    """Gather what the page says about an evolution."""
    known = os.path.isfile(run / "config.json")
    require(known, f"{run} is not a run: it has neither results.json nor config.json.")
    config, epochs = read_config(run), read_epochs(run)
    first, last = (_number(epochs.fitness_mean[index]) for index in (0, -1))
    facts = {
        "family": config["family"],
        "epochs": f"{len(epochs.epoch):,}",
        "environment steps": f"{int(np.nansum(epochs.env_steps)):,}",
        "wall clock": _duration(float(np.nansum(epochs.seconds))),
        "lifetimes non-finite": f"{int(np.nansum(epochs.nonfinite)):,}",
    }
    if os.path.isfile(run / "loss.json"):
        facts["loss sha256"] = read_object(run / "loss.json", "sha256")["sha256"]
    evolves = {"epg": "the loss and the initial policy", "ppo": "the initial policy of PPO"}
    facts["evolved"] = evolves.get(str(config["settings"].get("evolve_init")), "the loss")
    facts["started from"] = "a fresh phi"
    if config.get("warm_start") is not None:
        warm_start = with_keys(config["warm_start"], run / "config.json", ("kind", "sha256"))
        facts["started from"] = f"a {warm_start['kind']} ({str(warm_start['sha256'])[:12]})"
    span = f"epochs {epochs.epoch[0] + 1:.0f} to {epochs.epoch[-1] + 1:.0f}"
    return {
        "title": f"Evolution on {config['family']}",
        "verdict": f"Mean fitness of the population went from {first} to {last}, {span}.",
        "facts": facts,
        "cosines": read_cosines(run),
        "figure": _embed(fitness_over_epochs([run])),
    }


def _comparison(run: Path) -> dict[str, Any] | None:
    """Gather what the page says about a comparison or learning; None where there is none."""
    if not os.path.isfile(run / "results.json"):
        return None
    results, lifetimes = read_results(run), read_lifetimes(run)
    words = "Comparison" if results["kind"] == "compare" else "Learning"
    nonfinite = [int((~method.finite).sum()) for method in lifetimes]
    verdict = _verdict(results)
    for method, count in zip(lifetimes, nonfinite, strict=True):
        if count:
            verdict += f" Of {method.label}'s {len(method.final)} lifetimes {count} were non-finite."
    return {
        "title": f"{words} on {results['family']}",
        "verdict": verdict,
        "results": results,
        "goals": all(it["goals"] for it in results["methods"].values()),
        "methods": list(zip(results["methods"].values(), nonfinite, strict=True)),
        "finals": np.stack([method.final for method in lifetimes], axis=1).tolist(),  # [tasks, methods]
        "figure": _embed(learning_curves(run)),
    }


def _card(run: Path) -> dict[str, Any] | None:
    """Gather what the page says about a loss card; None where there is none."""
    if not os.path.isfile(run / CARD):
        return None
    card = read_card(run / CARD)
    shown = [f"{_number(value)} {CARD_WORDS[name]}" for name, value in main_numbers(card).items()]
    trained = f"Policies that the loss trains reach {_number(card['probes'][0]['interval']['value'])}"
    return {
        "title": f"Loss card: {card['family']}",
        "verdict": ", ".join([trained, *shown]) + f" ({card['tasks']} held-out tasks).",
        "tasks": card["tasks"],
        "seed": card["seed"],
        "probes": card["probes"],
        "figure": _embed(draw_card(card, run)),
    }


def _verdict(results: dict[str, Any]) -> str:
    """Say what the intervals allow to say, a sentence per compared method."""
    tasks, methods = results["tasks"], results["methods"]
    if len(methods) == 1:
        method = next(iter(methods.values()))
        who, interval = subject(str(method["label"])), method["interval"]
        return (
            f"{who} reaches a final return of {_number(interval['value'])} "
            f"({_range(interval)}) on {tasks} held-out tasks after {results['steps']:,} steps."
        )
    return " ".join(verdicts(results)) or f"{tasks} {'task is' if tasks == 1 else 'tasks are'} too few for a verdict."


def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("epg.viz"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters.update(number=_number, range=_range)
    return environment


def _number(value: float | None, sign: bool = False) -> str:
    """Write four significant digits, and say so where a number is not finite."""
    if value is None or not math.isfinite(value):
        return "non-finite"
    text = f"{value:+#.4g}" if sign else f"{value:#.4g}"
    return text.rstrip(".").replace("-", "−")


def _range(interval: dict[str, float], sign: bool = False) -> str:
    return f"95 % interval {_number(interval['low'], sign)} to {_number(interval['high'], sign)}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"


def _embed(paths: list[Path]) -> str:
    """Turn a drawn SVG into a data URI: as an image its ids cannot clash with another figure's."""
    svg = next(path for path in paths if path.suffix == ".svg")
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()


def _versions(config: dict[str, Any]) -> dict[str, str]:
    """Tell what made the run, as far as it was saved, and what drew this page."""
    versions = {"run: epg": str(config["epg"])} if "epg" in config else {}
    versions["page: Python"] = platform.python_version()
    for package in ("epg", "numpy", "matplotlib"):
        try:
            versions[f"page: {package}"] = version(package)
        except PackageNotFoundError:  # run from a source tree
            continue
    return versions
