"""Figure 3: learning to reach random targets in the Fetch environment."""

from epg.experiments.films import film_experiment

EXPERIMENT = film_experiment(
    "fetch-reach",
    "Fetch: learning to reach random targets",
    "policies trained by EPG learn to reach random targets",
    tasks=3,
    moment=1.0,
    note="a row per target; left to right: the last picture of an episode as learning progresses",
)
