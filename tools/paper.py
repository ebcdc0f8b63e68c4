"""Write docs/paper.md, the reproduction page, from figures that were made with `epg figure N`.

.venv/bin/python tools/paper.py                     collect runs/figures/laptop, then write the page
.venv/bin/python tools/paper.py DIRECTORY           collect another directory of figures
.venv/bin/python tools/paper.py --draw              write the page again from docs/paper.json

Sentences and numbers come from the figures' own files; nothing is judged here. NOTES has what their data cannot say.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from epg.experiments.registry import NAMES, find_experiment, run_name

NUMBERS, PAGE, IMAGES = Path("docs/paper.json"), Path("docs/paper.md"), Path("docs/images")
KEPT = "figure", "scale", "title", "claim", "measured", "verdict", "facts"
HEAD = """# The paper's figures, checked

Every figure of the paper's experiments is a command: `epg figure N` measures, draws in the paper's layout, and says
whether the paper's claim holds here. This page is written by `tools/paper.py` from saved results.

Scale `laptop`: losses of the zoo or of the `laptop` recipes, 20 held-out tasks (seed 20261118), one lifetime per task
as in the paper, PPO tuned for the family. A verdict is computed from the data: unless its sentence says otherwise, the
95 % bootstrap interval of a paired difference over tasks must lie on the claimed side of zero.

"""

NOTES = {
    "7": "PPO at 65,536 steps has the settings that were tuned for 8192.",
    "17": "A return of 250 is 2 m of way, with every architecture alike.",
}


def collect(directory: Path) -> dict[str, Any]:
    """Return what the figures in a directory came to, and copy their pictures into the docs."""
    found = {}
    for path in sorted(directory.glob("*/figure.json")):
        saved = json.loads(path.read_text(encoding="utf-8"))
        name = saved["figure"]
        found[name] = {key: saved[key] for key in KEPT}
        shutil.copy(path.parent / "figures" / f"{run_name(name)}.png", IMAGES / f"paper-{run_name(name)}.png")
    return found


def heading(name: str) -> str:
    """Return the heading of a figure's section."""
    return f"Figure {name}" if name.isdecimal() else "Correlation with PPO's gradient (section 4.1)"


def section(name: str, result: dict[str, Any] | None) -> list[str]:
    """Write the section of one figure; one that was not made says so."""
    command = f"epg figure {name}"
    lines = [f"## {heading(name)}", ""]
    if result is None:
        return [*lines, f"Not run at this scale yet. Claim: {find_experiment(name).claim}. Command: `{command}`.", ""]
    picture = f"![{result['title']}](images/paper-{run_name(name)}.png)"
    verdict = f"**{result['verdict'][0].upper()}{result['verdict'][1:]}.**"
    lines += [f"**Claim**: {result['claim']}.", "", f"**Measured**: {result['measured']}.", "", verdict, ""]
    lines += [NOTES[name], ""] if name in NOTES else []
    return [*lines, picture, "", *tables(result["facts"]), *costs(result["facts"]), f"Command: `{command}`.", ""]


def tables(facts: dict[str, Any]) -> list[str]:
    """Write a table per panel of recorded lifetimes."""
    lines: list[str] = []
    for panel in facts.get("panels", {}).values():
        summary = panel["summary"]
        lines += [f"{panel['title']} ({summary['family']}, {summary['tasks']} tasks):", ""]
        lines += ["| method | steps | updates | final return, IQM (95 % interval) |", "|---|---|---|---|"]
        for it in summary["methods"].values():
            value, low, high = (it["interval"][end] for end in ("value", "low", "high"))
            shown = f"{value:.4g} ({low:.4g} to {high:.4g})"
            lines.append(f"| {it['label']} | {it['steps']:,} | {it['updates']:,} | {shown} |")
        lines.append("")
    return lines


def costs(facts: dict[str, Any]) -> list[str]:
    """Say what was trained for a figure, and with how many environment steps."""
    each = [f"{name} {it['env_steps'] / 1e6:.1f} M" for name, it in facts.get("trained", {}).items()]
    return [f"Environment steps of training: {', '.join(each)}.", ""] if each else []


def page(results: dict[str, Any]) -> str:
    """Write the page: a table of verdicts, then a section per figure."""
    lines = ["| figure | claim | verdict |", "|---|---|---|"]
    for name in NAMES:
        verdict = results[name]["verdict"] if name in results else "not run"
        verdict += ", but see its note" if name in NOTES and name in results else ""
        lines.append(f"| {heading(name)} | {find_experiment(name).claim} | {verdict} |")
    body = [line for name in NAMES for line in section(name, results.get(name))]
    return HEAD + "\n".join([*lines, "", *body]) + "\n"


def main() -> None:
    """Collect, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("runs/figures/laptop"))
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    if not arguments.draw:
        results |= collect(arguments.directory)
        NUMBERS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
