"""How a run is prepared, started, played stage by stage, and started again after a death.

planning, prepare   a configuration becomes a plan, and a run that can begin; `resume`: a run that continues;
                    `continued`: a new run with the league of an earlier one
stages              what is played next: a leg of the run, an evaluation (`evaluation`), or the next round of a league
                    (`rounds`); `hooks`: the user's code that is called between two legs
opponents           matches of a policy against one opponent
mpirun              finds, starts, watches and ends the launcher, and starts it again after a death; `bound_process`
                    starts a program that ends with the process that has started it
remote_hosts        runs programs on other hosts, to learn whether they answer and what they have
loop, lead          plays the stages, in the processes of the launcher or in this one; what rank 0 does in it
watchdog            ends a run whose root hangs, with the help of `watchdog_process`
console             where the output of a process goes
controller          the connection with a program that controls the run
api                 `arena.train`: a run as a function; `evaluate`, `tournament` and `hub` have those of their commands

A run is immutable (`arena.roles.run`); what changes while it is played is its state in each process
(`arena.roles.state`).
"""
