"""Figure 12: lifetimes many times longer than those of evolution, without and with the policy pool."""

from dataclasses import replace
from typing import Any

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import all_of, at_least, better, epg, headed, merged, panels, record_panel
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

FAMILY = "random-hopper"
TITLE = "RandomHopper: lifetimes beyond the evolved length"
LENGTHS = (1, 2, 4, 12)
POOL: dict[str, Any] = {"evolution.pool": 256}
PANELS: tuple[
    tuple[str, str, dict[str, Any], bool], ...
] = (  # key, title, settings of the evolution, whether the schedule of step sizes is stretched
    ("A", "without pool, step sizes stretched", {}, True),
    ("A as evolved", "without pool, step sizes as evolved", {}, False),
    ("B", "with pool, step sizes stretched", POOL, True),
)


def _needs(scale: Scale) -> tuple[Need, ...]:
    kinds = ((),) if scale.smoke else ((), tuple(POOL.items()))
    return tuple(Need("loss", scale.family(FAMILY), None, changes) for changes in kinds)


def _run(lab: Lab) -> Data:
    family, parts = lab.scale.family(FAMILY), []
    for key, title, changes, stretch in PANELS:
        loss = lab.loss(family, **({} if lab.scale.smoke else changes))
        own = epg(loss, family)
        methods = [own]
        for times in (2,) if lab.scale.smoke else LENGTHS[1:]:
            longer = epg(loss, family, times * own.settings.lifetime.steps, stretch=stretch)
            methods.append(replace(longer, name=f"epg-{times}", label=f"EPG, {times} x"))
        parts.append(record_panel(lab, key, title, methods))
    return merged(parts)


def _draw(data: Data) -> Figure:
    return draw_panels(TITLE, headed(data), finals=True)


def _verdict(data: Data) -> Verdict:
    """Judge that twelve times the length ends below once without the pool, and not below with it."""
    found = panels(data)
    longest = list(found["A"].methods)[-1]
    without, with_pool = better(found["A"], "epg", longest), at_least(found["B"], longest, "epg")
    return all_of(
        [
            replace(it, measured=f"{name}, {it.measured}")
            for name, it in (("without pool", without), ("with it", with_pool))
        ]
    )


EXPERIMENT = Experiment(
    TITLE,
    "returns decline past the evolved length, unless lifetimes of evolution began with policies of earlier ones",
    _needs,
    _run,
    _draw,
    _verdict,
)
