"""Start from a saved loss: to continue with other settings, or in a family of your own."""

from pathlib import Path

from epg.core.errors import require
from epg.core.spaces import Spaces
from epg.families.registry import find_family
from epg.settings import Settings, flat, from_dict
from epg.storage.loss_artefact import load_loss
from epg.warm_starts import WarmStart


def start_from_loss(path: str | Path, settings: Settings) -> WarmStart:
    """Take phi and the observation statistics of a loss whose network is the one that the settings describe."""
    loss = load_loss(path)
    known = from_dict(Settings, loss.manifest["settings"], "the loss's settings")
    require(
        known.has_loss == settings.has_loss,
        f"the start was evolved with --evolve-init {known.evolve_init}, not {settings.evolve_init}.",
    )
    evolves = settings.evolves_init or not loss.policy_init.size
    require(evolves, "the loss to start from has an evolved initial policy: add --evolve-init epg.")
    stats, wanted = known.policy.obs_stats, settings.policy.obs_stats
    require(stats == wanted, f"the loss to start from needs --policy.obs_stats {stats}, not {wanted}.")
    differing = [
        f"--loss.{name} {' '.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in flat(known.loss).items()
        if value != flat(settings.loss)[name] and name != "window" and not name.startswith("init")
    ]
    require(not differing, f"the loss to start from has other inputs or sizes: set {' '.join(differing)}.")
    spaces = from_dict(Spaces, loss.manifest["spaces"], "the loss's spaces")
    require(spaces == find_family(settings.family).spaces, f"the loss to start from does not fit {settings.family}.")
    source = {"kind": "loss", "family": loss.manifest["family"], "sha256": loss.manifest["sha256"]}
    rest = {name: value for name, value in loss.tensors.items() if name != "phi"}
    steps = loss.manifest["env_steps"]
    return WarmStart(loss.phi, rest, steps, {**source, "env_steps": steps})
