"""Figure 11: learning curves of EPG and PPO on fetch-reach."""

from epg.experiments.learning import SEES_NO_REWARD, learning_experiment

EXPERIMENT = learning_experiment("fetch-reach", "Fetch reaching: EPG and PPO", SEES_NO_REWARD)
