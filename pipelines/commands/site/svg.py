"""Elements of a picture. Text and attributes are escaped when they are written, so any text may go in."""

from unicodedata import east_asian_width
from xml.etree import ElementTree as ET

from markupsafe import Markup

LETTER = 0.64
"""How wide a letter is on average, as a share of its height; a wide one is nearly twice that."""


def element(tag: str, *inside: ET.Element | str, **attributes: str | float) -> ET.Element:
    """
    Make an element.

    Args:
        tag: Its name.
        inside: The elements in it, or its text.
        attributes: Its attributes: `class_` stands for `class`, `stroke_width` for `stroke-width`.
    """
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): _written(attributes[name]) for name in attributes})
    for part in inside:
        if isinstance(part, str):
            made.text = part
        else:
            made.append(part)
    return made


def markup(made: ET.Element) -> Markup:
    """Write an element for a page; no empty element but SVG's own is closed in itself."""
    return Markup(ET.tostring(made, encoding="unicode"))


def length(text: str, size: float) -> float:
    """
    Estimate how wide a text is; the fonts of the reader are not known.

    Args:
        text: The text.
        size: The height of its letters.
    """
    return sum(size * (1.0 if east_asian_width(letter) in "WF" else LETTER) for letter in text)


def fitted(text: str, width: float, size: float) -> str:
    """
    Cut a text off where it does not fit.

    Args:
        text: The text.
        width: The room that there is.
        size: The height of its letters.

    Returns:
        The text, or its beginning with an ellipsis.
    """
    if length(text, size) <= width:
        return text
    kept = text
    while kept and length(f"{kept}…", size) > width:
        kept = kept[:-1]
    return f"{kept}…"


def _written(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
