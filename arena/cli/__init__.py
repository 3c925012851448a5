"""What the commands do that do more than read: how each starts, and what leads its run.

train               led by `leading`; which of the three ways it starts is here: one process, one rank, a launcher
evaluate            frozen policies of a run, as they are now or were
tournament          led by `contesting`, among `contestants`; `recontesting` goes on with one
exploit             led by `exploiting`: a responder learns against one policy of a run
replay              what was recorded, listed, verified, and made into videos
slurm, doctor       a batch file; whether a machine is ready; `probe`: what a plan will need
"""
