"""The network of games with units: a transformer that attends over all units of a row, and lets each of them choose.

`options` is the option `transformer` of a configuration; `tokens` preprocesses and reads observations; `packing` and
`relative` serve attention; `network` has the blocks and the heads.
"""
