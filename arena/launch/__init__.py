"""How the processes of a run start, host its roles, and end.

api                 `arena.train`: a run as a function; `events`: its progress
mpirun              finds, starts, watches and ends the launcher, and starts it again after a death; `rank`: one
                    process under it
bound_process       starts a program that ends with the process that has started it
lead                rank 0: hosts the root, shows the progress and the result; or all roles in one process
watchdog_thread     ends a run whose root hangs, with the help of `watchdog_process` and `exit_signal`
console             where the output of a process goes, and whether it ends at a terminal
holding             connects a run with the program that holds it at its boundaries
untouched_process   restores a user's process after a run in it
"""
