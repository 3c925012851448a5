"""The command line: `main`, and one module for each command, with its arguments and its function.

start                   the three ways to start a run: as one rank, in this process, or under a launcher
train, tournament, exploit
                        arguments and start; rank 0's part is in `train_run`, `tournament_run`, `exploit.exploit_run`,
                        which the other ranks do not import
players                 the players of a tournament, from configurations and run folders
probe                   `arena plan --probe`: measures two seconds of the first match
arguments               what the commands' parsers share
"""
