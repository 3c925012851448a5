"""Algorithms: one class per file, readable top to bottom.

    random_actions   Random: draws every action from its space
    scripted         Scripted: a constant action or a named function; `scripts` holds functions for the built-in games
    ppo, a2c         PPO, A2C: proximal policy optimization, advantage actor-critic
    mappo            MAPPO: PPO whose critic sees a whole team
    hppo             HPPO: a manager that picks options, a worker that plays them
    dqn              DQN: deep Q-networks
    ddpg, td3        DDPG, TD3: deterministic policy gradients
    sac              SAC: soft actor-critic
    maddpg, masac    MADDPG, MASAC: DDPG and SAC with critics that see a whole team
    bc               BehaviorCloning: imitates who was recorded
    sb3              the algorithms of Stable-Baselines3 as members of a group
    exporting        networks as plain tensor modules, for other runtimes

What some of them have in common is `on_policy` (learns from what it has just played: ppo, a2c, mappo, hppo),
`off_policy` (replays what it has seen) and, of these, `centralized` (maddpg, masac).

Beside them the parts that algorithms share: `networks` (observations to numbers), `actions` (numbers to actions),
`distributions`, `returns` (generalized advantage estimation), `rollout` (what was seen), `replay` (what was kept of
it), `normalization` (running scales of observations and rewards), `adam` (the optimizer), `options` (checks of what a
configuration says), `tensors` (state that can be stored).

An algorithm holds nothing but an environment proxy and a group; a class of one's own stands on equal footing.
"""
