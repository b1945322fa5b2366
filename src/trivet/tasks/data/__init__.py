"""Labelled images by name, in memory. Importing this, and reading any source, loads numpy but never torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.core.lazy import attach

if TYPE_CHECKING:
    from trivet.tasks.data.base import SourceInfo
    from trivet.tasks.data.download import fetch
    from trivet.tasks.data.errors import UnusableDataError
    from trivet.tasks.data.image_data import ImageData
    from trivet.tasks.data.sources import check_images, describe, load_images

__all__ = ["ImageData", "SourceInfo", "UnusableDataError", "check_images", "describe", "fetch", "load_images"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "ImageData": ".image_data",
        "SourceInfo": ".base",
        "UnusableDataError": ".errors",
        "check_images": ".sources",
        "describe": ".sources",
        "fetch": ".download",
        "load_images": ".sources",
    },
)
