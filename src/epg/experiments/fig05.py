"""Figure 5: learning curves of EPG and PPO on random-hopper."""

from epg.experiments.learning import SEES_NO_REWARD, learning_experiment

EXPERIMENT = learning_experiment("random-hopper", "RandomHopper: EPG and PPO", SEES_NO_REWARD)
