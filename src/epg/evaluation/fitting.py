"""Does a loss fit? Its artefact against the family or the spaces in which it shall train."""

from __future__ import annotations

from dataclasses import replace

from epg.core.errors import BadInput, require
from epg.core.spaces import Spaces
from epg.evolution.loop import stats_of
from epg.evolution.vector import EvolvedVector
from epg.families.registry import find_family, is_registered
from epg.learners.learned import LearnedLoss
from epg.lifetime.normalizer import Constants, FixedStats
from epg.settings import Settings, flat, from_dict
from epg.storage.loss_artefact import LossArtefact


def settings_of(loss: LossArtefact) -> Settings:
    """Return the settings a loss was evolved with."""
    return from_dict(Settings, loss.manifest["settings"], "the loss's settings")


def obs_stats_of(loss: LossArtefact) -> FixedStats | None:
    """Return the fixed observation statistics of a loss, if it has any."""
    try:
        return stats_of(loss.tensors, int(loss.manifest["spaces"]["observation"]))
    except (ValueError, KeyError) as error:
        raise BadInput(f"the loss is damaged: {error}.") from None


def constants_of(family: str) -> Constants:
    """Return the observations that are constant within a lifetime of a family, as far as it is known here."""
    constants: Constants = find_family(family).constant_inputs if is_registered(family) else ()
    return constants


def fitting_learner(loss: LossArtefact, family: str) -> tuple[Settings, LearnedLoss]:
    """Return the settings and the learner of a loss, once everything in the artefact agrees with the family."""
    check_family(loss, family)
    settings, learner = loss_learner(loss, find_family(family).spaces, family)
    return replace(settings, family=family), learner


def loss_learner(loss: LossArtefact, spaces: Spaces, where: str) -> tuple[Settings, LearnedLoss]:
    """Return the settings and the learner of a loss, once it fits the spaces of `where`."""
    vector = check_spaces(loss, spaces, where)
    require(vector.settings.has_loss, "there is no loss in it, only an initial policy that was evolved for PPO.")
    return vector.settings, vector.learned


def check_family(loss: LossArtefact, family: str) -> None:
    """Refuse a loss that does not fit a family, or was evolved on another version of it."""
    found = find_family(family)
    check_spaces(loss, found.spaces, family)
    require(
        loss.manifest["family"] != family or loss.manifest["family_version"] == found.version,
        f"the loss was evolved on version {loss.manifest['family_version']} of {family}, this is {found.version}.",
    )


def check_spaces(loss: LossArtefact, spaces: Spaces, where: str) -> EvolvedVector:
    """Return how the evolved vector of a loss is laid out, once it fits the spaces of `where`."""
    settings, evolved_for = settings_of(loss), from_dict(Spaces, loss.manifest["spaces"], "the loss's spaces")
    unused = set() if "task-features" in settings.loss.inputs else {"features"}
    differing = [
        f"{name} {value} instead of {flat(spaces)[name]}"
        for name, value in flat(evolved_for).items()
        if value != flat(spaces)[name] and name not in unused
    ]
    made_for = loss.manifest["family"]
    require(not differing, f"the loss does not fit {where}, it was evolved for {made_for}: {', '.join(differing)}.")
    vector = EvolvedVector(settings, spaces)
    try:
        sizes = vector.sizes
    except (TypeError, ValueError, OverflowError) as error:  # sizes that no array can have
        raise BadInput(f"the loss's settings describe no network: {error}.") from error
    for tensor, size, of in zip((loss.phi, loss.policy_init), sizes, ("", " of its initial policy"), strict=True):
        require(len(tensor) == size, f"the loss has {len(tensor)} parameters{of} where its settings need {size}.")
    return vector
