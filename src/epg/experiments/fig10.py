"""Figure 10: learning curves of EPG and PPO on goal-ant."""

from epg.experiments.learning import SEES_REWARD, learning_experiment

EXPERIMENT = learning_experiment("goal-ant", "GoalAnt: EPG and PPO", SEES_REWARD)
