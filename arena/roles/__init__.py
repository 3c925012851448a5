"""The three roles: the root records, environments own the games, workers run the algorithms.

`stage` plays a role on an endpoint, leg after leg, whatever the transport.

    root          `hearing` takes what the others say, while `watch` notices who hangs; `readiness` refuses what cannot
                  be played; `ledger` knows how far all have come, `mending` notes what has failed; `early_end` ends a
                  leg before its time, `leg_end` says what follows from one
    environment   `lane_block` moves lanes together: `guard` makes a game that fails anew, `referee` looks at what it
                  says, `episodes` keeps the accounts, `seat_port` and `step_writer` are its ends of the seats
    worker        `saving` reads and writes its policy's checkpoints
"""
