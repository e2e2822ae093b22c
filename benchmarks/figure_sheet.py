"""Takes the picture of all figures of a sweep that the guide shows, each with its name.

make demo
python benchmarks/figure_sheet.py sweeps-out/digits-<time> docs/images/figures.png
"""

import argparse
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dashboards.data import read
from dashboards.export.files import export_front
from dashboards.figures import needs, sweep_figures
from sweeper.results.exporters import Paper

ACROSS, WIDTH, ROOM, NAME = 4, 380, 14, 24  # pictures in a row, and pixels: of each, between them, of a name
COLORS = 256


def main() -> None:
    """Write the sheet, with few colours so that it stays small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="folder of a sweep")
    parser.add_argument("path", type=Path, help="the picture")
    options = parser.parse_args()
    pictures = draw_all(options.sweep)
    rows = [list(pictures.items())[first : first + ACROSS] for first in range(0, len(pictures), ACROSS)]
    heights = [NAME + max(picture.height for _, picture in row) + ROOM for row in rows]
    sheet = Image.new("RGB", (ACROSS * (WIDTH + ROOM), sum(heights)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=15)
    for row, top in zip(rows, [sum(heights[:i]) for i in range(len(heights))], strict=True):
        for column, (name, picture) in enumerate(row):
            left = column * (WIDTH + ROOM)
            pen.text((left + 8, top + 2), name, fill="black", font=font)
            sheet.paste(picture, (left, top + NAME))
    sheet.quantize(COLORS).save(options.path, optimize=True)
    print(f"{options.path}: {len(pictures)} figures, {options.path.stat().st_size / 1e3:.0f} kB")


def draw_all(sweep: Path) -> dict[str, Image.Image]:
    """Return a picture of each figure that the sweep has data for, as wide as a column where it fits one."""
    data, kinds, pictures = read(sweep), sweep_figures(), {}
    for name, kind in kinds.items():
        if needs(kinds, data)[name]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            preset = "column" if kind.for_paper else None
            paper = Paper.of(preset, None, None, title=False, caption=True)
            with Image.open(export_front(data, Path(folder) / "figure.png", figure=name, paper=paper)) as picture:
                size = WIDTH, round(picture.height * WIDTH / picture.width)
                pictures[name] = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    return pictures


if __name__ == "__main__":
    main()
