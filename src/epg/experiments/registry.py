"""The figures by name, and what happens when one is asked for: find or train, measure, save, draw, judge."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epg import __version__
from epg.core.errors import BadInput, did_you_mean, require
from epg.core.plain import plain
from epg.executors.base import explain
from epg.experiments.base import SCALES, Data, Experiment, Scale, Verdict
from epg.experiments.training import DAY, Trainer, check_given
from epg.storage.checked import with_keys
from epg.storage.files import check_format, encode_tensors, read_json, read_tensors, write_atomic, write_json
from epg.storage.loss_artefact import LossArtefact
from epg.storage.metrics import MetricsWriter
from epg.storage.run import RUN_FORMAT, Run, clear_run, new_run
from epg.viz.curves import save_figure
from epg.viz.panels import Figure

NAMES = (*(str(number) for number in range(3, 23)), "correlation")
"""Figures 3 to 22; §4.1's correlation has no figure in the paper."""
FORMAT = 2


@dataclass(frozen=True)
class FigureResult:
    """What a figure came to."""

    figure: str
    """Its number, or `correlation`."""
    run: Path
    """Its directory: data, PNG, SVG and PDF."""
    scale: str
    """How large the experiment was."""
    claim: str
    """What the paper says."""
    measured: str
    """What was measured."""
    verdict: str
    """holds, does not hold, or not comparable (why)."""
    facts: dict[str, Any]
    """All numbers."""
    files: tuple[Path, ...]
    """The pictures."""

    @property
    def sentence(self) -> str:
        """The claim, what was measured, and the verdict."""
        name = "Correlation" if self.figure == "correlation" else f"Figure {self.figure}"
        return f"{name}: the paper claims that {self.claim}; measured: {self.measured}: {self.verdict}."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        own = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self).items()}
        return {**own, "files": [str(it) for it in self.files], "sentence": self.sentence}


def find_experiment(name: str) -> Experiment:
    """Return the experiment of a figure."""
    near = "" if name.isdigit() else did_you_mean(name, NAMES)  # no number is meant for another
    require(name in NAMES, f"unknown figure {name!r}{near}: choose 3 to 22, correlation or all.")
    module = f"fig{int(name):02d}" if name.isdecimal() else name
    found: Experiment = importlib.import_module(f"epg.experiments.{module}").EXPERIMENT
    return found


def find_scale(name: str) -> Scale:
    """Return a scale by name."""
    require(name in SCALES, f"unknown scale {name!r}{did_you_mean(name, SCALES)}: choose one of {', '.join(SCALES)}.")
    return SCALES[name]


def check_time(names: list[str], trainer: Trainer, given: LossArtefact | None, yes: bool) -> None:
    """Refuse what would train for more than a day, unless that is wanted."""
    needs = [need for name in names for need in find_experiment(name).needs(trainer.scale)]
    missing = trainer.seconds(needs, given)
    days = sum(missing.values()) / DAY
    what = ", ".join(f"{need.label}" for need in sorted(missing, key=lambda it: -missing[it])[:3])
    require(
        yes or days < 1,
        f"scale {trainer.scale.name} would train for about {days:.1f} days here ({what}): add --yes if you want that.",
    )


def make_figure(name: str, run: Path, trainer: Trainer, given: LossArtefact | None) -> FigureResult:
    """Measure unless it was measured before, draw, and judge."""
    experiment, scale = find_experiment(name), trainer.scale
    check_given(experiment.needs(scale), given, name)
    data = _saved(name, run, scale)
    if data is None:
        about = {"format": RUN_FORMAT, "kind": "figure", "epg": __version__, "figure": name, "scale": scale.name}
        with new_run(run, about) as made, MetricsWriter(made) as metrics:
            lab = trainer.lab(experiment.needs(scale), given, metrics.write_update)
            measured = experiment.run(lab)
            arrays = dict(sorted(measured.arrays.items()))  # as they are read again
            data = Data(plain({**measured.facts, "trained": lab.origin()}), arrays)
            made.check_place()
            write_atomic(run / "figure.safetensors", encode_tensors(data.arrays, {}))
        drawn, judged = experiment.draw(data), experiment.verdict(data)
    else:
        drawn, judged = _redrawn(experiment, data, run)
    files = save_figure(drawn, run, run_name(name))
    result = FigureResult(
        name, run, scale.name, experiment.claim, judged.measured, _words(judged, scale), data.facts, tuple(files)
    )
    about = {"format": FORMAT, "title": experiment.title, **result.to_dict(), "data_sha256": _digest(data)}
    write_json(run / "figure.json", about)
    return result


def _redrawn(experiment: Experiment, data: Data, run: Path) -> tuple[Figure, Verdict]:
    """Draw and judge what was read from disk: numbers that nobody measured can fail in any way."""
    try:
        return experiment.draw(data), experiment.verdict(data)
    except Exception as error:
        raise BadInput(
            f"{run} is damaged: its data cannot be drawn ({explain(error)}). Remove it to measure again."
        ) from error


def _digest(data: Data) -> str:
    """Return the digest of all that a figure is drawn from and judged by."""
    read_again = json.loads(json.dumps(plain(data.facts)))  # keys that were numbers are text then
    facts = json.dumps(read_again, sort_keys=True).encode()
    return hashlib.sha256(facts + b"\n" + encode_tensors(data.arrays, {})).hexdigest()


def run_name(name: str) -> str:
    """Return the name of a figure's directory and files."""
    return f"fig{int(name):02d}" if name.isdecimal() else name


def _words(judged: Verdict, scale: Scale) -> str:
    if scale.smoke:
        return "not comparable (smoke scale)"
    if judged.holds is None:
        return f"not comparable ({judged.why})"
    return "holds" if judged.holds else "does not hold"


def _saved(name: str, run: Path, scale: Scale) -> Data | None:
    """Return what was measured in this directory before."""
    path = run / "figure.json"
    if not os.path.isfile(path):
        if os.path.isfile(run / "config.json") and (begun := Run.open(run)).config.get("kind") == "figure":
            with begun.lock():  # or somebody measures it now
                clear_run(run)  # killed while it was measured
        return None
    saved = read_json(path)
    known = isinstance(saved, dict) and (saved.get("figure"), saved.get("scale"))
    require(known == (name, scale.name), f"{run} holds another figure or scale: choose another --run.")
    check_format(saved.get("format"), FORMAT, str(path), None)
    with_keys(saved, path, ("facts", "data_sha256"))
    data = Data(saved["facts"], dict(sorted(read_tensors(run / "figure.safetensors")[0].items())))
    same = saved["data_sha256"] == _digest(data)
    require(same, f"{path} is damaged: its data do not match its data_sha256. Remove {run} to measure again.")
    return data
