"""The region's file, for tests that corrupt it (cache/region/layout.h)."""
import struct

# RegionHeader up to created_ns: magic, version, the header's size, and RegionLayout with its counts
# and places.
HEADER = struct.Struct("<QII"
                       "10I"
                       "27Q")
MUTEX_BYTES, SEGMENTS_BEGIN_ON = 40, 2 << 20
WRITER_STRIPES, OWN_WRITERS, LEFT_WRITERS, LAST_CHANGES = 256, 64, 256, 2048
FLIGHT_SLOTS, RECENT_MISSES, LISTING_SLOTS, LISTED_ROWS, SERVER_ROWS = 4096, 4096, 64, 2048, 64
UNSERVED_REASONS = 8
PAGE = 4096
CHUNK = 2 << 20
RECORD_MAGIC = b"CUBE"
RECORD_HEADER = 256


class Layout:
    def __init__(self, path):
        with open(path, "rb") as file:
            fields = HEADER.unpack(file.read(HEADER.size))
        (self.magic, self.version, self.header_bytes, self.segment_bytes, self.segment_count,
         self.process_slots) = fields[:6]
        self.process_lanes, self.bucket_count = fields[7], fields[8:13]
        (self.jobs, self.processes, self.pins, self.lanes, self.segments, self.writers,
         self.own_writers, self.left_writers, self.last_changes, self.flights, self.unread,
         self.misses, self.listings, self.listed, self.chunks, self.chunk_buckets,
         self.large_paths, self.servers, self.mail, self.unserved) = fields[13:33]
        self.index = fields[33:38]
        self.data, self.file_bytes = fields[38:40]
        self.chunk_count = self.segment_count * self.segment_bytes // CHUNK
        self.check()

    def check(self):
        """Checks that this file agrees with layout.h."""
        assert self.magic == int.from_bytes(b"C1region", "little"), "the magic number differs"
        assert self.file_bytes == self.data + self.segment_bytes * self.segment_count, (
            "the places are read wrongly")
        parts = [part for name, part in self.parts().items() if name not in ("pins", "counters")]
        # Each table begins at the end of the previous table, except for the part before the index.
        for (at, length), (after, _) in zip(parts, parts[1:-1]):
            assert 0 <= after - at - length < 64, (f"the table at {at} has another length than "
                                                   f"{length}")
        index_end = self.index[-1] + 64 * self.bucket_count[-1]
        assert self.data == -(-index_end //
                              SEGMENTS_BEGIN_ON) * SEGMENTS_BEGIN_ON, "the index is read wrongly"

    def mail_rows(self):
        return {2 << 20: 12, 4 << 20: 64, 16 << 20: 256}[self.segment_bytes]

    def parts(self):
        """Returns the parts without locks: name, start, length."""
        return {
            "pins": (self.pins, 4 * self.segment_count * self.process_slots),
            "lanes": (self.lanes, 64 * self.process_lanes * self.process_slots),
            "segment table": (self.segments, 56 * self.segment_count),
            "writers": (self.writers,
                        64 * WRITER_STRIPES), "own writers": (self.own_writers,
                                                              8 * OWN_WRITERS * self.process_slots),
            "left writers": (self.left_writers, 32 * LEFT_WRITERS),
            "last changes": (self.last_changes, 16 * LAST_CHANGES),
            "flights": (self.flights, 16 * FLIGHT_SLOTS),
            "unread bits": (self.unread, self.segment_count * self.segment_bytes // 256 // 8),
            "recent misses": (self.misses, 8 * RECENT_MISSES), "listings": (self.listings,
                                                                            1024 * LISTING_SLOTS),
            "listed directories": (self.listed,
                                   32 * LISTED_ROWS), "chunks": (self.chunks,
                                                                 384 * self.chunk_count),
            "chunk buckets": (self.chunk_buckets, 32 * (self.chunk_count * 2 // 8 + 1)),
            "large paths": (self.large_paths, 1024 * min(max(self.chunk_count, 32), 4096)),
            "servers": (self.servers, 192 * SERVER_ROWS), "mail": (self.mail,
                                                                   2048 * self.mail_rows()),
            "unserved": (self.unserved, 16 * (8 + 128 * UNSERVED_REASONS)),
            "index": (self.index[0], 64 * self.bucket_count[0]),
            "counters": (HEADER.size + 8 + MUTEX_BYTES, 8 * 8 + 8 * 8),
        }


def records(region, layout):
    """Returns the places where records begin."""
    # Searches a copy, because CPython's mmap.find() reads a byte past the mapping (gh-105235) and
    # sometimes crashes.
    bytes_of_region = bytes(region)
    at = layout.data
    found = []
    while (at := bytes_of_region.find(RECORD_MAGIC, at)) >= 0:
        if at % 64 == 0:
            found.append(at)
        at += 4
    return found
