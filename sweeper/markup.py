"""Tables as text and LaTeX, and HTML for notebooks: Markdown rendered, everything that users wrote escaped."""

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 100  # characters of a line of text
_IN_LATEX = {one: f"\\{one}" for one in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{INFINITY}": r"$\infty$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\le$",
}


def rendered(markdown: str) -> str:
    r"""Return Markdown as HTML; HTML in it is shown, not obeyed.

    >>> rendered("**3** < <b>4</b>")
    '<p><strong>3</strong> &lt; &lt;b&gt;4&lt;/b&gt;</p>\n'
    """
    from markdown_it import MarkdownIt  # needed in notebooks only

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))


def paragraph(text: str, *, strong: bool = False) -> str:
    """Return a text as a paragraph."""
    return f"<p><b>{escape(text)}</b></p>" if strong else f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return texts as a table.

    >>> table(["a"], [["<1>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def in_latex(text: str) -> str:
    r"""Return a text as LaTeX shows it.

    >>> in_latex("certified@36/255 at 5 % of a_b")
    'certified@36/255 at 5 \\% of a\\_b'
    """
    return "".join(_IN_LATEX.get(one, one) for one in text)


def latex_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, label: str) -> str:
    """Return texts as a table of LaTeX, which needs the package booktabs; ``label`` is for references to it."""
    lines = [" & ".join(map(in_latex, row)) + r" \\" for row in [heads, *rows]]
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{in_latex(caption)}}}",
            rf"  \label{{tab:{label}}}",
            rf"  \begin{{tabular}}{{{'l' * len(heads)}}}",
            r"    \toprule",
            f"    {lines[0]}",
            r"    \midrule",
            *(f"    {line}" for line in lines[1:]),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of columns; a last cell that has no room stands on a line of its own."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        *cells, last = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        line = "  ".join([*cells, last]).rstrip()
        lines += [line] if len(line) <= WIDTH else ["  ".join(cells).rstrip(), f"    {last.rstrip()}"]
    return lines
