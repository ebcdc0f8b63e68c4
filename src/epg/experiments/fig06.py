"""Figure 6: learning curves of EPG and PPO on random-walker."""

from epg.experiments.learning import SEES_NO_REWARD, learning_experiment

EXPERIMENT = learning_experiment("random-walker", "RandomWalker: EPG and PPO", SEES_NO_REWARD)
