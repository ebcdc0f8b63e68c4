"""Draw the two diagrams of docs/architecture.md: docs/images/architecture.svg and docs/images/transition.svg.

.venv/bin/python tools/draw_diagrams.py

Needs nothing but Python. An arrow of the first diagram is an import; tests/test_docs.py compares them with the source.
"""

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
INK, PALE, LINE = "#1f2933", "#52606d", "#7b8794"
BLUE, GREEN, ORANGE, PURPLE, GREY = "#dbeafe", "#dcfce7", "#ffedd5", "#ede9fe", "#e5e7eb"

WIDTH, HEIGHT, ROW = 244, 58, 84  # of a package, and the distance between two rows

PACKAGES = {  # name: (centre x, row, colour, what it holds)
    "cli": (600, 0, BLUE, "one file per group of commands"),
    "api": (600, 1, BLUE, "the verbs, in Python"),
    "envs": (150, 1, BLUE, "families as Gymnasium envs"),
    "experiments": (600, 2, GREEN, "the paper's figures"),
    "viz": (400, 3, GREEN, "curves, report, film, camera"),
    "bench": (770, 3, GREEN, "steps per second"),
    "zoo": (1060, 3, GREEN, "shipped losses"),
    "evaluation": (400, 4, GREEN, "learn, compare, probe, checker"),
    "recipes": (1060, 4, GREEN, "one file per family: presets"),
    "baselines": (400, 5, GREEN, "fixed policy, MAML, RL²"),
    "evolution": (600, 6, ORANGE, "Algorithm 1: loop.py, strategy.py"),
    "executors": (330, 7, GREY, "inline, local processes, Ray"),
    "warm_starts": (915, 7, ORANGE, "a first phi that is not fresh"),
    "lifetime": (600, 8, ORANGE, "Algorithm 2: update.py, 2 drivers"),
    "learners": (600, 9, ORANGE, "learned loss, PPO, Eq. 10"),
    "families": (1060, 9, PURPLE, "distributions over tasks"),
    "loss": (600, 10, ORANGE, "Fig. 2, Eqs. 8 and 9"),
    "simulators": (1060, 10, PURPLE, "MuJoCo, Gymnasium"),
    "policies": (600, 11, ORANGE, "MLP, linear, recurrent"),
    "storage": (330, 12.35, GREY, "safetensors, JSON, run directories"),
    "settings": (620, 12.35, GREY, "one file per section"),
    "core": (910, 12.35, GREY, "records, random keys, errors"),
}
IMPORTS = (  # those that do not follow from two others; settings, core and storage are imported by nearly all
    ("cli", "api"),
    ("api", "experiments"),
    ("api", "bench"),
    ("experiments", "viz"),
    ("experiments", "zoo"),
    ("envs", "viz"),
    ("envs", "lifetime"),
    ("viz", "evaluation"),
    ("bench", "recipes"),
    ("bench", "evolution"),
    ("evaluation", "baselines"),
    ("baselines", "evolution"),
    ("evolution", "executors"),
    ("evolution", "warm_starts"),
    ("evolution", "lifetime"),
    ("recipes", "families"),
    ("warm_starts", "learners"),
    ("warm_starts", "families"),
    ("lifetime", "learners"),
    ("lifetime", "families"),
    ("learners", "loss"),
    ("loss", "policies"),
    ("families", "simulators"),
    ("executors", "storage"),
)

RECORDS = ("Rollout", "Window", "Experience", "policy", "ShardRequest", "ShardResult", "checkpoint")
INNER = (  # one transition: title, lines, file
    ("simulator", ("advance(ctrl)", "→ readout"), "simulators/"),
    ("env_step", ("reward, ends, reset,", "observation, action"), "lifetime/env_step.py"),
    ("Rollout", ("the newest", "M transitions"), "core/types.py"),
    ("Window", ("the last N transitions,", "zero-padded"), "lifetime/window.py"),
    ("Experience", ("window and rollout,", "normalized"), "lifetime/window.py"),
    ("learner.update", ("gradient steps on", "theta and memory"), "learners/base.py"),
    ("policy", ("theta for the", "next M steps"), "policies/mlp.py"),
)
OUTER = (  # one epoch
    ("ask", ("V perturbed", "loss parameters"), "evolution/strategy.py"),
    ("ShardRequest", ("phi, task index,", "epoch, alpha"), "evolution/worker.py"),
    ("executor", ("any process,", "any order"), "executors/"),
    ("S lifetimes", ("train (above),", "then score"), "lifetime/batch.py"),
    ("ShardResult", ("fitness, nonfinite,", "diverged, env_steps"), "evolution/worker.py"),
    ("shape_fitness", ("ranks of the", "V losses"), "evolution/fitness.py"),
    ("tell", ("one Adam step", "on phi (Eq. 7)"), "evolution/strategy.py"),
    ("checkpoint", ("ES state by name,", "metrics"), "storage/run.py"),
)


def text(x: float, y: float, content: str, size: float = 12, colour: str = INK, extra: str = "") -> str:
    """Return centred text."""
    style = f"font-size='{size}' fill='{colour}' text-anchor='middle' {extra}"
    return f"<text x='{x}' y='{y}' {style}>{escape(content)}</text>"


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a rounded box."""
    return f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='{colour}' stroke='{LINE}'/>"


def arrow(path: str, title: str = "") -> str:
    """Return a line with an arrowhead; a browser shows the title when the mouse is on it."""
    named = f"<title>{escape(title)}</title>" if title else ""
    style = f"fill='none' stroke='{LINE}' stroke-width='1.6' marker-end='url(#head)'"
    return f"<path d='{path}' {style}>{named}</path>"


def frame(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a dashed frame."""
    return box(x, y, width, height, colour).replace("/>", " stroke-dasharray='5 4'/>")


def page(width: int, height: int, parts: list[str], label: str) -> str:
    """Return a whole SVG on white."""
    head = (
        "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='8' markerHeight='8' orient='auto'>"
        f"<path d='M0 0 L10 5 L0 10 z' fill='{LINE}'/></marker></defs>"
    )
    opening = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    )
    opening += f" role='img' aria-label='{escape(label)}' {FONT}>"
    return "\n".join([opening, f"<rect width='{width}' height='{height}' fill='white'/>", head, *parts, "</svg>", ""])


def top(name: str) -> float:
    """Return the y of a package's upper edge."""
    return 24 + PACKAGES[name][1] * ROW


def import_arrow(above: str, below: str) -> str:
    """Return the arrow of an import, from the lower edge of one package to the upper edge of another."""
    x0, x1 = PACKAGES[above][0], PACKAGES[below][0]
    y0, y1 = top(above) + HEIGHT, top(below)
    if above == "envs" and below == "lifetime":  # around everything between them
        y1 += HEIGHT / 2
        path = f"M{x0} {y0} V{y1 - 40} Q{x0} {y1} {x0 + 40} {y1} H{x1 - WIDTH / 2 - 2}"
    else:
        aside = max(-100, min(100, (x1 - x0) / 3))  # leave and arrive on the side that faces the other
        path = f"M{x0 + aside} {y0} L{x1 - aside} {y1 - 2}"
    return arrow(path, f"{above} imports {below}")


def architecture() -> str:
    """Draw the packages and what imports what."""
    parts = [import_arrow(*pair) for pair in IMPORTS]
    bar = 24 + 12 * ROW
    parts.append(frame(120, bar - 4, 960, 110, "none"))
    parts.append(text(600, bar + 15, "imported by nearly all packages above; these arrows are left out", 12, PALE))
    for name, (x, _, colour, content) in PACKAGES.items():
        y = top(name)
        parts.append(box(x - WIDTH / 2, y, WIDTH, HEIGHT, colour))
        parts.append(text(x, y + 24, name, 16, INK, "font-weight='bold'"))
        parts.append(text(x, y + 44, content, 12, PALE))
    legend = (
        (BLUE, "what a user calls"),
        (GREEN, "results and presets"),
        (ORANGE, "the paper's method"),
        (PURPLE, "the worlds"),
        (GREY, "machinery"),
    )
    for index, (colour, meaning) in enumerate(legend):
        y = 814 + 26 * index
        parts.append(box(14, y, 22, 16, colour))
        parts.append(text(44, y + 13, meaning, 12, INK).replace("middle", "start"))
    parts.append(text(14, 800, "An arrow is an import:", 12, INK).replace("middle", "start"))
    return page(1200, 24 + int(13.35 * ROW), parts, "Packages of epg in layers; imports go downward")


def chain(steps: tuple, y: float, width: float, gap: float, left: float) -> tuple[list[str], list[float]]:
    """Draw boxes from left to right with arrows between them; return them and the boxes' centres."""
    parts, centres = [], []
    for index, (title, lines, file) in enumerate(steps):
        x = left + index * (width + gap)
        centres.append(x + width / 2)
        parts.append(box(x, y, width, 96, BLUE if title in RECORDS else ORANGE))
        parts.append(text(centres[-1], y + 23, title, 14, INK, "font-weight='bold'"))
        parts += [text(centres[-1], y + 43 + 16 * row, line, 11.5) for row, line in enumerate(lines)]
        parts.append(text(centres[-1], y + 85, file, 10.5, PALE))
        if index:
            parts.append(arrow(f"M{x - gap} {y + 48} H{x - 2}"))
    return parts, centres


def transition() -> str:
    """Draw the way of one transition, and one epoch."""
    parts = [text(20, 34, "One lifetime (Algorithm 2): the way of a transition", 16, INK, "font-weight='bold'")]
    inner, x = chain(INNER, 100, 152, 26, 20)
    parts += inner
    parts.append(arrow(f"M{x[1]} 100 C{x[1]} 58 {x[0]} 58 {x[0]} 98"))
    parts.append(text((x[0] + x[1]) / 2, 60, "ctrl: every step, M times", 12, PALE))
    parts.append(arrow(f"M{x[6]} 196 C{x[6]} 262 {x[1]} 262 {x[1]} 198"))
    parts.append(
        text((x[1] + x[6]) / 2, 238, "acts for the next M steps: U / M times; then scoring trajectories", 12, PALE)
    )
    parts.append(text(20, 314, "One epoch (Algorithm 1)", 16, INK, "font-weight='bold'"))
    outer, x = chain(OUTER, 376, 136, 18, 12)
    parts.append(frame(x[3] - 68 - 9, 356, 136 + 18, 136, "#f8fafc"))
    parts += outer
    parts.append(text(x[3], 346, "worker processes", 12, PALE))
    parts.append(text(x[3], 510, "across the dashed line:", 12, PALE))
    parts.append(text(x[3], 526, "records as safetensors bytes", 12, PALE))
    parts.append(arrow(f"M{x[7]} 472 C{x[7]} 590 {x[0]} 590 {x[0]} 474"))
    parts.append(text((x[0] + x[7]) / 2, 578, "next epoch", 12, PALE))
    for index, (colour, meaning) in enumerate(((ORANGE, "code"), (BLUE, "data"))):
        parts.append(box(1090 + 80 * index, 22, 22, 16, colour))
        parts.append(text(1135 + 80 * index, 35, meaning))
    titles = [part.replace("middle", "start") if "font-size='16'" in part else part for part in parts]
    return page(1250, 600, titles, "One transition through a lifetime, and one epoch of evolution")


def main() -> None:
    """Write both."""
    (IMAGES / "architecture.svg").write_text(architecture(), encoding="utf-8")
    (IMAGES / "transition.svg").write_text(transition(), encoding="utf-8")


if __name__ == "__main__":
    main()
