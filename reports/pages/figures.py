"""Place figures on the report's page, or on pages of their own.

Pictures of images, and figures above `LARGEST` bytes, would make the report too large; it shows a
thumbnail with a link to their page. These pages request nothing. In MLflow's list of files, a page
is shown in a frame without links to others, so it names them.
"""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path

import jinja2

from reports.figures.figure import GRID, PANEL, DrawnFigure, use_report_style
from reports.frame import Frame
from reports.tables.cells import find_protocol
from reports.tables.labels import to_slug

CSS_INCH = 96  # CSS pixels
LARGEST = 250_000  # bytes of a figure's SVG in the report itself
THUMBNAIL_SIDE = 260  # CSS pixels of the longer side of a thumbnail, which has two pixels for each
GREY = "#7d8590"  # letters that are read on a light page and on a dark one
# colours of drawings that follow the page's scheme: name → light, dark
THEME = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#000000", "#e6edf3"),
    "grid": (GRID, "#30363d"),
    "panel": (PANEL, "#21262d"),
}


def load_template(name: str) -> jinja2.Template:
    """Load a template of this folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    ).get_template(name)


def has_own_page(drawn: DrawnFigure, svg: Path) -> bool:
    """Return whether a figure has a page of its own."""
    return drawn.apart or svg.stat().st_size > LARGEST


def build_page_name(drawn: DrawnFigure) -> str:
    """Return the file name of a figure's own page."""
    return f"{drawn.key}.html"


def render_in_report(drawn: DrawnFigure, svg: Path) -> dict[str, str]:
    """Return the HTML of a figure for the report: in full, or a thumbnail with a link."""
    if not has_own_page(drawn, svg):
        return render_inline(drawn, svg)
    data, width = _render_thumbnail(drawn)
    return _build_template_fields(drawn, "webp", data, width, page=build_page_name(drawn))


def render_inline(drawn: DrawnFigure, svg: Path) -> dict[str, str]:
    """Return the HTML of a figure in full, with tooltips."""
    spots = [[round(1000 * x), round(1000 * y), text] for x, y, text in drawn.locate_spots()]
    text = json.dumps(spots, ensure_ascii=False, separators=(",", ":")) if spots else ""
    data = apply_page_colors(svg.read_text(encoding="utf-8")).encode()
    width = drawn.figure.get_figwidth() * CSS_INCH
    return _build_template_fields(drawn, "svg+xml", data, width, spots=text)


def _build_template_fields(
    drawn: DrawnFigure,
    image_type: str,
    data: bytes,
    width: float,
    *,
    spots: str = "",
    page: str = "",
) -> dict[str, str]:
    """Return the fields of the template of a figure."""
    return {
        "key": drawn.key,
        "title": drawn.title,
        "caption": drawn.caption,
        "source": f"data:image/{image_type};base64,{base64.b64encode(data).decode()}",
        "href": f"runs-{to_slug(drawn.study)}",
        "width": f"{width:.0f}",
        "spots": spots,
        "page": page,
    }


def apply_page_colors(svg: str) -> str:
    """Return an SVG that follows the light or dark scheme of the page around it."""
    light = "".join(f"--{name}: {color}; " for name, (color, _) in THEME.items())
    dark = "".join(f"--{name}: {color}; " for name, (_, color) in THEME.items())
    for name, (color, _) in THEME.items():
        svg = svg.replace(f": {color}", f": var(--{name})")
    rules = (
        f":root {{ {light}fill: var(--ink); }} "
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}"
    )
    return svg.replace("<defs>", f"<style>{rules}</style><defs>", 1)


def _render_thumbnail(drawn: DrawnFigure) -> tuple[bytes, int]:
    """Return a WebP thumbnail with transparent background, and its width in CSS pixels."""
    from matplotlib.spines import Spine
    from matplotlib.text import Text
    from PIL import Image

    inches = max(drawn.figure.get_size_inches())
    for part in drawn.figure.findobj(lambda artist: isinstance(artist, Text | Spine)):
        part.set(color=GREY)
    png, webp = BytesIO(), BytesIO()
    with use_report_style():
        drawn.figure.savefig(png, format="png", dpi=2 * THUMBNAIL_SIDE / inches, transparent=True)
    with Image.open(png) as image:
        image.convert("RGBA").save(webp, "WEBP", quality=82)
        return webp.getvalue(), image.width // 2


def render_figure_page(frame: Frame, drawn: DrawnFigure, svg: Path) -> str:
    """Return the HTML of a figure's own page (well-formed XML too)."""
    return load_template("apart.html.j2").render(
        title=drawn.title,
        caption=drawn.caption,
        sweep=f"{frame.document['name']} ({frame.document['sweep_id']})",
        protocol=find_protocol(frame),
        runs=", ".join(drawn.run_ids),
        back=f"report.html#{drawn.key}",
        figure=render_inline(drawn, svg),
    )
