"""Measure the evolved losses on held-out tasks and write docs/results.md.

.venv/bin/python tools/results.py                        every family with runs below lab/, a few minutes each
.venv/bin/python tools/results.py random-hopper          these only; the others keep their numbers
.venv/bin/python tools/results.py --draw                 write the page again from docs/results.json

Both also write held_out.json beside each shipped loss, which `epg losses` tells; point-goal and point-reach, whose
runs are not in lab/, have that only.

lab/FAMILY-sN are the evolutions, one per seed; one without a loss is not done, and waits to be resumed. The one whose
loss trains the best policies on training tasks is shipped, that is, copied into the package, before it is measured.
"""

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from epg.core.runtime import use_single_thread

use_single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from epg.evaluation.protocol import fitting, ranked_worst, record  # noqa: E402
from epg.evolution.worker import draw_lifetimes, find_family  # noqa: E402
from epg.storage.loss_artefact import LOSS_MANIFEST, LOSS_TENSORS  # noqa: E402
from epg.storage.files import read_tensors, write_json  # noqa: E402
from epg.evaluation.statistics import bootstrap, paired_difference  # noqa: E402
from epg import api  # noqa: E402
from epg.viz.curves import fitness_over_epochs  # noqa: E402
from epg.zoo import HELD_OUT, SHIPPED, load_loss  # noqa: E402
from epg.core.rng import Split  # noqa: E402

LAB, NUMBERS, PAGE, IMAGES = Path("lab"), Path("docs/results.json"), Path("docs/results.md"), Path("docs/images")
MARK = "<!-- what follows is written by tools/results.py -->"
TASKS, SEED, LONG = 20, 0, 8192
CHOICE = 64  # training tasks on which the loss to ship is chosen


def runs_of(family: str) -> list[Path]:
    """Return the evolutions of a family that are done, by seed; the others wait to be resumed."""
    return sorted(path.parent for path in LAB.glob(f"{family}-s*/loss.json"))


def on_training_tasks(family: str) -> dict[str, float]:
    """Return the mean return on training tasks of policies that each evolution's loss trained."""
    means = {}
    for run in runs_of(family):
        loss = load_loss(run)
        learnt = record(*fitting(loss, family), family, CHOICE, SEED, loss.phi, ("epg", run.name), Split.TRAIN)
        means[run.name] = float(ranked_worst(learnt.final).mean())
    return means


def ship(family: str, run: str) -> None:
    """Put the loss of an evolution into the package; what was measured of the one before it goes."""
    there = SHIPPED / family
    there.mkdir(exist_ok=True)
    (there / HELD_OUT).unlink(missing_ok=True)
    for name in (LOSS_TENSORS, LOSS_MANIFEST):
        shutil.copy(LAB / run / name, there / name)


def measure(family: str, means: dict[str, float]) -> dict:
    """Set every seed's loss, and the shipped one, against PPO on the same held-out tasks."""
    shipped = load_loss(family)
    with tempfile.TemporaryDirectory() as folder:
        same = api.compare(family, shipped, tasks=TASKS, seed=SEED, run=Path(folder) / "same")
        long = api.compare(family, shipped, tasks=TASKS, seed=SEED, ppo_steps=LONG, run=Path(folder) / "long")
        finals = {"ppo": _final(same, "ppo"), "ppo_long": _final(long, "ppo"), "shipped": _final(same, "epg")}
        for run in runs_of(family):
            if load_loss(run).manifest["sha256"] == shipped.manifest["sha256"]:
                finals[run.name] = finals["shipped"]
                continue
            learnt = api.learn(run, family, tasks=TASKS, seed=SEED, run=Path(folder) / run.name)
            finals[run.name] = _final(learnt, "epg")
        if runs_of(family):
            drawn = Path(long["run"]) / "figures" / "learning_curves.png"
            shutil.copy(drawn, IMAGES / f"{family}.png")
    for path in fitness_over_epochs(runs_of(family)) if runs_of(family) else ():
        if path.suffix == ".png":
            shutil.copy(path, IMAGES / f"{family}-fitness.png")
        path.unlink()
    return {
        "steps": {"loss": same["methods"]["epg"]["steps"], "ppo": same["methods"]["ppo"]["steps"], "ppo_long": LONG},
        "reward": shipped.manifest["settings"]["loss"]["reward"],
        "shipped": shipped.manifest["sha256"],
        "spent": {run.name: _spent(run) | {"training": means[run.name]} for run in runs_of(family)},
        "side": _sides(family),
        "finals": {name: [round(float(it), 4) for it in values] for name, values in finals.items()},
    }


def _final(result: dict, method: str) -> np.ndarray:
    tensors, _ = read_tensors(Path(result["run"]) / "curves.safetensors")
    return np.asarray(tensors[f"{method}/final"])


def _spent(run: Path) -> dict:
    """Return what an evolution cost."""
    epochs, search = (_lines(run / name) for name in ("metrics.jsonl", "search.jsonl"))
    return {
        "search": len(search),
        "epochs": len(epochs),
        "env_steps": json.loads((run / "loss.json").read_text())["env_steps"],
        "seconds": round(sum(line["seconds"] for line in epochs + search)),
    }


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _sides(family: str) -> list[float] | None:
    """Return the rewarded direction of each held-out task, for the families that have two."""
    draw = jax.vmap(draw_lifetimes(find_family(family), SEED, Split.HELD_OUT), (0, None))
    task, _ = draw(jnp.arange(TASKS), jnp.int32(0))
    return [float(it) for it in task.sign] if hasattr(task, "sign") else None


def write_held_out(family: str, result: dict) -> None:
    """Write what `epg losses` tells of a shipped loss beside it, unless another is shipped by now."""
    if load_loss(family).manifest["sha256"] != result["shipped"]:
        return
    told = {
        name: {
            end: float(f"{value:.5g}") for end, value in asdict(bootstrap(np.array(result["finals"][finals]))).items()
        }
        for name, finals in (("return", "shipped"), ("ppo", "ppo"), ("ppo_with_more_steps", "ppo_long"))
    }
    write_json(SHIPPED / family / HELD_OUT, {"tasks": TASKS, "steps": result["steps"], **told})


def interval(values: np.ndarray) -> str:
    """Write an interquartile mean and its interval."""
    found, digits = bootstrap(values), digits_of(values)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def digits_of(values: np.ndarray) -> int:
    """Return how many digits after the point say something: two where returns are small."""
    return 2 if np.abs(values).max() < 20 else 1


def section(family: str, result: dict) -> list[str]:
    """Write what is to be said of one family."""
    finals = {name: np.array(values) for name, values in result["finals"].items()}
    seeds, steps = list(result["spent"]), result["steps"]
    mean = np.mean([finals[name] for name in seeds], axis=0)
    several = [(f"evolution {name}", steps["loss"], finals[name]) for name in seeds]
    several += [(f"mean of the {len(seeds)} evolutions", steps["loss"], mean)]
    rows = [
        ("**shipped loss**", steps["loss"], finals["shipped"]),
        *(several if len(seeds) > 1 else []),
        ("PPO", steps["ppo"], finals["ppo"]),
        ("PPO, more steps", steps["ppo_long"], finals["ppo_long"]),
    ]
    lines = [
        f"## {family}",
        "",
        f"The loss sees {'the reward' if result['reward'] else 'no reward'}.",
        "",
        "| learner | steps | final return, IQM (95 % interval) | mean | difference to PPO | to PPO with more steps |",
        "|---|---|---|---|---|---|",
    ]
    for label, length, values in rows:
        gaps = [paired_difference(values, finals[name]) for name in ("ppo", "ppo_long")]
        digits = digits_of(values)
        told = [f"{gap.value:+.{digits}f} ({gap.low:+.{digits}f} to {gap.high:+.{digits}f})" for gap in gaps]
        told = ["—", "—"] if label.startswith("PPO") else told
        lines.append(
            f"| {label} | {length:,} | {interval(values)} | {values.mean():.{digits}f} | {told[0]} | {told[1]} |"
        )
    if result["side"] is not None:
        side = np.array(result["side"])
        lines += ["", "| direction | tasks | shipped loss | PPO | PPO, more steps |", "|---|---|---|---|---|"]
        for sign, name in ((1.0, "forwards"), (-1.0, "backwards")):
            told = [interval(finals[it][side == sign]) for it in ("shipped", "ppo", "ppo_long")]
            lines.append(f"| {name} | {(side == sign).sum()} | {' | '.join(told)} |")
    lines += [
        "",
        f"| evolution | search steps | epochs | environment steps | wall clock | mean on {CHOICE} training tasks |",
        "|---|---|---|---|---|---|",
    ]
    for name, spent in result["spent"].items():
        lines.append(
            f"| {name} | {spent.get('search', 0)} | {spent['epochs']} | {spent['env_steps'] / 1e6:.1f} M "
            f"| {spent['seconds'] / 60:.0f} min | {spent.get('training', np.nan):.{digits_of(mean)}f} |"
        )
    return [
        *lines,
        "",
        f"![{family}: learning curves of the shipped loss and PPO](images/{family}.png)",
        f"![{family}: fitness over epochs](images/{family}-fitness.png)",
        "",
        f"Held-out task 0, the policy at stages of its lifetime (`epg render {family} --out strip`):",
        "",
        f"![{family}: film strip of a lifetime](images/strip-{family}.png)",
        "",
    ]


def saved() -> dict:
    """Return what was measured so far."""
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def main() -> None:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    found = sorted({run.name.rpartition("-s")[0] for run in runs_of("*")})
    for family in [] if arguments.draw else arguments.families or found:
        means = on_training_tasks(family)
        if means:
            ship(family, max(means, key=lambda run: means[run]))
        measured = {family: measure(family, means)}
        NUMBERS.write_text(json.dumps(saved() | measured) + "\n")  # others may have measured in the meantime
    results = saved()
    for family, result in results.items():
        write_held_out(family, result)
    text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    body = [line for family, result in results.items() if result["spent"] for line in section(family, result)]
    PAGE.write_text(f"{text}{MARK}\n\n" + "\n".join(body), encoding="utf-8")


if __name__ == "__main__":
    main()
