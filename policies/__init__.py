"""Algorithms: one class per file, readable top to bottom.

    random_actions   Random: draws every action from its space
    scripted         Scripted: a constant action or a named function; `scripts` holds functions for the built-in games
    ppo              PPO: proximal policy optimisation
    sb3              the algorithms of Stable-Baselines3 as members of a group

Beside them the parts that algorithms share: `networks` (observations to numbers), `actions` (numbers to actions),
`distributions`, `returns` (generalised advantage estimation), `rollout` (what was seen), `normalization` (running
scales of observations and rewards), `adam` (the optimiser), `options` (checks of what a configuration says), `tensors`
(state that can be stored).

An algorithm holds nothing but an environment proxy and a group; a class of one's own stands on equal footing.
"""
