"""Measure every family with `epg bench` and write docs/performance.md from it.

.venv/bin/python tools/performance.py                     all families, about 40 minutes on 2 cores
.venv/bin/python tools/performance.py random-hopper       these only; the others keep their numbers
.venv/bin/python tools/performance.py --updates 32        in shorter lifetimes: 2 to 4 minutes a family
.venv/bin/python tools/performance.py --draw              write the page again from docs/performance.json
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from epg.families.registry import REGISTRY

NUMBERS, PAGE = Path("docs/performance.json"), Path("docs/performance.md")
MARK = "<!-- the table below is written by tools/performance.py -->"
COLUMNS = {
    "lifetime_steps_per_s": ("lifetime, steps/s", "{:,.0f}"),
    "raw_steps_per_s": ("physics alone", "{:,.0f}"),
    "stock_steps_per_s": ("stock physics alone", "{:,.0f}"),
    "time_over_raw": ("time / physics alone", "{:.2f}"),
    "rate_over_stock": ("rate / stock physics", "{:.2f}"),
    "two_process_speedup": ("two processes / one", "{:.2f}"),
    "peak_memory_mb": ("peak MB", "{:,.0f}"),
}
PARTS = ("act", "physics", "update", "rest", "raw", "stock")


def measure(family: str, updates: int | None) -> dict:
    """Run `epg bench` in a process of its own, so that peak memory is this family's."""
    length = [] if updates is None else ["--updates", str(updates)]
    command = [sys.executable, "-m", "epg", "bench", family, "--json", *length]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    del result["runs"]
    return result | {"date": time.strftime("%Y-%m-%d")}


def table(results: dict[str, dict]) -> str:
    """Return both tables in Markdown."""
    lines = [
        "| family | " + " | ".join(label for label, _ in COLUMNS.values()) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for family, result in results.items():
        cells = ["—" if result[name] is None else form.format(result[name]) for name, (_, form) in COLUMNS.items()]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Microseconds a step:",
        "",
        "| family | " + " | ".join(PARTS) + " | setting |",
        "|---" * (len(PARTS) + 2) + "|",
    ]
    for family, result in results.items():
        parts = result["microseconds_per_step"]
        if "act" in parts:
            cells = [f"{parts[name]:.1f}" if name in parts else "—" for name in PARTS]
            lines.append(f"| {family} | " + " | ".join(cells) + f" | {result['setting'].split(', policy')[0]} |")
    last = next(reversed(results.values()))
    return "\n".join([*lines, "", f"Machine: {last['machine']}, measured {last['date']}.", ""])


def main() -> None:
    """Measure what is asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--updates", type=int, help="length of the lifetimes; by default the paper's")
    arguments = parser.parse_args()
    results = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for family in [] if arguments.draw else arguments.families or REGISTRY:
        results[family] = measure(family, arguments.updates)
        results = {name: results[name] for name in REGISTRY if name in results}
        NUMBERS.write_text(json.dumps(results, indent=1) + "\n")
    text = PAGE.read_text(encoding="utf-8").split(MARK)[0]
    PAGE.write_text(f"{text}{MARK}\n\n{table(results)}", encoding="utf-8")


if __name__ == "__main__":
    main()
