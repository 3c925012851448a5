"""A script that learns to balance a pole with Gymnasium and torch only."""

import json

import gymnasium
import numpy as np
import torch

GAMMA = 0.99

if __name__ == "__main__":
    env = gymnasium.make("CartPole-v1")
    policy = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    while True:
        observation, _ = env.reset()
        over, chosen, rewards = False, [], []
        while not over:
            choice = torch.distributions.Categorical(logits=policy(torch.as_tensor(observation)))
            action = choice.sample()
            observation, reward, terminated, truncated, _ = env.step(int(action))
            chosen.append(choice.log_prob(action))
            rewards.append(reward)
            over = terminated or truncated
        returns = np.zeros(len(rewards) + 1)
        for step in reversed(range(len(rewards))):
            returns[step] = rewards[step] + GAMMA * returns[step + 1]
        values = torch.as_tensor(returns[:-1] - returns[:-1].mean(), dtype=torch.float32)
        loss = -(torch.stack(chosen) * values).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"loss": loss.item(), "length": len(rewards)}))
