"""Measure evolved losses on held-out tasks and write docs/results.md.

.venv/bin/python tools/results.py                        every loss of the zoo and of lab/, minutes each
.venv/bin/python tools/results.py random-hopper          these only; the others keep their numbers
.venv/bin/python tools/results.py --draw                 write the page again from docs/results.json

lab/FAMILY-sN are evolutions, one per seed; one without a loss has not ended, and waits to be resumed. The one whose
loss trains the best policies on training tasks is copied into the zoo before it is measured. A loss of the zoo without
runs in lab/ is measured as it is. Both write held_out.json beside the loss, which `epg losses` shows.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from epg.core.runtime import use_single_thread

use_single_thread()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from epg import api, zoo  # noqa: E402
from epg.core.rng import Split  # noqa: E402
from epg.evaluation.fitting import settings_of  # noqa: E402
from epg.evaluation.protocol import loss_method, ranked_worst, record  # noqa: E402
from epg.evaluation.statistics import bootstrap, paired_difference  # noqa: E402
from epg.evolution.task_sampling import task_sampler  # noqa: E402
from epg.families.registry import find_family  # noqa: E402
from epg.storage.card_file import CARD, read_card  # noqa: E402
from epg.storage.files import write_json  # noqa: E402
from epg.storage.loss_artefact import LOSS, LossArtefact, load_loss  # noqa: E402
from epg.storage.metrics import read_metrics  # noqa: E402
from epg.storage.policy_artefact import POLICY  # noqa: E402
from epg.viz.curves import fitness_over_epochs  # noqa: E402

LAB, NUMBERS, PAGE, IMAGES = Path("lab"), Path("docs/results.json"), Path("docs/results.md"), Path("docs/images")
MARK = "<!-- what follows is written by tools/results.py -->"
TASKS, SEED, LONG = 20, 20261121, api.PAPER_STEPS  # a seed that no table used before this one
BASELINES = "fixed", "fixed-ppo", "maml", "rl2"  # what is measured if it is in lab/, as NAME-fixed and so on
CHOICE = 64  # training tasks on which the loss for the zoo is chosen

Result = dict[str, Any]


def runs_of(name: str) -> list[Path]:
    """Return the evolutions of a loss that have ended, by seed."""
    return sorted(path.parent for path in LAB.glob(f"{name}-s*/{LOSS.manifest}"))


def in_zoo() -> dict[str, str]:
    """Return the digest of each loss of the zoo that this epg can load."""
    return {it.name: it.artefact.manifest["sha256"] for it in zoo.list_losses(Path("none")) if it.shipped}


def all_names() -> list[str]:
    """Return the names of all losses: of the zoo and of lab/."""
    return sorted({*in_zoo(), *(run.name.rpartition("-s")[0] for run in runs_of("*"))})


def on_training_tasks(name: str) -> dict[str, float]:
    """Return the mean return on training tasks of policies that each evolution's loss trained."""
    means = {}
    for run in runs_of(name):
        loss = load_loss(run)
        result = record(loss_method(loss, loss.manifest["family"]), CHOICE, SEED, Split.TRAIN)
        means[run.name] = float(ranked_worst(result.final).mean())
    return means


def ship(name: str, run: str) -> None:
    """Copy the loss of an evolution into the zoo; what was measured of the one before it is deleted."""
    there = zoo.ZOO / name
    there.mkdir(exist_ok=True)
    (there / zoo.HELD_OUT).unlink(missing_ok=True)
    for file in (LOSS.tensors, LOSS.manifest):
        shutil.copy(LAB / run / file, there / file)


def alternatives(name: str, shipped: LossArtefact) -> dict[str, Path]:
    """Return what else a loss is compared with, if it is in lab/: itself before evolution, trained baselines."""
    same = [run for run in runs_of(name) if load_loss(run).manifest["sha256"] == shipped.manifest["sha256"]]
    found = {"first": same[0] / "first"} if same else {}
    found |= {kind: LAB / f"{name}-{kind}" for kind in BASELINES}
    return {key: path for key, path in found.items() if (path if key == "first" else path / POLICY.manifest).exists()}


def measure(name: str, means: dict[str, float]) -> Result:
    """Compare the loss of the zoo, and that of every seed, with PPO on the same held-out tasks."""
    shipped = zoo.load_loss(name)
    family, runs = shipped.manifest["family"], runs_of(name)
    with tempfile.TemporaryDirectory() as folder:
        beside = alternatives(name, shipped)
        others = ("ppo", *beside.values())
        place = Path(folder) / "compare"
        compared = api.compare(shipped, tasks=TASKS, seed=SEED, others=others, ppo_steps=[LONG], run=place)
        methods = compared.table["methods"]
        long = f"ppo-{LONG}" if f"ppo-{LONG}" in methods else "ppo"  # a loss may have as many steps itself
        of = {"shipped": "epg", "ppo": "ppo", "ppo_long": long}
        of |= {"first": "epg-2"} if "first" in beside else {}
        of |= {method: method for method in methods if method.startswith(BASELINES)}
        finals = {key: ranked_worst(compared.methods[method].final) for key, method in of.items()}
        for run in runs:
            if load_loss(run).manifest["sha256"] == shipped.manifest["sha256"]:
                finals[run.name] = finals["shipped"]
                continue
            learned = api.learn(run, family, tasks=TASKS, seed=SEED, run=Path(folder) / run.name)
            finals[run.name] = ranked_worst(learned.returns)
        shutil.copy(compared.run / "figures" / "learning_curves.png", IMAGES / f"{name}.png")
    for path in fitness_over_epochs(runs) if runs else ():
        if path.suffix == ".png":
            shutil.copy(path, IMAGES / f"{name}-fitness.png")
        path.unlink()
    return {
        "family": family,
        "steps": {"loss": methods["epg"]["steps"], "ppo": methods["ppo"]["steps"], "ppo_long": methods[long]["steps"]},
        "tuned": methods["ppo"]["tuned"],
        "reward": settings_of(shipped).loss.sees_reward,
        "shipped": shipped.manifest["sha256"],
        "warm_start": shipped.manifest["warm_start"],
        "spent": {run.name: _spent(load_loss(run), run) | {"training": means[run.name]} for run in runs}
        or {name: _spent(shipped)},
        "side": _sides(family),
        "lifetimes": compared.table["lifetimes"],
        "baselines": {
            method: {key: methods[method][key] for key in ("label", "steps", "meta_steps")}
            for method in of
            if method.startswith(BASELINES)
        },
        "spread": {key: methods[method]["spread"] for key, method in of.items()},
        "finals": {key: [round(float(it), 4) for it in values] for key, values in finals.items()},
    }


def _spent(loss: LossArtefact, run: Path | None = None) -> Result:
    """Return what an evolution cost; the wall clock is known of those whose run is here."""
    start = loss.manifest["warm_start"]
    return {
        "epochs": loss.manifest["epochs"],
        "env_steps": loss.manifest["env_steps"],
        "start_steps": start["env_steps"] if start else 0,
        "seconds": None if run is None else round(sum(line["seconds"] for line in read_metrics(run / "metrics.jsonl"))),
    }


def _sides(family: str) -> list[float] | None:
    """Return the rewarded direction of each held-out task, in families that have two."""
    draw = jax.vmap(task_sampler(find_family(family), SEED, Split.HELD_OUT), (0, None))
    task, _ = draw(jnp.arange(TASKS), jnp.int32(0))
    return [float(it) for it in task.sign] if hasattr(task, "sign") else None


def write_held_out(name: str, result: Result) -> None:
    """Write beside a loss of the zoo what was measured of it, unless it is another loss by now."""
    if in_zoo().get(name) != result["shipped"]:
        return
    intervals = {
        key: {
            end: float(f"{value:.5g}") for end, value in bootstrap(np.array(result["finals"][finals])).to_dict().items()
        }
        for key, finals in (("return", "shipped"), ("ppo", "ppo"), ("ppo_with_more_steps", "ppo_long"))
    }
    about = {"sha256": result["shipped"], "tasks": TASKS, "seed": SEED, "steps": result["steps"]}
    write_json(zoo.ZOO / name / zoo.HELD_OUT, {**about, **intervals})


def interval(values: np.ndarray) -> str:
    """Write an interquartile mean and its interval."""
    found, digits = bootstrap(values), digits_of(values)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def digits_of(values: np.ndarray) -> int:
    """Return how many digits after the point are shown: two where returns are small."""
    return 2 if np.abs(values).max() < 20 else 1


def section(name: str, result: Result) -> list[str]:
    """Write the section of one loss."""
    finals = {key: np.array(values) for key, values in result["finals"].items()}
    steps, seeds = result["steps"], [seed for seed in result["spent"] if seed in finals]
    rows = [("**shipped loss**", steps["loss"], finals["shipped"])]
    if len(seeds) > 1:
        rows += [(f"evolution {seed}", steps["loss"], finals[seed]) for seed in seeds]
        mean = np.mean([finals[seed] for seed in seeds], axis=0)
        rows += [(f"mean of the {len(seeds)} evolutions", steps["loss"], mean)]
    if "first" in finals:
        rows += [("the shipped loss before evolution", steps["loss"], finals["first"])]
    for method, about in result["baselines"].items():
        updates = "" if method.startswith("maml") else ", no updates"
        length = 0 if method.startswith("fixed") else about["steps"]
        trained = f"trained for {about['meta_steps'] / 1e6:.0f} M steps"
        rows += [(f"{about['label']}, {trained}{updates}", length, finals[method])]
    rows += [("PPO", steps["ppo"], finals["ppo"]), ("PPO, more steps", steps["ppo_long"], finals["ppo_long"])]
    start, family = result["warm_start"], result["family"]
    lines = [
        f"## {name}" if name == family else f"## {name} ({family})",
        "",
        f"The loss sees {'the reward' if result['reward'] else 'no reward'}. "
        f"It was evolved from {'a fresh phi' if start is None else 'a warm start: a ' + start['kind']}. "
        f"PPO was {'tuned' if result['tuned'] else 'not tuned'} for this family.",
        "",
        "| learner | steps | final return, IQM (95 % interval) | mean | difference to PPO | to PPO with more steps |",
        "|---|---|---|---|---|---|",
    ]
    for label, length, values in rows:
        gaps = [paired_difference(values, finals[key]) for key in ("ppo", "ppo_long")]
        digits = digits_of(values)
        cells = [f"{gap.value:+.{digits}f} ({gap.low:+.{digits}f} to {gap.high:+.{digits}f})" for gap in gaps]
        cells = ["—", "—"] if label.startswith("PPO") else cells
        lines.append(
            f"| {label} | {length:,} | {interval(values)} | {values.mean():.{digits}f} | {cells[0]} | {cells[1]} |"
        )
    tables = [*_direction_table(result, finals), *_card_table(name), *_cost_table(result, finals)]
    return [*lines, *_spread(result), *tables, *_pictures(name)]


def _spread(result: Result) -> list[str]:
    """Say how far the interquartile mean moves with other random numbers on the same tasks."""
    spread, number = result.get("spread", {}), result.get("lifetimes", 1)
    if number == 1:
        return ["", "One lifetime per task."]
    loss, ppo, long = (f"{spread[key]:.2g}" for key in ("shipped", "ppo", "ppo_long"))
    return [
        "",
        f"Mean of {number} lifetimes per task. From one lifetime to another the interquartile mean has a standard "
        f"deviation of {loss} (loss), {ppo} (PPO) and {long} (PPO, more steps); how many tasks are computed together "
        "changes nothing.",
    ]


def _direction_table(result: Result, finals: dict[str, np.ndarray]) -> list[str]:
    if result["side"] is None:
        return []
    side, family = np.array(result["side"]), find_family(result["family"])
    lines = ["", "| task | tasks | shipped loss | PPO | PPO, more steps |", "|---|---|---|---|---|"]
    for sign in (1.0, -1.0):
        name = family.appearance.label(family.stock_task._replace(sign=sign))
        cells = [interval(finals[key][side == sign]) for key in ("shipped", "ppo", "ppo_long")]
        lines.append(f"| {name} | {(side == sign).sum()} | {' | '.join(cells)} |")
    return lines


def _card_table(name: str) -> list[str]:
    """Show what the loss card says of history and interface, if there is one."""
    path = zoo.ZOO / name / CARD
    if not path.is_file():
        return []
    card = read_card(path)
    lines = ["", f"| loss card: {card['tasks']} held-out tasks, seed {card['seed']} | return | difference |"]
    lines += ["|---|---|---|"]
    for probe in card["probes"]:
        if probe["group"] in ("control", "history", "interface"):
            digits = 2 if abs(card["probes"][0]["interval"]["value"]) < 20 else 0
            given = [it for it in (probe["interval"], probe["difference"]) if it]
            shown = [" to ".join(f"{it[key]:.{digits}f}" for key in ("low", "high")) for it in given]
            shown = [f"{it['value']:.{digits}f} ({ends})" for it, ends in zip(given, shown, strict=True)]
            lines.append(f"| {probe['name']} | {shown[0]} | {shown[1] if len(shown) > 1 else ''} |")
    return lines


def _cost_table(result: Result, finals: dict[str, np.ndarray]) -> list[str]:
    head = "| evolution | epochs | environment steps | of these the warm start | wall clock "
    lines = ["", f"{head}| mean on {CHOICE} training tasks |", "|---|---|---|---|---|---|"]
    for name, spent in result["spent"].items():
        clock = "—" if spent["seconds"] is None else f"{spent['seconds'] / 60:.0f} min"
        training = f"{spent['training']:.{digits_of(finals['shipped'])}f}" if "training" in spent else "—"
        lines.append(
            f"| {name} | {spent['epochs']} | {spent['env_steps'] / 1e6:.1f} M | {spent['start_steps'] / 1e6:.1f} M "
            f"| {clock} | {training} |"
        )
    return lines


def _pictures(name: str) -> list[str]:
    """Show the pictures that there are; the strip is made by `epg render NAME --out strip`."""
    captions = {
        f"{name}.png": "learning curves of the shipped loss and PPO, episodes of training; "
        "the tables score the last policy",
        f"{name}-fitness.png": "fitness over epochs",
        f"strip-{name}.png": "held-out task 0, the policy at stages of its lifetime",
    }
    found = [f"![{name}: {text}](images/{file})" for file, text in captions.items() if (IMAGES / file).is_file()]
    return ["", *found, ""]


def saved() -> dict[str, Result]:
    """Return what was measured so far of losses that are still in the zoo."""
    numbers = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    shipped = in_zoo()
    return {name: result for name, result in numbers.items() if shipped.get(name) == result["shipped"]}


def write_page(results: dict[str, Result]) -> None:
    """Write the page anew below its mark."""
    text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    body = [line for name, result in results.items() for line in section(name, result)]
    body = body or ["No loss has been measured yet.", ""]
    PAGE.write_text(f"{text}{MARK}\n\n" + "\n".join(body), encoding="utf-8")


def main() -> None:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("losses", nargs="*", help="by default all of the zoo and of lab/")
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    for name in [] if arguments.draw else arguments.losses or all_names():
        means = on_training_tasks(name)
        if means:
            ship(name, max(means, key=lambda run: means[run]))
        measured = {name: measure(name, means)}
        NUMBERS.write_text(json.dumps(saved() | measured) + "\n")  # others may have measured in the meantime
    results = saved()
    for name, result in results.items():
        write_held_out(name, result)
    write_page(results)


if __name__ == "__main__":
    main()
