"""A family of your own from Gymnasium: Pendulum-v1 on a planet whose gravity it cannot see."""

import gymnasium
import numpy as np

import epg


def make(seed):
    """Return Pendulum-v1 with gravity U(2, 15) m/s², drawn from the seed: the seed is the task."""
    return gymnasium.make("Pendulum-v1", g=np.random.default_rng(seed).uniform(2.0, 15.0))


PLANETS = epg.gym_family("planets", make, horizon=64, summary="Pendulum-v1 under unknown gravity")

if __name__ == "__main__":
    for check in epg.check("my_gym_family:PLANETS"):
        print("ok  " if check.passed else "FAIL", check.name, check.problem or "")
    print("loss in", epg.evolve("my_gym_family:PLANETS", preset="smoke", executor="inline").run)
