"""The region as its file shows it, for tests that spoil it (cache/ram/layout.h)."""
import struct

HEADER = struct.Struct("<QIIII4I11Q4QQQ")
PROCESS_SLOTS, WRITER_STRIPES, FLIGHT_SLOTS, RECENT_MISSES = 256, 256, 1024, 4096
OWN_WRITERS, LISTING_SLOTS, LISTED_ROWS = 64, 64, 2048
PAGE = 4096
RECORD_MAGIC = b"CUBE"
RECORD_HEADER = 256


class Layout:
    def __init__(self, path):
        with open(path, "rb") as file:
            fields = HEADER.unpack(file.read(HEADER.size))
        self.magic, self.version, self.header_bytes, self.segment_bytes, self.segment_count = fields[:5]
        self.bucket_count = fields[5:9]
        (self.jobs, self.processes, self.pins, self.segments, self.writers, self.own_writers, self.flights,
         self.unread, self.misses, self.listings, self.listed) = fields[9:20]
        self.index = fields[20:24]
        self.data, self.file_bytes = fields[24:26]
        assert self.magic == int.from_bytes(b"C1region", "little"), "layout.h has changed"

    def parts(self):
        """Name, where it begins, how long it is: the parts that hold no lock."""
        return {
            "pins": (self.pins, 4 * self.segment_count * PROCESS_SLOTS),
            "segment table": (self.segments, 48 * self.segment_count),
            "writers": (self.writers, 64 * WRITER_STRIPES),
            "own writers": (self.own_writers, 8 * OWN_WRITERS * PROCESS_SLOTS),
            "flights": (self.flights, 16 * FLIGHT_SLOTS),
            "unread bits": (self.unread, self.segment_count * self.segment_bytes // 256 // 8),
            "recent misses": (self.misses, 8 * RECENT_MISSES),
            "listings": (self.listings, 1024 * LISTING_SLOTS),
            "listed directories": (self.listed, 32 * LISTED_ROWS),
            "index": (self.index[0], 64 * self.bucket_count[0]),
            "counters": (HEADER.size + 8 + 40, 7 * 8 + 8 * 8),
        }


def records(region, layout):
    """Where records begin."""
    # Of a copy: CPython's mmap.find() reads a byte behind the mapping (gh-105235) and dies of it now and then.
    bytes_of_region = bytes(region)
    at = layout.data
    found = []
    while (at := bytes_of_region.find(RECORD_MAGIC, at)) >= 0:
        if at % 64 == 0:
            found.append(at)
        at += 4
    return found
