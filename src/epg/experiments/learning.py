"""Learning curves of a loss and of PPO, at the loss's own length of lifetime and at the paper's (Figs. 5-7, 10, 11)."""

from __future__ import annotations

from functools import partial

from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import all_of, better, epg, headed, merged, panels, paper_steps, ppo, record_panel
from epg.experiments.training import Lab
from epg.viz.panels import Figure, draw_panels

SEES_NO_REWARD = "policies trained by EPG, which sees no reward, learn faster and end with higher returns than PPO's"
SEES_REWARD = "policies trained by EPG learn faster and end with higher returns than PPO's"


def learning_experiment(family: str, title: str, claim: str) -> Experiment:
    """Return the experiment of one family."""
    return Experiment(title, claim, partial(_needs, family), partial(_run, family), partial(_draw, title), verdict)


def _needs(family: str, scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(family)),)


def _run(family: str, lab: Lab) -> Data:
    family = lab.scale.family(family)
    loss, long = lab.loss(family), paper_steps(lab.scale, family)
    own = epg(loss, family).settings.lifetime.steps
    lengths: list[tuple[str, str, int | None]] = [("own", f"{own:,} steps, as evolved", None)]
    lengths += [("paper", f"{long:,} steps, as in the paper", long)] if long and long != own else []
    return merged(
        [
            record_panel(lab, key, title, [epg(loss, family, steps), ppo(loss, family, steps)])
            for key, title, steps in lengths
        ]
    )


def _draw(title: str, data: Data) -> Figure:
    return draw_panels(title, headed(data))


def verdict(data: Data) -> Verdict:
    """Judge that EPG ends above PPO at every length that was measured."""
    return all_of([better(it, "epg", "ppo") for it in panels(data).values()])
