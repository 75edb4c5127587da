"""Every default of fsbridge with its unit and reason. Not here: parsing of the command line (`commands/`)."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20

AT_ONCE_BYTES = 64 * 1024
"""Bytes of a stored object up to which the event loop itself reads it."""

LEAST_CACHE = MIB
"""Smallest permitted cache in bytes. A smaller one keeps no chunk long enough to be read."""

LARGEST_CHUNK = 2048 * MIB
"""Decoded bytes above which no cache lets a compressed chunk be read: many codecs count in 32 bits."""

LEVELS = ("debug", "info", "warning", "error", "critical")
"""Levels of the log, the most talkative first."""

SPILL_DIR = "/var/tmp"

LISTED_EACH_SECONDS = 50e-6
"""Seconds per member for which listed entries stay valid after the metadata TTL: far more than listing one takes."""

LISTED_MOST_SECONDS = 60.0
"""Most seconds that this adds up to: a sparse grid may be far larger than the number of its stored chunks."""


def listed_lifetime(ttl: float, extent: int) -> float:
    """Return the seconds that entries of a directory of `extent` members stay valid: enough to list all, then stat each.

    `du` and `ls -l` do that; entries that expired meanwhile would cost a look-up each, a hundred times the time.
    """
    return ttl + min(LISTED_MOST_SECONDS, extent * LISTED_EACH_SECONDS) if ttl else 0.0


def listed_again(ttl: float, extent: int) -> float:
    """Return for how many seconds a listing may be shown again. Its entries then stay valid long enough to stat them all."""
    return ttl * 3 / 4 + min(LISTED_MOST_SECONDS, extent * LISTED_EACH_SECONDS) / 2 if ttl else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for what a store contains. Above a limit there is an error, never a guess."""

    document: int = 16 * MIB
    """Bytes of one metadata document: the largest real ones (consolidated metadata of thousands of arrays) are a few MiB."""
    json_depth: int = 64
    """Deepest nesting of a JSON document, as zarr-python's MAX_JSON_DEPTH."""
    json_values: int = 1_000_000
    """Values and names in a JSON document: parsed they take about 100 bytes each, and hold up everything else meanwhile."""
    depth: int = 64
    """Nested groups; HDF5 hard links can form cycles, so the tree needs an end (ELOOP)."""
    max_chunk: int = LARGEST_CHUNK
    """Decoded bytes of one chunk; also what the cache can hold."""
    encoded_factor: int = 2
    """An encoded chunk may be at most this times its decoded size plus 1 MiB: codecs grow incompressible data a little."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request to a server is repeated, until it has failed. Times in seconds."""

    timeout: float
    """The longest wait for an answer, and for more of its body."""
    retry_timeout: float
    """After so long it is not sent again."""
    max_retries: int
    max_backoff: float
    """The longest pause before it is sent again."""


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """How long the server of a remote store is waited for, and how many of its answers are kept. No option sets these."""

    metadata: Patience = Patience(3.5, 5.0, 3, 1.0)
    """For look-ups and listings: nine seconds and a half at most, within P7's ten."""
    data: Patience = Patience(10.0, 18.0, 8, 1.0)
    """For chunks: 29 seconds at most, within P7's thirty."""
    first_seconds: float = 4.0
    """Seconds from the first request to the first answer: more than a request takes, and few enough that the command fails
    within five seconds."""
    root_seconds: float = 2.0
    """Seconds for the listing of the root when a store is opened: a flat array of a million chunks has a thousand pages."""
    level_seconds: float = 30.0
    """Most seconds for the listing of one level, longer than any request takes: an endless listing would fill all memory."""
    page_keys: int = 1000
    """Keys of a page of a LIST."""
    part_pages: int = 6
    """Least expected pages of a part of a listing, so that a listing of ten pages is not divided."""
    odd_page_seconds: float = 9.0
    """Most seconds for a page of a LIST that obstore cannot make."""
    odd_page_bytes: int = 16 * MIB
    """Most bytes of such a page. A thousand keys of S3 take at most 4 MiB, spelled as they are in URLs."""
    walk_seconds: float = 10.0
    """Seconds within which listings of a few neighbouring directories count as a walk through all of them."""
    fetched_seconds: float = 10.0
    """Seconds for which prefetched bytes wait for a reader: a slow program may still be reading those before them."""
    kept_seconds: float = 3.0
    """Seconds for which an object's bytes are kept for their next reader. It may be slow on a busy machine, and without them
    they would be sent twice."""
    members: int = 400_000
    """Members of all remembered listings together, about 100 bytes each. The least recently used are dropped first."""
    objects: int = 16384
    """Objects with a remembered last answer, and as many directories that are known to exist: about 5 MB."""
    trees: int = 4096
    """Directories remembered as listed with all that lies beneath."""
    bodies: int = 64
    """Objects with bytes that are kept for their next reader."""
    idle_seconds: float = 10.0
    """Seconds for which an unused connection stays open, and at most twice that, because obstore looks only that often."""
    credentials_seconds: float = 360.0
    """Seconds for which obstore may use a profile's credentials. It asks again five minutes before the end: once a minute,
    while in use."""


REMOTE_LIMITS = RemoteLimits()


@dataclass(frozen=True, slots=True)
class Remote:
    """How remote stores are reached. Secrets come from the environment and are stored nowhere."""

    anonymous: bool = False
    """Requests are not signed: public buckets."""
    profile: str = ""
    """A section of `~/.aws/config` (needs boto3)."""
    region: str = ""
    endpoint: str = ""
    """URL of an S3-compatible server, of a GCS emulator, of Azurite."""
    allow_http: bool = False
    """Unencrypted connections, also where a redirect or the environment leads to one."""
    absent_403: bool = False
    """Treat a refusal (403) as absent, because S3 without the permission to list answers 403 for missing objects."""
    block_cache: str = ""
    """Directory that keeps stored bytes, for this mount and others, now and after a restart."""
    block_cache_size: int = 20 << 30
    """Bytes of it at most; a twentieth of the disk stays free besides."""
    listing_ttl: float = 60.0
    """Seconds for which a listing is remembered: one costs as much as a dozen reads."""
    limits: RemoteLimits = REMOTE_LIMITS


def parse_place(text: str) -> tuple[str, str]:
    """Return SOURCE and PATH of `SOURCE//PATH`; the path is empty if none is given.

    The path begins behind the last `//` that does not belong to a URL's scheme: no path of a tree has one.
    """
    source, slashes, path = text.rpartition("//")
    return (source, path) if slashes and source and not source.endswith((":", ":/")) else (text, "")


@dataclass(frozen=True, slots=True)
class Config:
    """One mount. Sizes in bytes, times in seconds."""

    source: str
    mountpoint: str
    inside: tuple[str, ...] = ()
    """Names that lead to the group or array that is shown as the root, in the source's own spelling."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """Patterns of `fnmatch` for paths of groups and arrays. A path is shown if it matches a pattern of `include` (if there
    are any) and none of `exclude`; a pattern also stands for all that is below a match, and the groups above stay."""
    layout: str = "zarr3"
    """Names of layouts, separated by commas."""
    chunk_separator: str = "."
    """Separator of the coordinates in the chunk keys of the layout `zarr2`; `/` makes nested directories."""
    consolidated: bool = False
    """The layout `zarr2` has a `.zmetadata`; off because it is out of date as soon as a store grows."""
    format: str = "auto"
    cache_size: int = 256 * MIB
    """Decoded chunks in memory, in flight and cached (P6)."""
    files: tuple[str, ...] = ("html", "npy")
    """File types that the layout `files` lists for each array. Files of all other types open by their names, too."""
    spill_dir: str = SPILL_DIR
    """Directory for decoded chunks that the cache cannot hold: on a disk, because /tmp is often memory."""
    spill_size: int = 4096 * MIB
    """Most bytes in that directory."""
    loop_limit: float = 0.0
    """Seconds of computing for one request, without a pause, that the event loop may be kept before it is logged; 0: any."""
    read_ahead: bool = True
    """Make, or request from a server, what a program will want next before it asks for it.

    Off to find out whether that is to blame for something. `kernel/readahead` decides it; for remote stores also
    `Listings._walk`, `ElementBytes._expect`, `NextDatasets`, `Blocks._ahead_of` and `Zarr2Hierarchy._are_wanted`. Each of
    them says what it is worth.
    """
    immutable: bool = False
    """The store never changes: no revalidation, long kernel timeouts."""
    xattrs: bool = False
    """Answer extended attributes; off because each `ls -l` then asks twice per file."""
    allow_external: tuple[str, ...] = ()
    """Directories that links of a source may lead into, and URLs below which its data may lie."""
    hdf5_plugins: tuple[str, ...] = ()
    """Directories from which the HDF5 process may load filter plug-ins: code, so none unless asked."""
    allow_other: bool = False
    """Let other users use the mount, see `for_everybody`."""
    uid: int | None = None
    gid: int | None = None
    """Owner and group of all files; None: the mounting user's."""
    umask: int | None = None
    """Permission bits that are removed from the mode of all files; None: see `hidden_mode`."""
    foreground: bool = False
    verify: bool = True
    """Verify the checksums that a format offers beyond its codecs' own."""
    nonempty: bool = False
    """Mount over another mount."""
    force: bool = False
    """Clear a stale mount on the mount point first."""
    log_file: str | None = None
    log_level: str = "warning"
    log_format: str = "text"
    """`json`: each record is one line of JSON."""
    access_log: str | None = None
    """File that gets a line of JSON for each open and each read that was not answered from memory."""
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Variables that the daemon's environment gets; they may be secrets."""
    kernel_options: tuple[str, ...] = ()
    """Options for the kernel, passed on as they are (`noatime`, `nosuid`, ...)."""
    metadata_deadline: float = 10.0
    """Seconds for a metadata request (P7): longer than any disk takes, shorter than a person's patience with `ls`."""
    read_deadline: float = 30.0
    """Seconds for a read (P7): enough for a large chunk of a slow codec on a loaded machine."""
    metadata_ttl: float = 1.0
    """Kernel timeout of entries and attributes (P9); 0 made `ls -l` 73 times slower."""
    limits: Limits = field(default_factory=Limits)
    remote: Remote = field(default_factory=Remote)

    @property
    def place(self) -> str:
        """Return the source and the path in it that is the root, as on the command line: `SOURCE//PATH`."""
        return "//".join([self.source, *filter(None, ["/".join(name.replace("/", "%2F") for name in self.inside)])])

    @property
    def is_remote(self) -> bool:
        """True if the source is a URL: a request waits for the network then, and many can wait at once."""
        return "://" in self.source

    @property
    def for_everybody(self) -> bool:
        """True if the mount shows only what all users may read: `allow_other` is set, but no owner, group or umask."""
        return self.allow_other and (self.uid, self.gid, self.umask) == (None, None, None)

    @property
    def hidden_mode(self) -> int:
        """Return the bits that the mode of a file lacks.

        If other users are let in and an owner or a group is named, nobody but that owner and that group has access.
        """
        if self.umask is None:
            return 0o027 if self.allow_other and not self.for_everybody else 0
        return self.umask

    @property
    def external_folders(self) -> tuple[str, ...]:
        """Return the entries of `allow_external` that are directories."""
        return tuple(path for path in self.allow_external if "://" not in path)

    @property
    def external_urls(self) -> tuple[str, ...]:
        """Return the entries of `allow_external` that are URLs."""
        return tuple(path for path in self.allow_external if "://" in path)

    @property
    def uses_network(self) -> bool:
        """True if anything may be read from elsewhere."""
        return self.is_remote or bool(self.external_urls)

    @property
    def max_chunk(self) -> int:
        """Return the largest decoded size in bytes of a chunk that this mount reads if decoding takes that memory twice."""
        return min(self.limits.max_chunk, self.cache_size // 2)

    @property
    def max_direct(self) -> int:
        """Return the largest chunk that can be decoded right into its place, beside its stored bytes."""
        return min(self.limits.max_chunk, self.cache_size)
