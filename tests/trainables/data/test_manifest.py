"""A table is understood to its last column, or it is refused: no division of the user's is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Dataset, count_parts
from trainables.words.errors import ConfigError

ROWS = [
    *(f"{label}{n}.jpg,{label},train," for label in "abc" for n in (1, 2)),
    *(
        f"{label}{n}.jpg,{label},test,{role}"
        for label in "de"
        for n, role in ((1, "query"), (2, "gallery"))
    ),
]
HEAD = ("path", "label", "split", "role")


def read(folder: Path, head: str, *rows: str, content: bytes | None = None) -> Dataset:
    for label in "abcde":
        for number in (1, 2):
            (folder / f"{label}{number}.jpg").write_bytes(b"listed, not decoded")
    text = "".join(f"{line}\n" for line in (head, *rows))
    (folder / "manifest.csv").write_bytes(text.encode() if content is None else content)
    config = DataConfig(name="manifest", root=str(folder))
    dataset = DATASETS["manifest"].without_pixels(config, folder / "cache")
    assert dataset is not None
    return dataset


def refusal(folder: Path, head: str, *rows: str, content: bytes | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, head, *rows, content=content)
    assert "\n" not in str(caught.value) and "manifest.csv" in str(caught.value)
    return str(caught.value)


def test_a_table_is_read(tmp_path: Path) -> None:
    dataset = read(tmp_path, ",".join(HEAD), *ROWS)
    counts = {part: count.images for part, count in count_parts(dataset).items()}
    assert counts == {"train": 6, "test": 4, "query": 2, "gallery": 2} and dataset.notes == ()


SPELLINGS = {
    "split": (
        *("Split", "SPLIT", " split", "split ", "\tsplit", "splits", "\ufeffsplit", "\xa0split"),
        *(
            "spilt",
            "splt",
            "spplit",
            "split?",
            "_split",
            "subset",
            "Subset",
            "partition",
            "is_train",
        ),
        *("IsTest", "is_validation", "train/test", "train_or_val", "evaluation_status", "fold"),
        *("my_split", "data split", "official-split", "part", "set", "valid"),
    ),
    "role": (
        *(
            "Role",
            "ROLE",
            " role",
            "roles",
            "rolle",
            "is_query",
            "is_gallery",
            "isQuery",
            "Is Query",
        ),
        *("query", "Gallery", "query_or_gallery", "query/gallery", "image role"),
    ),
    "path": ("Path", "paths", " path", "image_path", "\u200bpath"),
    "label": ("Label", "labels", "LABEL ", "lable", "label_name"),
}


@pytest.mark.parametrize(
    ("known", "spelling"), [(known, each) for known, all_ in SPELLINGS.items() for each in all_]
)
def test_a_column_that_resembles_a_known_one_is_refused_with_its_name(
    known: str, spelling: str, tmp_path: Path
) -> None:
    head = ",".join(spelling if name == known else name for name in HEAD)
    message = refusal(tmp_path, head, *ROWS)
    assert "line 1: " in message and repr(spelling) in message and f"Call it `{known}`" in message


@pytest.mark.parametrize(
    "spelling", ["Split", "subset", "splits", "is_query", "Role", "Label", "paths"]
)
def test_such_a_column_beside_the_known_one_is_refused_too(spelling: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, ",".join((*HEAD, spelling)), *(f"{row},x" for row in ROWS))
    assert repr(spelling) in message and "another name" in message


@pytest.mark.parametrize("name", ["phase", "usage", "stage", "data_set", "tvt", "", "Zweck"])
def test_a_column_of_any_name_with_the_values_of_a_missing_one_is_refused(
    name: str, tmp_path: Path
) -> None:
    for train, test in (("train", "test"), ("Training", "TEST "), ("training", "valid")):
        rows = [f"{label}{n}.jpg,{label},{train}" for label in "abc" for n in (1, 2)]
        rows += [f"{label}{n}.jpg,{label},{test}" for label in "de" for n in (1, 2)]
        message = refusal(tmp_path, f"path,label,{name}", *rows)
        assert repr(name) in message and "Call it `split`" in message
    message = refusal(tmp_path, f"path,label,split,{name}", *ROWS)
    assert repr(name) in message and "Call it `role`" in message
    # a table that has the column may have another one with such values
    assert read(tmp_path, f"path,label,split,role,{name}", *(f"{row},train" for row in ROWS)).notes
    vehicles = ("train", "test", "bus")
    rows = [f"{label}{n}.jpg,{label},{vehicles[n]}" for label in "abcde" for n in (1, 2)]
    assert read(tmp_path, f"path,label,{name}", *rows).notes


@pytest.mark.parametrize(
    "names",
    [
        ("width", "height"),
        ("class", "category", "source"),
        ("fold", "old_split", "split_seed"),  # beside a column `split`
        ("label_name", "image_path", "patch"),  # beside `path` and `label`
        ("", "id"),
        ("x1", "y1", "url", "author", "scale", "date", "model"),
    ],
    ids=",".join,
)
def test_other_columns_are_not_read_and_are_named(names: tuple[str, ...], tmp_path: Path) -> None:
    plain = read(tmp_path, ",".join(HEAD), *ROWS)
    head = ",".join((*names, *HEAD))
    more = read(tmp_path, head, *(",".join(["x"] * len(names)) + f",{row}" for row in ROWS))
    assert more.labels.tolist() == plain.labels.tolist()
    (note,) = more.notes
    assert all((name or "(without a name)") in note for name in names)


@pytest.mark.parametrize("name", HEAD)
def test_a_column_given_twice_is_refused(name: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, ",".join((*HEAD, name)), *(f"{row},x" for row in ROWS))
    assert "line 1: " in message and f"2 columns {name!r}" in message
    message = refusal(
        tmp_path, ",".join(("width", *HEAD, "width")), *(f"1,{row},1" for row in ROWS)
    )
    assert "2 columns 'width'" in message


@pytest.mark.parametrize(
    ("line", "fields"),
    [("a1.jpg,a,train,,", 5), ("a1.jpg,a, big,train,", 5), ("a1.jpg,a", 2), ("a1.jpg", 1)],
)
def test_a_row_with_other_fields_than_the_head_is_refused_with_its_line(
    line: str, fields: int, tmp_path: Path
) -> None:
    """A field in quotes has two lines, and an empty line is none; the file's lines are counted."""
    rows = ['"b\n1.jpg",b,train,', "", *ROWS[2:4], line]
    message = refusal(tmp_path, ",".join(HEAD), *rows)
    assert "line 7, row 4: " in message
    assert f"the row has {fields} fields, and the head has 4" in message


def test_a_comma_in_quotes_is_no_further_field(tmp_path: Path) -> None:
    rows = [f'{label}{n}.jpg,"{label}, big"' for label in "abcde" for n in (1, 2)]
    assert read(tmp_path, "path,label", *rows).classes[0] == "a, big"


@pytest.mark.parametrize(
    ("train", "test"), [("Train", "TEST"), ("training", "testing"), (" train", "test ")]
)
def test_names_of_parts_are_read_in_all_their_forms(train: str, test: str, tmp_path: Path) -> None:
    plain = read(tmp_path, ",".join(HEAD), *ROWS)
    rows = [row.replace("train", train).replace("test", test) for row in ROWS]
    assert count_parts(read(tmp_path, ",".join(HEAD), *rows)) == count_parts(plain)


def test_a_role_in_the_column_of_the_split_is_refused(tmp_path: Path) -> None:
    rows = [row.replace("test,query", "query,").replace("test,gallery", "gallery,") for row in ROWS]
    message = refusal(tmp_path, ",".join(HEAD), *rows)
    assert "split 'query' must be train, val, test or empty" in message and "`role`" in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"path;label;split\na1.jpg;a;train\n",
        ",".join(HEAD).encode("utf-16"),
        b'path,label\n"a1.jpg,a\n',
        b"path,label\na1.jpg,\xff\n",
    ],
    ids=["empty", "semicolons", "utf-16", "open quotes", "latin-1"],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    assert "Give" in (message := refusal(tmp_path, "", content=content)) or "must have" in message


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_a_name(tmp_path: Path) -> None:
    text = "\n".join([",".join(HEAD), *ROWS])
    assert len(read(tmp_path, "", content=text.encode("utf-8-sig")).labels) == 10


def test_tables_that_were_read_before_keep_their_identity(tmp_path: Path) -> None:
    """The digest was computed before unknown columns were looked at."""
    rows = ("x.jpg,a,train,,3", "y.jpg,b,test,query,3", "z.jpg,b,test,gallery,3")
    (tmp_path / "manifest.csv").write_text("\n".join(("path,label,split,role,width", *rows)) + "\n")
    for name in ("x.jpg", "y.jpg", "z.jpg"):
        (tmp_path / name).write_bytes(name.encode())
    config = DataConfig(name="manifest", root=str(tmp_path))
    digest = "4d623ac80abd07d6761e67f2eb0559437ca2b2f9c88c3723c5ddb5053db1745b"
    assert DATASETS["manifest"].fingerprint(config, tmp_path / "cache") == digest
