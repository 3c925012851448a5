"""Algorithms: one class per file, readable top to bottom.

    random           Random: draws every action from its space
    scripted         Scripted: a constant action or a named function; `scripts` holds functions for the built-in games
    ppo, a2c         PPO, A2C: proximal policy optimization, advantage actor-critic
    impala           IMPALA: actors that do not wait for their learner, V-trace
    mappo            MAPPO: PPO whose critic sees a whole team
    hppo             HPPO: a manager that picks options, a worker that plays them
    dqn              DQN: deep Q-networks
    ddpg, td3        DDPG, TD3: deterministic policy gradients
    sac              SAC: soft actor-critic
    maddpg, masac    MADDPG, MASAC: DDPG and SAC with critics that see a whole team
    vdn, qmix        VDN, QMIX: a team's value is the sum of its entities' values, or a mixing network's
    bc               BehaviorCloning: imitates recorded actions
    iql              IQL: implicit Q-learning from recorded samples
    sb3              the algorithms of Stable-Baselines3 as members of a group
    exporting        networks as plain tensor modules, for other runtimes

Their bases are `common.on_policy` (learns from its newest rollout: ppo, a2c, impala, mappo, hppo),
`common.off_policy` (learns from replay: dqn, ddpg, td3, sac), `team.learner` (off-policy, for a whole team: vdn, qmix)
and `team.centralized` (the same with critics of the team: maddpg, masac); that of iql is bc.

The parts that algorithms share: `networks` (observations to distributions of actions and to values), `extensions` (a
user's own encoders and losses) and, in `common`, `algorithm` (how the workers of a group learn together), `rollout`
(with generalized advantage estimation), `replay`, `normalization` (running scales of observations and rewards), `adam`
(the optimizer), `options` (checks of a configuration's values), `tensors` (state that can be stored).

An algorithm is given an environment proxy and a group, no more; a class of your own is used in the same way.
"""
