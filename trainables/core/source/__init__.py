"""What a trial's code is, as a hash that moves and words do not change.

    components.py   which definitions each component of a trial is; which hashes are one code
    hashes.py       a definition and all that it reaches → a hash
    normal.py       a definition → its normal form; forms.py and expressions.py are parts of it
    reach.py        which packages count, and where a name in them leads
    modules.py      modules as syntax trees; what a name in them stands for

Only `components.py` knows the components. The others are plain `ast` and import nothing but the
standard library.
"""
