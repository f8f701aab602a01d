"""A secret in a spec is refused before anything is written, and not shown."""

from __future__ import annotations

from typing import Any

import pytest

from ablate.values.secrets import check_secrets
from trainables.errors import ConfigError

WORD = "w0rd-of-a-kind"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"trial": {"data": {"root": f"https://me:{WORD}@host/data"}}}, "trial.data.root"),
        ({"title": f"as at https://host/?token={WORD} and beyond"}, "title"),
        ({"title": f"https://host/x?a=1&X-Amz-Signature={WORD}"}, "title"),
        ({"title": f"https://host/x?apikey={WORD}"}, "title"),
        ({"studies": {"a": {"grid": {"x": ["s3://k:" + WORD + "@bucket"]}}}}, "studies.a.grid.x.0"),
    ],
)
def test_an_address_with_a_secret(spec: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_secrets(spec)
    assert caught.value.path == path and WORD not in str(caught.value)


def test_addresses_without() -> None:
    check_secrets({"title": "see https://arxiv.org/abs/1", "data": {"root": "s3://bucket/a@c"}})
    check_secrets({"title": "https://arxiv.org/search/?author=Kim&monkey=1&design=a"})
