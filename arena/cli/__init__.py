"""The command line: `main`, and one module or package for each command.

A command has `add_arguments(parser)`, and a function that gets the arguments and returns the exit status. A mistake of
the user is a `ConfigError`, whatever function finds it: `main` prints it and returns 2.

start                   the three ways to start a run: as one rank, in this process, or under a launcher
train, tournament, exploit
                        arguments and start; rank 0's part is in `train_run`, `arena.run.tournament`,
                        `exploit.exploit_run`, which the other ranks do not import
exploit.exact           what `arena exploit --exact` computes, without a run
probe                   `arena plan --probe`: measures two seconds of the first match
arguments               what the commands' parsers share
"""
