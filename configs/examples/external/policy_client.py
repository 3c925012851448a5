"""Plays CartPole for `configs/external_cartpole.yaml`, with the arena's client: python policy_client.py [ADDRESS]"""

import sys

import gymnasium

from arena.external import ExternalClosed, PolicyClient

address = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/step"
env, games = gymnasium.make("CartPole-v1"), 0
with PolicyClient(address) as client:  # waits until the run listens, for a minute at most
    try:
        while True:
            observation, _ = env.reset()
            episode, total, over = client.start_episode(), 0.0, False
            while not over:
                action = client.get_action(episode, observation)
                observation, reward, over, truncated, _ = env.step(action)
                client.log_returns(episode, reward)
                total, over = total + reward, over or truncated
            client.end_episode(episode, observation, truncated=truncated)
            games += 1
            print(f"game {games}: return {total:g}", flush=True)
    except ExternalClosed as closed:
        print(f"no more games: {closed}")
