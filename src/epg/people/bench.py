"""How fast lifetimes are, on one core, with the paper's network sizes: N = 128, M = 32 unless said otherwise."""

from __future__ import annotations

import platform
import statistics
import time
from dataclasses import replace
from typing import Any

from epg.people.presets import preset
from epg.words.runtime import use_single_thread
from epg.words.settings import GuidanceSettings, LifetimeSettings, LossSettings, PolicySettings, Settings, require

LIFETIMES = 32


def bench(family: str, repeats: int = 5) -> dict[str, Any]:
    """Time whole lifetimes (training and scoring; only training steps are counted), with and without PPO."""
    use_single_thread()
    require(repeats > 0, f"repeats must be above zero, not {repeats}.")
    seen = preset(family, "laptop").loss
    settings = Settings(
        family=family,
        policy=PolicySettings(),
        loss=LossSettings(window=128, reward=seen.reward, products=seen.products),
        lifetime=LifetimeSettings(steps_per_update=32, updates=64),
    )
    guided = replace(settings, guidance=GuidanceSettings(learner="ppo", epochs=10))
    rates = {
        "learned loss": _rates(settings, epoch=0, repeats=repeats),
        "learned loss guided by PPO": _rates(guided, epoch=5, repeats=repeats),
    }
    return {
        "family": family,
        "lifetime_steps_per_s": rates["learned loss"]["median"],
        "rates": rates,
        "setting": f"{LIFETIMES} lifetimes of {settings.lifetime.steps} steps at once, N 128, M 32, "
        f"policy 64 x 64, paper's loss sizes; {platform.processor() or platform.machine()}",
    }


def _rates(settings: Settings, epoch: int, repeats: int) -> dict[str, float]:
    import numpy as np

    from epg.lifetime.learner import Learned
    from epg.methods.shards import build, find_family
    from epg.words.keys import Stream, run_key
    from epg.words.settings import to_dict

    evaluate = build(to_dict(settings))
    learned = Learned(settings.loss, settings.policy, find_family(settings.family).spaces)
    phi = np.asarray(learned.initial_phi(run_key(0, Stream.LOSS)))
    request = {
        "phi": np.tile(phi, (LIFETIMES, 1)),
        "task": np.arange(LIFETIMES, dtype=np.int32),
        "epoch": np.array(epoch, np.int32),
        "alpha": np.array(settings.guidance.alpha(epoch), np.float32),
    }
    evaluate(request)  # compiles
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        evaluate(request)
        rates.append(LIFETIMES * settings.lifetime.steps / (time.perf_counter() - began))
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}
