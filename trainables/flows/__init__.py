"""Normalising flows on embeddings: Real-NVP, NICE and GLOW couplings, conditional or not.

    with streams.part("detreg.flow1"):
        flow = Flow(FlowConfig(kind="realnvp", depth=12), dim=512)
    found = flow(x)                 z[..., D], log_det[...], log_diagonal[..., D]
    x = flow.inverse(found.z)

Why not a library (looked at in November 2026): what DetReg needs, each layer's own diagonal of
the Jacobian, is in none of them, for all add a layer's log-scales up before they return. FrEIA
has the two-sided blocks and this soft clamp, but its newest release on PyPI is 0.2 of 2022, and
a block gives one number per item. nflows (0.14, 2020) and normflows (1.7.3, 2023) have no
arctan clamp and no two-sided block. zuko (1.6.0, 2026) is well kept; its couplings are
one-sided, bounded in another way, conditioned in all layers or none, and again summed, and each
pass builds a chain of distribution objects. What is left to write is a subnet, an affine map and
a permutation, which is less than an adapter around any of these would be.
"""
