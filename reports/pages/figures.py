"""Place figures on the report's page, or on pages of their own.

Figures with pictures of images would make the report too large; it shows a thumbnail with a link to
their page. These pages request nothing. In MLflow's list of files, a page is shown in a frame
without links to others, so it names them.
"""

import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from reports.figures.figure import DrawnFigure, use_report_style
from reports.frame import Frame
from reports.tables.cells import find_protocol
from reports.tables.labels import to_slug

# what a browser does not need of matplotlib's SVG, and what stands in its place
SHORTER_SVG = (
    (r"(?s)<!--.*?-->|<metadata>.*?</metadata>", ""),
    (r" id=\"\w+_\d+\"(?=/?>)", ""),
    (r"(?<!scale\(0)(\.\d\d)\d+", r"\1"),
    (r"\s+", " "),
    (r"(?<=[>;:]) | (?=[/<])", ""),
    ("xlink:href", "href"),
    ("DejaVuSans-", "f"),
)
SVG_LETTERS = " !$'()*+,-./:;=?@[]^_`{|}~"  # that stand as they are
CSS_INCH = 96  # CSS pixels
THUMBNAIL_SIDE = 260  # CSS pixels of the longer side of a thumbnail, which has two pixels for each


def build_run_anchor(study: str, cell: str) -> str:
    """Return the id of a cell's first run in the list of runs."""
    return f"runs-{to_slug(study)}-{to_slug(cell)}"


def load_template(name: str) -> jinja2.Template:
    """Load a Jinja template of this folder, with the filter `slug` for file names and anchors."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["slug"] = to_slug
    return environment.get_template(name)


def render_in_report(drawn: DrawnFigure, svg: Path) -> dict[str, Any]:
    """Return a figure's fields in the report's template: a thumbnail if it has its own page."""
    if not drawn.apart:
        return render_inline(drawn, svg)
    webp, side = BytesIO(), max(drawn.figure.get_size_inches())
    dpi = 2 * THUMBNAIL_SIDE / side  # two pixels for each CSS pixel, for sharp screens
    with use_report_style():
        drawn.figure.savefig(webp, dpi=dpi, format="webp", pil_kwargs={"quality": 82})
    width = THUMBNAIL_SIDE * drawn.figure.get_figwidth() / side
    source = _encode_image("webp", webp.getvalue())
    page = f"{drawn.key}.html"
    return {"drawn": drawn, "source": source, "width": round(width), "spots": "", "page": page}


def render_inline(drawn: DrawnFigure, svg: Path) -> dict[str, Any]:
    """Return a full figure's template fields, with tooltips' positions in 1/1000 of its size."""
    spots: list[list[Any]] = []
    for x, y, spot in drawn.locate_spots():
        anchor = [build_run_anchor(*spot.of)] if spot.of else []
        spots.append([round(1000 * x), round(1000 * y), spot.text, *anchor])
    text = json.dumps(spots, ensure_ascii=False, separators=(",", ":")) if spots else ""
    width = round(drawn.figure.get_figwidth() * CSS_INCH)
    source = encode_svg(svg.read_text(encoding="utf-8"))
    return {"drawn": drawn, "source": source, "width": width, "spots": text, "page": ""}


def _encode_image(image_type: str, data: bytes) -> str:
    return f"data:image/{image_type};base64,{base64.b64encode(data).decode()}"


def encode_svg(svg: str) -> Markup:
    """Return a drawing as the address of its own data, in half of the letters that base64 takes.

    Coordinates get two decimals, a hundredth of a point; names and marks are shortened.
    """
    for pattern, text in SHORTER_SVG:
        svg = re.sub(pattern, text, svg)
    svg = svg.replace("'", "&apos;").replace('"', "'")  # the address stands between double quotes
    return Markup(f"data:image/svg+xml,{quote(svg, safe=SVG_LETTERS)}")


def render_figure_page(frame: Frame, drawn: DrawnFigure, svg: Path) -> str:
    """Return the HTML (well-formed XML too) of a figure's own page, which links to the report."""
    return load_template("apart.html.j2").render(
        title=drawn.title,
        caption=drawn.caption,
        sweep=f"{frame.document['name']} ({frame.document['sweep_id']})",
        protocol=find_protocol(frame),
        runs=", ".join(drawn.run_ids),
        back=f"report.html#{drawn.key}",
        figure=render_inline(drawn, svg),
    )
