"""Transformations of coordinates in OME-NGFF, composed to one matrix. Those that are no matrix (displacements) are unknown.

A matrix has one row and one column more than there are axes, so that it also shifts. Not here: which transformations an
array has (`ome.py`), matrices that are stored in arrays of their own, which are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from fsbridge.meaning import Attributes
from fsbridge.meaning.attributes import dicts, numbers
from fsbridge.metadata import JSON

Matrix = NDArray[np.float64]

_DEEPEST = 16
"""Most transformations inside of each other."""

_HUGE = 1e150
"""A number that is too large for any header. Infinity times zero would make other axes unknown, too."""


def compose(transformations: Iterable[Attributes], rank: int, depth: int = 0) -> Matrix | None:
    """Return the matrix of transformations that apply one after the other; None if one of them is unknown."""
    result = np.eye(rank + 1)
    for transformation in transformations:
        one = _matrix(transformation, rank, depth)
        if one is None:
            return None
        with np.errstate(all="ignore"):
            result = np.clip(one @ result, -_HUGE, _HUGE)
    return None if np.isnan(result).any() else result


def is_scaled(transformations: Iterable[Attributes], depth: int = 0) -> bool:
    """True if some transformation says how far apart elements are. The identity and translations do not."""
    kinds = [(one, one.get("type")) for one in transformations]
    nested = [one for one, kind in kinds if kind in ("sequence", "byDimension", "bijection", "inverseOf")]
    if any(kind in ("scale", "affine", "rotation") for _, kind in kinds):
        return True
    return depth < _DEEPEST and any(is_scaled(_inner(one), depth + 1) for one in nested)


def _inner(transformation: Attributes) -> Iterable[Attributes]:
    """Return the transformations that a transformation consists of."""
    listed = [*dicts(transformation, "transformations")]
    alone = [transformation.get(name) for name in ("forward", "transformation")]
    own = [one.get("transformation") for one in listed]
    return [one for one in (*listed, *alone, *own) if isinstance(one, dict)]


def _matrix(transformation: Attributes, rank: int, depth: int) -> Matrix | None:
    if depth > _DEEPEST:
        return None
    kind = transformation.get("type")
    if kind == "sequence":
        return compose(dicts(transformation, "transformations"), rank, depth + 1)
    if kind == "byDimension":
        return _by_dimension(transformation, rank, depth)
    if kind in ("bijection", "inverseOf"):
        inner = transformation.get("forward" if kind == "bijection" else "transformation")
        inner_matrix = _matrix(inner, rank, depth + 1) if isinstance(inner, dict) else None
        return inner_matrix if kind == "bijection" else _inverse(inner_matrix)
    written = transformation.get(str(kind))
    matrix = np.eye(rank + 1)
    if kind in ("scale", "translation"):
        values = numbers(written, rank)
        if values is None:
            return None
        matrix[range(rank), range(rank) if kind == "scale" else rank] = values
    elif kind in ("affine", "rotation"):
        rows = _rows(written, rank, rank + (kind == "affine"))
        if rows is None:
            return None
        matrix[:rank, : rows.shape[1]] = rows
    elif kind == "mapAxis":
        sources = _indexes(written, rank)
        if sources is None or len(sources) != rank:
            return None
        matrix[:rank, :rank] = np.eye(rank)[sources]
    elif kind != "identity":
        return None
    return matrix


def _rows(written: JSON, count: int, length: int) -> Matrix | None:
    rows = [numbers(row, length) for row in written] if isinstance(written, list) and len(written) == count else [None]
    return None if None in rows else np.array(rows, np.float64)


def _indexes(written: JSON, rank: int) -> list[int] | None:
    """Return numbers of axes, each at most once; None for anything else."""
    if not isinstance(written, list):
        return None
    numbers = [one for one in written if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < rank]
    return numbers if len(numbers) == len(written) == len(set(numbers)) and numbers else None


def _by_dimension(transformation: Attributes, rank: int, depth: int) -> Matrix | None:
    """Return the matrix of transformations that each apply to some of the axes. Together they must yield all axes."""
    matrix, left = np.zeros((rank + 1, rank + 1)), set(range(rank))
    matrix[rank, rank] = 1
    for part in dicts(transformation, "transformations"):
        inner = part.get("transformation", part)
        sources, targets = (_indexes(part.get(name), rank) for name in ("input_axes", "output_axes"))
        if sources is None or targets is None or len(sources) != len(targets) or not left.issuperset(targets):
            return None
        one = _matrix(inner, len(sources), depth + 1) if isinstance(inner, Mapping) else None
        if one is None:
            return None
        left -= set(targets)
        matrix[np.ix_([*targets], [*sources, rank])] = one[:-1]
    return None if left else matrix


def _inverse(matrix: Matrix | None) -> Matrix | None:
    try:
        return None if matrix is None else np.linalg.inv(matrix).astype(np.float64)
    except np.linalg.LinAlgError:
        return None
