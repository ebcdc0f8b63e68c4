"""Figure 7: learning curves of EPG and PPO on random-reacher."""

from epg.experiments.learning import SEES_NO_REWARD, learning_experiment

EXPERIMENT = learning_experiment("random-reacher", "RandomReacher: EPG and PPO", SEES_NO_REWARD)
