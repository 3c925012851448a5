"""Algorithms of Stable-Baselines3 as members of a group: `sb3:PPO` and its like.

member    one class for each of the library's algorithms: plays, averages gradients, logs, is saved
options   what a configuration may say, from the signature of the library's class
vec_env   the arena's vector environment as the library's `VecEnv`; the process's random streams, as one worker's
archive   the library's save format, read without running what is in it
"""
