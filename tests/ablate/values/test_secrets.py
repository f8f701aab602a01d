"""A secret in a spec is refused before anything is written, and not shown."""

from __future__ import annotations

from pathlib import Path
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


def test_a_run_refuses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ablate.cli.main import main

    root = Path(__file__).parents[3]
    title = f'title="from https://me:{WORD}@host"'
    text = (root / "search_spaces" / "ddml.yaml").read_text()
    spec = tmp_path / "s.yaml"
    spec.write_text("\n".join(x for x in text.splitlines() if not x.startswith("title:")))
    with spec.open("a") as file:
        file.write(f"\ntitle: {title.partition('=')[2]}\n")
    out = tmp_path / "out"
    code = main(["run", str(spec), "--out", str(out), "--device", "cpu"])
    said = capsys.readouterr().err
    assert code == 2 and said.startswith("title: the address")
    assert WORD not in said and not out.exists()
