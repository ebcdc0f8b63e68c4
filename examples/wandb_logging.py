"""Log an evolution, and then a lifetime of your own loop, with Weights & Biases: both are callbacks."""

from dataclasses import asdict

import gymnasium
import wandb

import epg

if __name__ == "__main__":
    run = wandb.init(project="epg", config=asdict(epg.preset("point-goal", "smoke")))
    evolved = epg.evolve("point-goal", preset="smoke", on_epoch=lambda epoch: run.log({"epoch": asdict(epoch)}))

    env = gymnasium.make("epg/PointGoal-v0", task_seed=7)
    learner = epg.Learner(
        evolved.run,
        env.observation_space,
        env.action_space,
        on_update=lambda update: run.log({"update": asdict(update)}),
    )
    observation, _ = env.reset(seed=0)
    while not learner.done:
        action = learner.act(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        learner.observe(observation, action, reward, terminated, truncated, following)
        observation = env.reset()[0] if terminated or truncated else following
    run.finish()
