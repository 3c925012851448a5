"""The three roles: the root records the run, environments step the games, workers run the algorithms.

`perform` runs a role on an endpoint, leg after leg, over any transport; `protocol` holds the messages between roles.
`run` is the run as every role gets it, `state` what changes while it is played, as one process keeps it, `stop` the
requests to end it, `status` whether it goes on, from its folder.

    root          `root` sends the orders of a leg, `progress` records what the roles report. `legs` rejects legs that
                  cannot be played and decides how the run continues, `early_stop` ends a leg early, `watchdog` detects
                  roles that hang
    environment   `lane_block` steps some lanes of a match together. `restart` recreates a failed game, `validate`
                  checks what the game returns, `episodes` adds up episodes, `recording` writes samples and replays,
                  `hosted_games` plays external games
    worker        `worker` builds and runs the algorithm and reports its updates, `checkpoints` reads and
                  writes its state
"""
