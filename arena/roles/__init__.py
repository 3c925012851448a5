"""The three roles: the root records, environments own the games, workers run the algorithms.

`stage` plays a role on an endpoint, leg after leg, whatever the transport.

    root          `early_end` ends a leg before its time, `watch` notices who hangs
    environment   `lane_block` moves lanes together: `guard` makes a game that fails anew, `referee` looks at what it
                  says, `episodes` keeps the accounts, `seat_port` and `step_writer` are its ends of the seats
    worker        `saving` reads and writes its policy's checkpoints
"""
