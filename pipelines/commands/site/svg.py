"""SVG elements. Text and attributes are escaped when an element is written, so they may contain any text."""

from unicodedata import east_asian_width
from xml.etree import ElementTree as ET

from markupsafe import Markup

LETTER = 0.64
"""The average width of a letter, relative to its height; an East Asian wide letter has a width of 1.0."""


def element(tag: str, *inside: ET.Element | str, **attributes: str | float) -> ET.Element:
    """
    Create an element with child elements, or with a text.

    The attribute `class_` stands for `class`, `stroke_width` for `stroke-width`.
    """
    created = ET.Element(tag, {name.rstrip("_").replace("_", "-"): _text(attributes[name]) for name in attributes})
    for part in inside:
        if isinstance(part, str):
            created.text = part
        else:
            created.append(part)
    return created


def markup(picture: ET.Element) -> Markup:
    """Serialize an element for a page; only elements of SVG are self-closing, which HTML allows."""
    return Markup(ET.tostring(picture, encoding="unicode"))


def length(text: str, size: float) -> float:
    """Estimate the width of a text whose letters have this height; the fonts of the browser are unknown."""
    return sum(size * (1.0 if east_asian_width(letter) in "WF" else LETTER) for letter in text)


def fitted(text: str, width: float, size: float) -> str:
    """Cut a text, whose letters have the height `size`, to a width: return it, or its beginning with an ellipsis."""
    if length(text, size) <= width:
        return text
    while text and length(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
