"""A program with a loop of its own, in the environment's process: CartPoles in threads ask for actions."""

from concurrent.futures import ThreadPoolExecutor, as_completed

import gymnasium

from arena.external import ExternalClosed, ExternalEnv


class Poles(ExternalEnv):
    """Args: count, the number of poles, at most the `lanes` of the match."""

    def __init__(self, count=4):
        self.envs = [gymnasium.make("CartPole-v1") for _ in range(count)]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space

    def run(self):
        pool = ThreadPoolExecutor(len(self.envs))
        for game in as_completed([pool.submit(self.play, env) for env in self.envs]):
            game.result()  # raises what has ended the thread, so that the run does not go on without it

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
