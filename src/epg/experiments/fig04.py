"""Figure 4: learning to hop forwards with different bodies."""

from epg.experiments.films import HOPPED, film_experiment

EXPERIMENT = film_experiment(
    "random-hopper",
    "RandomHopper: learning to hop from a random policy, a body per row",
    "policies trained by EPG learn to hop forwards on hoppers of different bodies and physics",
    tasks=3,
    moment=0.6,
    note="a row per body; left to right: one moment of an episode as learning progresses",
    metres=HOPPED,
)
