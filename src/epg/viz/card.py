"""The picture of a loss card: one bar per probe, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from epg.storage.card_file import PROBE_GROUPS
from epg.viz.curves import STYLE, save_figure

GROUPS = dict(zip(PROBE_GROUPS, ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#E69F00"), strict=True))


def draw_card(card: dict[str, Any], directory: Path) -> list[Path]:
    """Draw a loss card into `directory`/figures, as PNG, SVG and PDF."""
    probes = card["probes"]
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(7, 0.9 + 0.3 * len(probes)), layout="constrained")
        axes = figure.subplots()
        for row, probe in enumerate(probes):
            interval = probe["interval"]
            value, low, high = (interval[name] for name in ("value", "low", "high"))
            axes.barh(row, value, color=GROUPS[probe["group"]], alpha=0.75, height=0.7)
            axes.plot([low, high], [row, row], color="0.2", linewidth=1.2)
        axes.axvline(probes[0]["interval"]["value"], color="0.4", linewidth=0.8, linestyle="--")
        axes.axvline(0.0, color="0.2", linewidth=0.8)
        axes.set_yticks(range(len(probes)), [f"{it['name']} ({it['steps']:,} steps)" for it in probes])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"final return on {card['tasks']} held-out tasks: interquartile mean, 95 % interval")
        figure.suptitle(f"{card['family']}: loss card", x=0.01, ha="left", fontsize=10.5, parse_math=False)
        return save_figure(figure, directory, "loss_card")
