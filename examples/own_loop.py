"""A loss in your own loop: any Gymnasium environment with the spaces that the loss was evolved for."""

import gymnasium

import epg


def train(loss, env, seed=0):
    learner = epg.Learner(loss, env.observation_space, env.action_space, seed)
    returns, total = [], 0.0
    observation, _ = env.reset(seed=learner.reset_seed)
    while not learner.done:
        action = learner.act(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        learner.observe(observation, action, reward, terminated, truncated, following)  # learns every M steps
        observation, total = following, total + reward
        if terminated or truncated:
            returns.append(total)
            observation, total = env.reset(seed=learner.reset_seed)[0], 0.0
    return learner.policy, returns


if __name__ == "__main__":
    policy, returns = train("point-goal", gymnasium.make("epg/PointGoal-v0", task_seed=7))
    print(f"first ten episodes {sum(returns[:10]) / 10:.1f}, last ten {sum(returns[-10:]) / 10:.1f}")
    print("policy in", policy.save("my-policy"))
