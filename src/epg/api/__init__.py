"""The verbs, for Python and for the command line.

JAX is imported by the verbs that need it, inside them: naming a verb costs nothing.
"""

from epg.api.common import LIFETIMES, PAPER_STEPS, RUNS, new_run_path, resumed_settings
from epg.api.evolving import continue_run, estimate, evolve, load_settings, prepare, settings_for
from epg.api.figures import figure, figures
from epg.api.inspecting import check, families, picture, probe, render, report, seed_runs, summarise_seeds, watch
from epg.api.learning import act, baseline, compare, learn
from epg.api.training import train_baseline
from epg.bench import bench
from epg.evaluation.verdict import verdicts
from epg.executors import Cluster, ExecutorFailed
from epg.families.registry import REGISTRY
from epg.recipes import PresetName
from epg.storage.run import check_vacant
from epg.zoo import list_losses, zoo_names

__all__ = [
    "LIFETIMES",
    "PAPER_STEPS",
    "REGISTRY",
    "RUNS",
    "Cluster",
    "ExecutorFailed",
    "PresetName",
    "act",
    "baseline",
    "bench",
    "check",
    "check_vacant",
    "compare",
    "continue_run",
    "estimate",
    "evolve",
    "families",
    "figure",
    "figures",
    "learn",
    "list_losses",
    "load_settings",
    "new_run_path",
    "picture",
    "prepare",
    "probe",
    "render",
    "report",
    "resumed_settings",
    "seed_runs",
    "settings_for",
    "summarise_seeds",
    "train_baseline",
    "verdicts",
    "watch",
    "zoo_names",
]
