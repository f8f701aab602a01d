"""Normalising flows on embeddings: Real-NVP, NICE and GLOW couplings, conditional or not.

    with streams.use_substream("detreg.flow1"):
        flow = Flow(FlowConfig(kind="realnvp", depth=12), dim=512)
    output = flow(x)                 z[..., D], log_det[...], log_diagonal[..., D]
    x = flow.inverse(output.z)

No library is used (FrEIA, nflows, normflows and zuko were examined in November 2026), because all
of them add up a layer's log-scales before they return, and DetReg needs them separately.
"""
