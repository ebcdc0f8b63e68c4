"""Figure 16: KL of each update under the loss before evolution and under the evolved one."""

from dataclasses import replace

import numpy as np

from epg.core.rng import Stream, run_key
from epg.evaluation.fitting import fitting_learner
from epg.experiments.base import Data, Experiment, Need, Scale, Verdict
from epg.experiments.lifetimes import epg, panels, record_panel
from epg.experiments.training import Lab
from epg.storage.loss_artefact import LossArtefact
from epg.viz.panels import Figure, Series, draw_series

FAMILY = "random-hopper"
TITLE = "RandomHopper: KL of each update, before and after evolution"


def _needs(scale: Scale) -> tuple[Need, ...]:
    return (Need("loss", scale.family(FAMILY)),)


def first_loss(loss: LossArtefact, family: str) -> LossArtefact:
    """Return the loss as it was before evolution: the first phi of its seed."""
    settings, learner = fitting_learner(loss, family)
    return replace(loss, phi=np.asarray(learner.initial_phi(run_key(settings.seed, Stream.LOSS))))


def _run(lab: Lab) -> Data:
    family = lab.scale.family(FAMILY)
    loss = lab.loss(family)
    first = replace(epg(first_loss(loss, family), family), name="first", label="loss before evolution", meta_steps=0)
    return record_panel(lab, "kl", "first and evolved loss", [first, replace(epg(loss, family), label="evolved loss")])


def _draw(data: Data) -> Figure:
    shown = {}
    for it in panels(data)["kl"].methods.values():
        low, high = np.nanquantile(it.kl, [0.25, 0.75], axis=0)
        shown[it.label] = [
            Series("one lifetime (line), all (band)", 1.0 + np.arange(it.kl.shape[1]), it.kl[0], low, high)
        ]
    return draw_series(
        TITLE, shown, "updates", "KL per update (nats)", "line: held-out task 0; band: interquartile range"
    )


def _verdict(data: Data) -> Verdict:
    """Judge that a usual update of the evolved loss is smaller, and its largest ones stand out more."""
    kl = {name: it.kl[it.finite] for name, it in panels(data)["kl"].methods.items()}
    usual = {name: float(np.median(it)) for name, it in kl.items()}
    spikes = {name: float(np.median(it.max(axis=1) / np.median(it, axis=1))) for name, it in kl.items()}
    measured = (
        f"median KL {usual['first']:.3g} before and {usual['epg']:.3g} after evolution; largest update of a lifetime / "
        f"its median {spikes['first']:.3g} before and {spikes['epg']:.3g} after"
    )
    return Verdict(measured, usual["epg"] < usual["first"] and spikes["epg"] > spikes["first"])


EXPERIMENT = Experiment(
    TITLE,
    "updates by the evolved loss usually change the policy less than those of the first loss, with occasional spikes",
    _needs,
    _run,
    _draw,
    _verdict,
)
