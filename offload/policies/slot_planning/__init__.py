"""How many slots each layer gets: planners, one per file. Pure: no tensors, no I/O, no clock.

`uniform`: the same share of each layer's experts. `nonuniform`: slots moved, from there, to the layers that gain.
"""
