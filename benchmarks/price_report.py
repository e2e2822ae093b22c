"""Draws what `price.py` has measured, as the guide shows it, and prints its tables.

python benchmarks/price_report.py docs/images/prices.png
"""

import argparse
from io import BytesIO
from pathlib import Path

from _measured_ways import FIGURE
from _price_table import TABLE, Table
from PIL import Image

from dashboards.export.pictures import render
from dashboards.figures import DARK, LIGHT


def main() -> None:
    """Write the picture, with few colours so that it stays small."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the picture")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    table = Table.read(options.table)
    figure = FIGURE.draw([row.spending() for row in table.rows], DARK if options.dark else LIGHT)
    with Image.open(BytesIO(render(figure, "png"))) as picture:
        picture.convert("RGB").quantize(64).save(options.path, optimize=True)
    print(table.markdown())


if __name__ == "__main__":
    main()
