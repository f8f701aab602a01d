"""Normalising flows on embeddings: Real-NVP, NICE and GLOW couplings, conditional or not.

    with streams.part("detreg.flow1"):
        flow = Flow(FlowConfig(kind="realnvp", depth=12), dim=512)
    found = flow(x)                 z[..., D], log_det[...], log_diagonal[..., D]
    x = flow.inverse(found.z)

Why not a library (FrEIA, nflows, normflows and zuko, looked at in November 2026): what DetReg
needs, each layer's own diagonal of the Jacobian, is in none of them, for all add a layer's
log-scales up before they return.
"""
