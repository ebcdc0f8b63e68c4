"""An evolved loss trains a PyTorch policy: epg gives dL/d(mean, log-std, memory), PyTorch does the rest."""

import gymnasium
import torch
from torch import nn

import epg


def train(loss, env, seed=0):
    torch.manual_seed(seed)
    window, (seen,), (acted,) = loss.window(seed), env.observation_space.shape, env.action_space.shape
    net = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, acted))
    for layer in net[::2]:  # as in the loss's evolution: rows of norm 1, and the last layer near zero
        layer.weight.data *= (0.01 if layer is net[-1] else 1.0) / layer.weight.data.norm(dim=1, keepdim=True)
        layer.bias.data.zero_()
    log_std, memory = nn.Parameter(torch.full((acted,), -0.5)), nn.Parameter(torch.tensor(window.initial_memory))
    adam = torch.optim.Adam([*net.parameters(), log_std, memory])
    returns, total, (observation, _) = [], 0.0, env.reset(seed=seed)
    while not window.done:
        action = torch.normal(net(torch.tensor(window.normalize(observation))), log_std.exp()).detach().numpy()
        following, reward, terminated, truncated, _ = env.step(action)
        if window.add(observation, action, reward, terminated, truncated):  # M new transitions
            adam.param_groups[0]["lr"] = window.learning_rate
            for rows in window.minibatches():
                mean = net(torch.tensor(window.observations))
                outputs = epg.PolicyOutputs(mean.detach(), log_std.detach(), memory.detach())
                slope, log_std.grad, memory.grad = map(torch.tensor, loss.gradient(window, outputs, rows))
                net.zero_grad()
                mean.backward(slope)
                adam.step()
        observation, total = following, total + reward
        if terminated or truncated:
            returns, total, (observation, _) = [*returns, total], 0.0, env.reset()
    return net, returns


if __name__ == "__main__":
    _, returns = train(epg.load_loss("point-goal"), gymnasium.make("epg/PointGoal-v0", task_seed=8))
    print(f"first ten episodes {sum(returns[:10]) / 10:.1f}, last ten {sum(returns[-10:]) / 10:.1f}")
