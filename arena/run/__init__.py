"""What is played when: the run that a configuration or a run folder describes, and its stages one after the other.

planning, prepare   a configuration becomes a plan, and a run that can begin; `resuming`: one that goes on
staging             what is played next: a leg of the run, an evaluation (`evaluating`), a rehearsal (`rehearsing`),
                    or the next round of a league (`rounds`)

Starts nothing and knows no role: `arena.launch` hosts what is prepared here.
"""
