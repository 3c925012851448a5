"""A program with a loop of its own, in the environment's process: CartPoles in threads ask for actions."""

import threading

import gymnasium

from arena.external import ExternalClosed, ExternalEnv


class Poles(ExternalEnv):
    """Args: count, the number of poles, at most the `lanes` of the match."""

    def __init__(self, count=4):
        self.envs = [gymnasium.make("CartPole-v1") for _ in range(count)]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space

    def run(self):
        threads = [threading.Thread(target=self.play, args=(env,)) for env in self.envs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def play(self, env):
        try:
            while True:
                observation, _ = env.reset()
                episode, over = self.start_episode(), False
                while not over:
                    action = self.get_action(episode, observation)
                    observation, reward, over, truncated, _ = env.step(action)
                    self.log_returns(episode, reward)
                    over = over or truncated
                self.end_episode(episode, observation, truncated=truncated)
        except ExternalClosed:  # the run has ended
            env.close()
