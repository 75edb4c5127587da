"""The table of fields. A new field is one module of this package and one line here."""

from __future__ import annotations

from legacy.meaning import Field, climate, hierarchies, netcdf, pages, plates, tables, volumes

FIELDS: tuple[Field, ...] = (
    climate.FIELD,
    hierarchies.FIELD,
    netcdf.FIELD,
    pages.FIELD,
    plates.FIELD,
    tables.FIELD,
    volumes.FIELD,
)
