"""Two-level fractional factorials and Plackett–Burman designs as arrays of 0 and 1.

A run is a tuple with one entry per factor: 0 its first level, 1 its second. As signs, −1 and +1,
every column sums to zero and any two columns are orthogonal.

2^(k−p) (Box, Hunter and Hunter, "Statistics for Experimenters", 2nd ed., chapter 6): b = k − p
basic factors run through all their combinations, each further factor is the product of some of
them: the generator ABC of D gives the word ABCD. The words and all their products are the defining
relation, the shortest of them is the resolution.

Plackett–Burman (Biometrika 33, 1946): N runs for up to N − 1 factors, N a multiple of 4: cyclic
shifts of the paper's first row, then a run of all minus.
"""

import itertools

Run = tuple[int, ...]

MAX_FACTORS = 15

# Least resolution → (basic factors, resolution, generators) of the smallest 2^(k−p), the first row
# that has enough generators. A design of fewer factors leaves out the last ones.
_GENERATORS = {
    3: (
        (2, 3, "AB"),
        (3, 4, "ABC"),
        (3, 3, "AB AC BC ABC"),
        (4, 4, "ABC ABD ACD BCD"),
        (4, 3, "AB AC AD BC BD CD ABC ABD ACD BCD ABCD"),
    ),
    4: (
        (3, 4, "ABC"),
        (4, 5, "ABCD"),
        (4, 4, "ABC ABD ACD BCD"),
        (5, 4, "ABC ABD ABE ACD ACE ADE BCD BCE BDE CDE"),
    ),
    5: (
        (4, 5, "ABCD"),
        (5, 6, "ABCDE"),
        (6, 7, "ABCDEF"),
        (6, 5, "ABCD ABEF"),
        (7, 5, "ABCD ABEF ACEG BDFG"),
        (8, 5, "ABCD ABEF ABGH ACEG ADFH CDEH CFGH"),
    ),
}

# First rows as printed in the paper, + as 1; N = 4 and 8 are the regular fractions.
_ROWS = {
    4: "++-",
    8: "+++-+--",
    12: "++-+++---+-",
    16: "++++-+-++--+---",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
}
MAX_SCREENED = max(_ROWS) - 1


def build_plackett_burman(factors: int) -> list[Run]:
    """Return the runs of the smallest Plackett–Burman design: 0 or 1 for each of the factors.

    The runs are the cyclic shifts of Plackett and Burman's row, then a run of all minus (0).
    """
    signs = next(row for n, row in _ROWS.items() if n > factors)  # n: number of runs
    columns = len(signs)
    runs = [
        tuple(int(signs[(column - shift) % columns] == "+") for column in range(factors))
        for shift in range(columns)
    ]
    return [*runs, (0,) * factors]


def find_generators(factors: int, least: int) -> tuple[int, list[str]]:
    """Return the resolution and generators of the smallest 2^(k−p) design of resolution ≥ `least`.

    A generator such as "ABC" names the basic factors whose product gives a further factor. The list
    is empty if only the full factorial reaches that resolution.
    """
    for n_basic, resolution, words in _GENERATORS[least]:
        generators, n_further = words.split(), factors - n_basic
        if 0 < n_further <= len(generators):
            return resolution, generators[:n_further]
    return factors + 1, []  # the full factorial


def build_fractional(factors: int, generators: list[str]) -> list[Run]:
    """Return the runs of a 2^(k−p) design: a level, 0 or 1, for each factor.

    The basic factors A, B, … take all combinations, the last one varying fastest; each further
    factor's sign is the product of the signs of the factors that its generator ("ABC") names.
    """
    runs = []
    for levels in itertools.product((0, 1), repeat=factors - len(generators)):
        # Count the minus signs (level 0) in each product; the product is −1 if the number is odd.
        n_minus = [sum(1 - levels[ord(letter) - ord("A")] for letter in g) for g in generators]
        runs.append((*levels, *(1 - count % 2 for count in n_minus)))
    return runs
