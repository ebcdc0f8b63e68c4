"""Gradients of the shipped losses, measured once for the correlation with PPO (section 4.1) and for Figure 21."""

from __future__ import annotations

from functools import partial

from epg.evaluation.gradients import LossGradients, measure_gradients
from epg.experiments.base import SEED, Need, Scale
from epg.experiments.training import Lab
from epg.zoo import zoo_names

PAPER = ("random-hopper", "random-walker", "random-reacher", "fetch-reach")
"""Families of Figure 21, whose losses see no reward."""


def needs(scale: Scale) -> tuple[Need, ...]:
    """Need every shipped loss; at paper scale those of the paper's families, at smoke scale one."""
    names = {"smoke": ["point-goal"], "laptop": zoo_names(), "paper": list(PAPER)}[scale.name]
    return tuple(Need("loss", name) for name in names)


def measure(lab: Lab) -> dict[str, LossGradients]:
    """Measure the gradients of each loss, by family."""
    found = {}
    for need, loss in lab.losses.items():
        lab.say(f"{need.family}: gradients in {lab.scale.tasks} lifetimes")
        key = "gradients", need.family, loss.phi.tobytes()
        found[need.family] = lab.once(key, partial(measure_gradients, loss, need.family, lab.scale.tasks, SEED))
    return found
