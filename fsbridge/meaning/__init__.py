"""What arrays and groups stand for: `Meaning`, one frozen record of an array, and `GroupMeaning`, one of a group.

Attributes, and what lies beside an array, are read in one place: `reading.py` asks each convention (`conventions/`) in a
stated order. Everything that shows an array reads these records, and knows no word of a convention. Unknown is None, never
a default. Pure: no clock, thread or store. Imports no library, because `fsbridge --help` names the file types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fsbridge.metadata import JSON

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Attributes: TypeAlias = Mapping[str, JSON]

Coordinate: TypeAlias = "Callable[[str], tuple[NDArray[np.float64] | None, Attributes] | None]"
"""Finds an array of at most one dimension in the same group, by name, and returns its values and its attributes.

The values are None if they are no numbers, or too many to read. The whole is None if there is no such array.
"""


def no_coordinate(name: str) -> None:
    """Return None, because nothing lies beside the array."""


Path: TypeAlias = tuple[str, ...]
"""Names that lead from a group to what is below it, or from a compound to a field."""

Distant: TypeAlias = Callable[[Path], Attributes | None]
"""Finds a group by its path from the root, and returns its attributes; None if there is no such group."""


def no_group(path: Path) -> None:
    """Return None, because nothing is known of groups that are not above the array."""


Kind: TypeAlias = Literal["space", "time", "channel", "northing", "easting"]
"""What an axis counts. The last two are coordinates of a map in a projection."""


Orientation: TypeAlias = Literal["L", "R", "P", "A", "S", "I"]
"""Where in a body coordinates grow: to the left, right, back (posterior), front (anterior), head (superior), feet."""


class Axis(NamedTuple):
    """What one dimension of an array means: element i lies at `offset + i * scale`, in `unit` ("nanometer", "second", ...).

    `unit` is folded to one spelling where it is known, else as the source spells it; `scale` is None if none is given.
    `kind`: what the source says that the axis counts, whatever its name and unit are; None if it does not say so.
    `calendar`: of dates, if the unit is "days since 2000-01-01" or the like (`dates.py`); None if the source names none.
    `orientation`: in which direction of a body the coordinates grow; None if the source does not say so.
    """

    name: str | None = None
    unit: str | None = None
    scale: float | None = None
    offset: float = 0.0
    kind: Kind | None = None
    calendar: str | None = None
    orientation: Orientation | None = None


Axes: TypeAlias = tuple[Axis, ...]
"""One per dimension, in the array's own dimension order."""


class Affine(NamedTuple):
    """Where elements lie along axes that are turned or sheared against the dimensions of the array.

    `dimensions`: numbers of the array's dimensions, ascending. The element with the indexes `i` along them lies at
    `matrix @ i + offset`, in the units of the axes of the same dimensions. These axes have no scale.
    """

    dimensions: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    offset: tuple[float, ...]


class Channel(NamedTuple):
    """One channel. `color`: red, green and blue; `window`: the values that are shown as black and as full colour."""

    label: str | None = None
    color: tuple[int, int, int] | None = None
    window: tuple[float, float] | None = None


class Image(NamedTuple):
    """The image that an array is a level of. `name`: None if neither the image nor its group has one."""

    name: str | None
    channels: tuple[Channel, ...] = ()


Method: TypeAlias = Literal[
    "Albers", "Lambert azimuthal", "Lambert conic", "Mercator", "polar stereographic", "transverse Mercator"
]
"""How the Earth becomes a map."""


class Projection(NamedTuple):
    """A projection, described by its parameters, in degrees and meters.

    `latitude`, `longitude`: of the origin; `easting`, `northing`: coordinates of the origin. `radius`: of the equator;
    `flattening`: its inverse, 0 for a sphere. `parallels`: the parallels of true scale, of which cones have two; `scale`: at
    the origin, if there are no such parallels.
    """

    method: Method
    latitude: float
    longitude: float
    easting: float
    northing: float
    radius: float
    flattening: float
    parallels: tuple[float, ...] = ()
    scale: float | None = None


class System(NamedTuple):
    """A coordinate reference system. `code`: of EPSG; `geographic`: its coordinates are angles; both None if not known.

    `projection`: by its parameters, if these are known and say everything about the datum.
    """

    code: int | None
    geographic: bool | None
    projection: Projection | None = None


Names: TypeAlias = Mapping[int, str]
"""What whole numbers are called."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the elements stand for.

    `missing`: the numbers that stand for missing elements, first the one that its format itself defines. `packing`: factor
    and offset that turn stored numbers into the quantity. `unit`: of that quantity. `signed`: whether integers are signed,
    if attributes say something else than the type. `greatest`: a number that no element exceeds. `labels`: each element is
    the number of an object. `colors`: of such numbers, red, green, blue and how opaque. `events`: the elements are times of
    events. `calendar`: of dates, as that of an axis.

    `names`: of the numbers in the field of a compound at each path; without fields the path is empty. `words`: by field,
    too, where the array with the word for each number is, if there is one: whether its path begins at the root, else at the
    array's group, and the path; -1 has no word. `padding`: fields that are no data. `lists`: each element is a list of
    numbers, of this type as numpy spells it. `characters`: the last dimension has the letters of each text.
    """

    missing: tuple[int | float, ...] = ()
    packing: tuple[float, float] | None = None
    unit: str | None = None
    signed: bool | None = None
    greatest: int | None = None
    labels: bool = False
    colors: tuple[tuple[int, tuple[int, int, int, int]], ...] = ()
    events: bool = False
    calendar: str | None = None
    names: Mapping[Path, Names] = field(default_factory=dict)
    words: Mapping[Path, tuple[bool, Path]] = field(default_factory=dict)
    padding: frozenset[Path] = frozenset()
    lists: str | None = None
    characters: bool = False


Positions: TypeAlias = "NDArray[np.float64]"
"""The position of each element along one axis."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an array means. Each convention adds what it knows to what is known already.

    `positions`: by dimension, where the elements lie along an axis without a regular spacing. `affine`: of axes that are
    turned or sheared; None if none is known. `system`: of a map; None if nothing says that there is one. `image`: the image
    that the array is a level of. `ends`: of events that belong to several units, the number of the element after the last
    one of each unit. `coordinates`: by dimension, the name of the array beside that has the position of each element, if it
    is not called like the axis. `long_name`: what the elements are, in words.
    """

    axes: Axes = ()
    positions: Mapping[int, Positions] = field(default_factory=dict, compare=False)
    affine: Affine | None = None
    values: Values = Values()
    system: System | None = None
    image: Image | None = None
    ends: NDArray[np.int64] | None = field(default=None, compare=False)
    coordinates: Mapping[int, str] = field(default_factory=dict)
    long_name: str | None = None

    def is_placed(self, dimension: int) -> bool:
        """True if it is known where the elements lie along a dimension, by a scale or by an affine transformation."""
        return self.axes[dimension].scale is not None or (self.affine is not None and dimension in self.affine.dimensions)


class Well(NamedTuple):
    """A well of a plate. `path`: names of the groups that lead to it from the plate."""

    path: Path
    row: int
    column: int


class Acquisition(NamedTuple):
    """A run of the microscope in which fields of a plate were taken."""

    number: int
    name: str | None


class Field(NamedTuple):
    """An image of a well. `path`: below the well; `acquisition`: number of its run, None if it is not known."""

    path: Path
    acquisition: int | None = None


class Plate(NamedTuple):
    """A plate of wells. `rows`, `columns`: their names."""

    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[Well, ...]
    acquisitions: tuple[Acquisition, ...] = ()


class Columns(NamedTuple):
    """The members of a group that are the columns of a table, in their order. `row_names`: the member that names the rows.

    `required`: the member `row_names` must exist.
    """

    names: tuple[str, ...]
    row_names: str | None
    required: bool


class EncodedColumn(NamedTuple):
    """A group that is one column. `parts`: names of its two arrays.

    If `coded`, the first array has the numbers of elements of the second, or -1 for none. Else the second array is true
    where the element of the first one is missing.
    """

    parts: tuple[str, str]
    coded: bool


class Sparse(NamedTuple):
    """A matrix that stores only some of its elements: row by row, or column by column if `by_columns`.

    `parts`: names of three arrays: the elements; the column (or row) of each element; where each row (or column) ends among
    the elements, with a 0 in front. `shape`: None if it is not known.
    """

    by_columns: bool
    shape: tuple[int, int] | None
    parts: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class GroupMeaning:
    """What a group means.

    `images`: the paths of the levels of each of its images, the finest first. `numbered`: members that are called `s0`, `s1`
    and so on are levels of one image. `plate`: the plate that the group is. `fields`: the images of a well.
    `columns`: of the table that the group is. `encoded`: the column that the group is. `sparse`: the matrix that it is.
    """

    images: tuple[tuple[Path, ...], ...] = ()
    numbered: bool = False
    plate: Plate | None = None
    fields: tuple[Field, ...] = ()
    columns: Columns | None = None
    encoded: EncodedColumn | None = None
    sparse: Sparse | None = None
