"""Algorithms of Stable-Baselines3 as members of a group: `sb3:PPO` and its like."""
