"""How the processes of a run start, host its roles, and end.

mpirun              which launcher there is, and how it is started and ended; `ranks` is one process under it
leader              what rank 0 does beyond its roles; each command that plays has one of its own
hosting             the roles that one process plays, the root among them
repair              what those who live do when a process has died; `sentry`: a root that hangs,
                    which `last_words` ends from outside, by `exit_signal`
console, terminal   where words go, and whether a person sees them
"""
