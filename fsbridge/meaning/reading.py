"""Reads what arrays and groups mean: asks all conventions, in a stated order, and what one has said stays said.

Not here: the conventions (`conventions/`), where attributes and neighbours come from (the layouts).
"""

from __future__ import annotations

from fsbridge.meaning import Attributes, Axis, GroupMeaning, Meaning
from fsbridge.meaning.convention import Convention, Written
from fsbridge.meaning.conventions import (
    anndata,
    cf,
    cosem,
    gdal,
    geozarr,
    ilastik,
    imaris,
    n5,
    names,
    nexus,
    nifti,
    nwb,
    ome,
    types,
    xarray,
)

CONVENTIONS: tuple[Convention, ...] = (
    *(ome.OME, nifti.NIFTI, cosem.COSEM, n5.N5, ilastik.SIZES, imaris.IMARIS),  # each describes all axes of an array
    *(names.NAMES, nexus.NEXUS),  # names of axes that have none
    *(xarray.XARRAY, gdal.GDAL, cf.CF, geozarr.GEOZARR, nwb.NWB),  # coordinates, elements, places
    anndata.ANNDATA,
    types.TYPES,  # what the formats themselves say of elements
)
"""All conventions, in the order in which they are asked."""

PARTICULAR = frozenset().union(*(convention.particular for convention in CONVENTIONS))
"""Attributes of a group that describe its members one by one. Arrays below groups without any share their meaning."""


def read_array(written: Written) -> Meaning:
    """Return what an array means."""
    meaning = Meaning((Axis(),) * written.rank)
    for convention in CONVENTIONS:
        if convention.array is not None:
            meaning = convention.array(written, meaning)
    return meaning


def read_group(attributes: Attributes) -> GroupMeaning:
    """Return what a group with these attributes means."""
    meaning = GroupMeaning()
    for convention in CONVENTIONS:
        if convention.group is not None:
            meaning = convention.group(attributes, meaning)
    return meaning
