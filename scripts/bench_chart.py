"""Bar charts as SVG, written by hand: panels side by side that share their rows."""

from html import escape

LABELS, PANEL, BAR, ROW, TOP = 190, 176, 100, 22, 58
COLOURS = {"ours": "#c2410c", "base": "#6b7280", "other": "#2563eb"}


def text(x, y, content, size=12, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x}" y="{y}" font-size="{size}"{more}>{escape(content)}</text>'


def chart(title, rows, panels):
    """SVG of horizontal bars.

    rows: (label, "ours", "base" or "other"). panels: (heading, a note on which values are better, a cell for each row,
    format); a cell is a number, or a text that is shown instead of a bar.
    """
    width, height = LABELS + PANEL * len(panels) + 8, TOP + ROW * len(rows) + 12
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">', f"<title>{escape(title)}</title>",
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             text(12, 20, title, 14, font_weight="bold", fill="#111827")]
    for place, (label, _) in enumerate(rows):
        y = TOP + ROW * place
        if place % 2 == 0:
            parts.append(f'<rect x="6" y="{y}" width="{width - 12}" height="{ROW}" fill="#f3f4f6"/>')
        parts.append(text(LABELS - 8, y + 15, label, fill="#111827", text_anchor="end"))
    for place, panel in enumerate(panels):
        parts += bars(LABELS + PANEL * place, rows, *panel)
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(x, rows, heading, better, cells, show):
    most = max((cell for cell in cells if isinstance(cell, (int, float))), default=1) or 1
    yield text(x, TOP - 20, heading, 12, font_weight="bold", fill="#111827")
    yield text(x, TOP - 6, better, 10, fill="#6b7280")
    for place, ((_, kind), cell) in enumerate(zip(rows, cells, strict=True)):
        y = TOP + ROW * place
        if isinstance(cell, str):
            yield text(x, y + 15, cell, 10, fill="#6b7280", font_style="italic")
            continue
        length = max(round(BAR * cell / most, 1), 1)
        yield f'<rect x="{x}" y="{y + 4}" width="{length}" height="{ROW - 8}" fill="{COLOURS[kind]}"/>'
        yield text(x + length + 4, y + 15, show(cell), 11, fill="#111827")
