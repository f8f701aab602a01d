"""IDML's uncertainty from a second token of a vision transformer (its Table 9 and appendix C.5).

Shape legend: B batch · F features of a token.

    s = W_s · class token's output + b_s,   u = W_u · second token's output + b_u

with features [B, 2 F] of `backbones/second_token.py`. Two readings of "we discard the uncertainty
token during inference":

    discarded  retrieval and classification run the transformer without it, "the same architecture
               as the original transformer without extra computation cost", though the class token
               attended to it in training; the paper's words
    kept       it stays in the sequence, and its output is left out, but where the introspective
               metric is that of retrieval

Deviations: the paper takes the tokens' outputs as the embeddings, here each goes through its linear
head, as everywhere. The token learns at the rate of `backbone`, and weight decay holds for it.
What is measured of uncertainties (`observed`, `measure`) is with the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trainables.backbones.second_token import check_tokens

if TYPE_CHECKING:
    from trainables.config.sections import Trial

SecondToken = Literal["discarded", "kept"]
WITHOUT: dict[str, object] = {"uncertainty_token": None}  # a part of what makes IDML neutral


def check_second_token(
    trial: Trial, token: SecondToken | None, metric: str, test_metric: str
) -> None:
    """Refuse a second token that cannot be, or that nothing would be read of.

    Raises:
        ValueError: as `Method.check`; of a backbone a ConfigError.
    """
    if token is None:
        return
    if trial.backbone.mode == "frozen":
        raise ValueError(
            f"method.uncertainty_token with backbone.mode finetune, not {token} with frozen: "
            "cached features have no token that could learn; leave it out"
        )
    if metric == "plain":
        raise ValueError(
            f"method.uncertainty_token with an introspective metric, not {token} with plain: "
            "the uncertainty has no part in it; leave it out"
        )
    if test_metric == "introspective" and token == "discarded":
        raise ValueError(
            "method.uncertainty_token kept with test_metric introspective, not discarded: the "
            "uncertainty is of that token"
        )
    check_tokens(trial.backbone.name, trial.data.image_size, "method.uncertainty_token")
