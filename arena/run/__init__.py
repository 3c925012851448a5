"""A run as data: what a configuration or a run folder describes, and the stages that are played one after the other.

planning, prepare   a configuration becomes a plan, and a run that can begin; `resume`: a run that continues
stages              what is played next: a leg of the run, an evaluation (`evaluation`), or the next round of a league
                    (`rounds`); `later_seats`: the seats of policies after the first round
leg, process_state  from one boundary to the next; what a process keeps for a rollback after a death
handover            which worker continues with the state of which
stop, status        requests to end a run; whether a run goes on, is finished, or was killed

This package starts nothing and knows no role: `arena.launch` hosts the runs that are prepared here.
"""
