"""Train in one's own loop with the evolved loss, act with the policy, film it."""

from planets import make

import epg

if __name__ == "__main__":
    env = make(7)
    learner = epg.Learner("runs/planets", env.observation_space, env.action_space, seed=0)
    observation, _ = env.reset(seed=learner.reset_seed)
    while not learner.done:
        action = learner.act(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        learner.observe(observation, action, reward, terminated, truncated, following)
        observation = env.reset(seed=learner.reset_seed)[0] if terminated or truncated else following
    print("policy in", learner.policy.save("runs/policy"))
