"""Every tutorial runs in miniature (others in `test_tutorials_components.py`); and the runner finds
what is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.documented import GUIDES
from tests.tutorials import COMPONENT_PAGES, RAN, Run, list_blocks, list_tutorials, shrink

PAGE = """# Page

<!-- ran -->
<!-- end ran -->
<!-- in miniature: "large" is "small"; "3" is "2" -->

```python
# hello.py
print("large", *range(3), sep="\\n")
```

```bash
python hello.py
```

<!-- output from "0" -->
stale
<!-- end output -->

<!-- needs a GPU -->
```bash
false
```
"""


def run(folder: Path, text: str, *, small: bool) -> str:
    (folder / "page.md").write_text(text)
    (folder / "here").mkdir(exist_ok=True)
    return Run(folder / "page.md", folder / "here", small=small).run()


def test_output_is_written_below_its_block(tmp_path: Path) -> None:
    told = run(tmp_path, PAGE, small=False)
    assert "```text\n…\n0\n1\n2\n```\n<!-- end output -->" in told and "stale" not in told
    small = shrink(PAGE)
    assert 'print("small", *range(2)' in small and "in miniature" not in small


@pytest.mark.parametrize(
    ("shown", "wrong", "fault"),
    [
        ("python hello.py\n", "python hello.py; false\n", "hello.py; false"),
        ('"large" is', '"absent" is', "nothing to replace in miniature: absent"),
        ("python hello.py\n", "python hello.py >/dev/null\n", "no output"),
    ],
)
def test_a_page_that_is_wrong_is_refused(
    tmp_path: Path, shown: str, wrong: str, fault: str
) -> None:
    with pytest.raises(AssertionError, match=fault):
        run(tmp_path, PAGE.replace(shown, wrong), small=True)


def test_each_tutorial_has_its_commit_date_and_time() -> None:
    """`make docs` writes them, with the output of each block that shows one."""
    pages = list_tutorials()
    assert {"losses.md", "tutorial.ipynb"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert all("Run at commit " in part for part in RAN.findall(text)), page.name
        assert text.count("<!-- output") == text.count("\n<!-- end output -->"), page.name
        assert "-->\n<!-- end output -->" not in text, f"{page.name}: no output yet"
        assert any(block.runs for block in list_blocks(page))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["python", "-c", "import os, sys; print(os.getcwd(), sys.argv[1:])", "a b"], 0, "['a b']"),
        (["python", "-c", "import sys; sys.exit('a fault')"], 1, "a fault"),
        (["python", "-c", "import os; os.kill(os.getpid(), 9)"], -9, ""),
        (["python", "-c", "print(input()[::-1], flush=True); 1 / 0"], 1, "drow"),
        (["python", "-m", "mine"], 3, "mine.py"),
        (["ablate", "plan", "absent.yaml"], 2, "absent.yaml"),
    ],
)
def test_preloaded_programs_end_as_others_do(
    words: list[str], code: int, printed: str, tmp_path: Path, programs: Path
) -> None:
    (tmp_path / "mine.py").write_text("import sys; print(__file__); sys.exit(3)")
    ended = subprocess.run(
        [programs / words[0], *words[1:]],
        cwd=tmp_path,
        input="word",
        text=True,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == code, ended
    assert printed in ended.stdout + ended.stderr


PAGES = [page for page in list_tutorials() if page.stem not in COMPONENT_PAGES]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_runs_in_miniature(page: Path, tmp_path: Path, programs: Path) -> None:
    assert GUIDES in page.parents
    Run(page, tmp_path, programs, small=True).run()
